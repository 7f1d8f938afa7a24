"""DINER over two sorted indexes, one tuple at a time: probe, count, make room, store; and its flush.

Every decision is the one that a tuple-at-a-time join takes; only the columns of rows move in batches, by the caller.
The regions are those of `areas`, of one attribute a side.
Reference: Bornea 2010, 3.3 and algorithms 1 to 3; docs/algorithms/online.md, 3.2 to 3.4.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, inlined, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import mixed
from dovetail.joins.online.kernels.areas import (
    BENEFIT,
    BLOCK,
    LOWER,
    MIDDLE,
    UPPER,
    Areas,
    area_of,
    draw,
    empty_areas,
    least_benefit,
)
from dovetail.joins.online.kernels.ranges import range_of
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    CODED,
    COMPARED,
    DONE,
    DROPPED,
    EMIT,
    FLUSHED,
    FOUND,
    FULL,
    GONE,
    INDEX_FULL,
    N_FREE,
    NEXT,
    NO_SLOT,
    RESULTS,
    SIDE,
    SKIP,
    STAGE,
    STUCK,
    TO_ENTER,
    TO_PROBE,
    TO_STORE,
    Arrivals,
    Outcome,
    Rows,
    arrivals,
    can_list,
    close_flush,
    empty_outcome,
    empty_rows,
    enter,
    hold,
    hold_all,
    is_full,
    largest_side,
    let_go,
    meet,
)
from dovetail.joins.online.kernels.sorted_leaves import (
    USED,
    Leaves,
    empty_leaves,
    insert_sorted,
    lower_bound,
    position_from_end,
    remove_rows,
    rows_until,
)
from dovetail.joins.online.kernels.tree import (
    Order,
    Trees,
    empty_trees,
    first_from,
    insert_node,
    next_node,
    remove_node,
)

TAKEN = 2  # a join bit of 2 marks a row that the Clock has chosen
_MIN, _MAX = -(2**63), 2**63 - 1


@inlined
def key_of(rows: Rows, slot: int) -> int:
    """The key that regions and leaves order a row by."""
    return rows.keys[len(rows.keys) - 1, slot]  # type: ignore[no-any-return]  # int and np.int64 are one in a kernel


@inlined
def by_code(rows: Rows) -> Order:
    """The order of rows with two keys in the trees: the first, then the last."""
    return Order(rows.keys[0], rows.keys[len(rows.keys) - 1], rows.ats)


@inlined
def tree_of(keyed: Trees, side: int, code: int) -> int:
    """The tree of a code, one of many for each side: rows of few codes share one, so that a search takes few steps."""
    cells = len(keyed.ends) >> 1
    return int(side * cells + (np.int64(mixed(np.uint64(code))) & (cells - 1)))


@inlined
def _find_keyed(rows: Rows, keyed: Trees, side: int, slot: int) -> None:
    """The row can be found by code and key from now on."""
    insert_node(keyed, by_code(rows), tree_of(keyed, side, rows.keys[0, slot]), 0, slot)


@inlined
def _lose_keyed(rows: Rows, keyed: Trees, side: int, slot: int) -> None:
    """The row is not found by code and key any more."""
    remove_node(keyed, by_code(rows), tree_of(keyed, side, rows.keys[0, slot]), 0, slot)


@kernel
def position_of(rows: Rows, ix: Leaves, key: int, tick: int) -> int:
    """The position of the first row at or after (key, arrival tick), or the place after the last leaf."""
    used, places = int(ix.meta[USED]), int(ix.keys.shape[1])
    low, high = 0, used
    while low < high:
        middle = (low + high) >> 1
        first = ix.firsts[middle]
        if first < key or (first == key and rows.ats[ix.values[ix.order[middle], 0]] < tick):
            low = middle + 1
        else:
            high = middle
    place = max(low - 1, 0)
    if place >= used:
        return 0
    leaf = ix.order[place]
    low, high = 0, int(ix.sizes[leaf])
    while low < high:
        middle = (low + high) >> 1
        found = ix.keys[leaf, middle]
        if found < key or (found == key and rows.ats[ix.values[leaf, middle]] < tick):
            low = middle + 1
        else:
            high = middle
    if low == ix.sizes[leaf]:
        place += 1
        low = 0
    return place * places + low


@kernel
def _key_of_rank(ix: Leaves, rank: int) -> int:
    place = 0
    while rank >= ix.sizes[ix.order[place]]:
        rank -= ix.sizes[ix.order[place]]
        place += 1
    return ix.keys[ix.order[place], rank]  # type: ignore[no-any-return]  # int and np.int64 are one in a kernel


@kernel
def _rows_below(ix: Leaves, key: int) -> int:
    """How many rows have a smaller key."""
    position, places = lower_bound(ix, key), int(ix.keys.shape[1])
    count = position % places
    for place in range(position // places):
        count += int(ix.sizes[ix.order[place]])
    return count


@kernel
def recount(s: Areas, side: int, ix: Leaves, n_rows: int) -> None:
    """Rows of each region as the boundaries lie now."""
    upper = n_rows - _rows_below(ix, s.up[side, 0])
    lower = min(rows_until(ix, s.low[side, 0]), n_rows - upper)
    s.held[side, 0, LOWER], s.held[side, 0, UPPER] = lower, upper
    s.held[side, 0, MIDDLE] = n_rows - lower - upper


@kernel
def _set_low(s: Areas, side: int, ix: Leaves, n_rows: int) -> None:
    """The smallest key such that the lower region holds a block, but below the upper region."""
    if n_rows == 0:
        return
    key = _key_of_rank(ix, min(s.meta[BLOCK], n_rows) - 1)
    if key >= s.up[side, 0]:
        below = _rows_below(ix, s.up[side, 0])
        key = _key_of_rank(ix, below - 1) if below > 0 else _MIN
    s.low[side, 0] = key


@kernel
def _set_up(s: Areas, side: int, ix: Leaves, n_rows: int) -> None:
    """The largest key such that the upper region holds a block, but above the lower region."""
    if n_rows == 0:
        return
    key = _key_of_rank(ix, n_rows - min(s.meta[BLOCK], n_rows))
    if key <= s.low[side, 0]:
        until = rows_until(ix, s.low[side, 0])
        key = _key_of_rank(ix, until) if until < n_rows else _MAX
    s.up[side, 0] = key


@kernel
def _take_run(rows: Rows, side: int, ix: Leaves, out: Outcome, position: int, n: int) -> None:
    """Rows that stand together leave."""
    places = int(ix.keys.shape[1])
    place, inside = position // places, position % places
    for _ in range(n):
        leaf = ix.order[place]
        let_go(rows, out, ix.values[leaf, inside], side)
        inside += 1
        if inside == ix.sizes[leaf]:
            place, inside = place + 1, 0
    remove_rows(ix, position, n)


@kernel
def _clock_start(s: Areas, rows: Rows, side: int, ix: Leaves) -> int:
    """Where the hand stands: at the first row at or after where it stopped, at a random row of the region at first."""
    if s.hand[side, 0, 3] == 0:
        rank, place = s.held[side, 0, LOWER] + draw(s, s.held[side, 0, MIDDLE]), 0
        while rank >= ix.sizes[ix.order[place]]:
            rank -= ix.sizes[ix.order[place]]
            place += 1
        slot = ix.values[ix.order[place], rank]
        s.hand[side, 0, 0], s.hand[side, 0, 2], s.hand[side, 0, 3] = key_of(rows, slot), rows.ats[slot], 1
    return position_of(rows, ix, s.hand[side, 0, 0], s.hand[side, 0, 2])


@kernel
def _take_clock(s: Areas, rows: Rows, side: int, ix: Leaves, out: Outcome, n: int) -> None:
    """The hand goes round the middle region; a row with the bit set loses it and stays, one without leaves."""
    places, used = int(ix.keys.shape[1]), ix.meta[USED]
    start = lower_bound(ix, s.low[side, 0] + 1) if s.low[side, 0] < _MAX else used * places
    position = max(_clock_start(s, rows, side, ix), start)
    first = out.n[GONE]
    while out.n[GONE] - first < n:
        place, inside = position // places, position % places
        if place >= used or ix.keys[ix.order[place], inside] >= s.up[side, 0]:
            position = start
            continue
        leaf = ix.order[place]
        slot = ix.values[leaf, inside]
        if rows.bit[slot] == 0:
            rows.bit[slot] = TAKEN
            let_go(rows, out, slot, side)
        elif rows.bit[slot] == 1:
            rows.bit[slot] = 0
        position = position + 1 if inside + 1 < ix.sizes[leaf] else (place + 1) * places
    last = out.gone[out.n[GONE] - 1]
    s.hand[side, 0, 0], s.hand[side, 0, 2] = key_of(rows, last), rows.ats[last] + 1
    for at in range(first, out.n[GONE]):
        slot = out.gone[at]
        remove_rows(ix, position_of(rows, ix, key_of(rows, slot), rows.ats[slot]), 1)


@kernel
def _take(s: Areas, rows: Rows, side: int, ix: Leaves, out: Outcome, region: int, need: int) -> int:
    n: int = min(need, s.held[side, 0, region])
    if n == 0:
        return 0
    if region == LOWER:
        _take_run(rows, side, ix, out, 0, n)
    elif region == UPPER:
        _take_run(rows, side, ix, out, position_from_end(ix, n), n)
    else:
        _take_clock(s, rows, side, ix, out, n)
    s.held[side, 0, region] -= n
    return n


@kernel
def flush_block(s: Areas, rows: Rows, left: Leaves, right: Leaves, keyed: Trees, out: Outcome) -> bool:
    """One block of the larger side leaves; false if there is no row at all."""
    side = largest_side(rows)
    if rows.held[side] == 0:
        return False
    ix = left if side == 0 else right
    first, tried, taken = out.n[GONE], np.zeros(1, np.int64), 0
    need: int = min(s.meta[BLOCK], rows.held[side])
    is_first = s.flushed[side] == 0
    while taken < need:
        # The largest and the smallest key of all are in no middle region.
        region = MIDDLE if is_first and tried[0] == 0 else least_benefit(s, side, tried)[1]
        if tried[0] == 0:
            s.chosen[side, 0, region] += 1
        tried[0] |= 1 << region
        taken += _take(s, rows, side, ix, out, region, need - taken)
    if rows.meta[CODED]:
        for at in range(first, out.n[GONE]):
            _lose_keyed(rows, keyed, side, out.gone[at])
    # Boundaries move once the block is complete, so that the regions always hold all rows together.
    if is_first or tried[0] & (1 << LOWER):
        _set_low(s, side, ix, rows.held[side])
    if is_first or tried[0] & (1 << UPPER):
        _set_up(s, side, ix, rows.held[side])
    s.flushed[side] = 1
    rows.meta[CLOCK] += 1
    close_flush(out, first, side, 0, FLUSHED, rows.meta[CLOCK])
    s.joins[side, 0, :] = 0
    recount(s, side, ix, rows.held[side])
    return True


@kernel
def _run_of(ix: Leaves, position: int, slots: I32, at: int) -> int:
    """How many of the slots from `at` on stand together from a position on; the first one does."""
    places = int(ix.keys.shape[1])
    place, inside, n = position // places, position % places, 0
    while at + n < len(slots) and place < ix.meta[USED] and ix.values[ix.order[place], inside] == slots[at + n]:
        n, inside = n + 1, inside + 1
        if inside == ix.sizes[ix.order[place]]:
            place, inside = place + 1, 0
    return n


@kernel
def drop_sorted(rows: Rows, s: Areas, ix: Leaves, keyed: Trees, out: Outcome, side: int, slots: I32) -> None:
    """These rows of one side are needed no more; one flush of the kind DROPPED lists them."""
    first, at = out.n[GONE], 0
    while at < len(slots):
        position = position_of(rows, ix, key_of(rows, slots[at]), rows.ats[slots[at]])
        n = _run_of(ix, position, slots, at)
        remove_rows(ix, position, n)
        for slot in slots[at : at + n]:
            if rows.meta[CODED]:
                _lose_keyed(rows, keyed, side, slot)
            let_go(rows, out, slot, side)
        at += n
    close_flush(out, first, side, 0, DROPPED, rows.meta[CLOCK])
    recount(s, side, ix, rows.held[side])


@inlined
def _count(rows: Rows, s: Areas, side: int, slot: int, found: int, joined: I64) -> None:
    """All pairs of a row were found: they count in its region, and in those of the rows that it met."""
    rows.bit[slot] = 1 if found > 0 else 0
    rows.meta[RESULTS] += found
    s.joins[side, 0, area_of(s, side, 0, key_of(rows, slot))] += found
    for region in range(3):
        s.joins[1 - side, 0, region] += joined[region]


@kernel
def _probe_ranges(rows: Rows, s: Areas, around: I64, theirs: Leaves, new: Arrivals, out: Outcome, slot: int) -> bool:
    """Whether all pairs of the row were found and written; false when there is no room for more of them."""
    side, done = new.at[SIDE], new.at[SKIP]
    other, places = 1 - side, int(theirs.keys.shape[1])
    low, high = range_of(key_of(rows, slot), around[side])
    position = lower_bound(theirs, low) if low <= high else theirs.meta[USED] * places
    place, inside, found = position // places, position % places, np.int64(0)
    joined, compared = np.zeros(3, np.int64), np.int64(0)
    while place < theirs.meta[USED]:
        leaf = theirs.order[place]
        if inside >= theirs.sizes[leaf]:
            place, inside = place + 1, 0
            continue
        key = theirs.keys[leaf, inside]
        compared += 1
        if key > high:
            break
        match = theirs.values[leaf, inside]
        inside += 1
        found += 1
        joined[area_of(s, other, 0, key)] += 1
        if found <= done:  # written out here and below: a call for each match would cost more than the match
            continue
        if rows.meta[EMIT]:
            if out.n[FOUND] == len(out.slots):
                new.at[SKIP] = found - 1
                return False
            meet(rows, out, side, slot, match)
        rows.bit[match] = 1
    rows.meta[COMPARED] += compared
    _count(rows, s, side, slot, int(found), joined)
    return True


@kernel
def _probe_keyed(rows: Rows, s: Areas, around: I64, keyed: Trees, new: Arrivals, out: Outcome, slot: int) -> bool:
    """As `_probe_ranges`, of rows with the code of the row: they stand together, in the order of their keys."""
    side, done, found, compared = new.at[SIDE], new.at[SKIP], np.int64(0), np.int64(0)
    low, high = range_of(key_of(rows, slot), around[side])
    order, joined = by_code(rows), np.zeros(3, np.int64)
    code = order.key[slot]
    node = first_from(keyed, order, tree_of(keyed, 1 - side, code), 0, code, low, _MIN) if low <= high else -1
    while node >= 0:
        compared += 1
        if order.key[node] != code or order.near[node] > high:
            break
        match, node = node, next_node(keyed, 0, node)
        found += 1
        joined[area_of(s, 1 - side, 0, order.near[match])] += 1
        if found <= done:
            continue
        if rows.meta[EMIT]:
            if out.n[FOUND] == len(out.slots):
                new.at[SKIP] = found - 1
                return False
            meet(rows, out, side, slot, match)
        rows.bit[match] = 1
    rows.meta[COMPARED] += compared
    _count(rows, s, side, slot, int(found), joined)
    return True


@kernel
def arrive_sorted(
    rows: Rows,
    s: Areas,
    around: I64,
    left: Leaves,
    right: Leaves,
    keyed: Trees,
    new: Arrivals,
    out: Outcome,
    one_key: I64,
    one_slot: I64,
) -> int:
    """Take rows from `new.at[NEXT]` on and say why it stopped; called again, it goes on where it stopped.

    `around` is by side the range of the other side's keys around a key, as down, up and measure. `keyed` holds the rows
    of both sides by code and key where codes are compared. `one_key` and `one_slot` are room
    for one number each.
    """
    side = new.at[SIDE]
    mine = left if side == 0 else right
    theirs = right if side == 0 else left
    while new.at[NEXT] < len(new.size):
        at = new.at[NEXT]
        if new.at[STAGE] == TO_ENTER:
            if rows.meta[N_FREE] == 0:
                return NO_SLOT
            enter(rows, new, at)
            new.at[STAGE], new.at[SKIP] = TO_PROBE, 0
        if new.at[STAGE] == TO_PROBE:
            if rows.meta[CODED]:
                all_found = _probe_keyed(rows, s, around, keyed, new, out, new.slot[at])
            else:
                all_found = _probe_ranges(rows, s, around, theirs, new, out, new.slot[at])
            if not all_found:
                return FULL
            new.at[STAGE] = TO_STORE
        slot = new.slot[at]
        while is_full(rows, new.size[at]):
            if not can_list(out, 1):
                return NO_SLOT
            if not flush_block(s, rows, left, right, keyed, out):
                return STUCK
        one_key[0], one_slot[0] = key_of(rows, slot), slot
        if insert_sorted(mine, one_key, one_slot, 0) == 0:
            return INDEX_FULL
        if rows.meta[CODED]:
            _find_keyed(rows, keyed, side, slot)
        hold(rows, slot, side)
        s.held[side, 0, area_of(s, side, 0, one_key[0])] += 1
        new.at[NEXT], new.at[STAGE] = at + 1, TO_ENTER
    return DONE


@kernel
def key_rows(rows: Rows, keyed: Trees, side: int, slots: I64) -> None:
    """Rows that were in memory before are found by code and key again."""
    for at in range(len(slots)):
        _find_keyed(rows, keyed, side, slots[at])


@register_warmup
def _warm() -> None:
    some, slots = int64s(np.arange(8)), np.zeros(8, np.int32)
    rows, out, keyed = empty_rows(10, 6, 1000), empty_outcome(4, 10, 8), empty_trees(2, 1, 0)
    s, around = empty_areas(np.ones(2, np.int64), 2, 1, BENEFIT, 0), np.zeros((2, 3), np.int64)
    left, right = empty_leaves(4, 4), empty_leaves(4, 4)
    for side in (0, 1):
        new = arrivals(side, 0, some[None, :], some, slots)
        arrive_sorted(rows, s, around, left, right, keyed, new, out, np.zeros(1, np.int64), np.zeros(1, np.int64))
    flush_block(s, rows, left, right, keyed, out)
    key_rows(rows, keyed, 0, np.zeros(0, np.int64))
    hold_all(rows, np.zeros(0, np.int64), 0)
    drop_sorted(rows, s, left, keyed, out, 0, np.zeros(0, np.int32))
    recount(s, 0, left, 0)
