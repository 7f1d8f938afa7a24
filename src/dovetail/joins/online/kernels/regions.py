"""DINER's flush from sorted leaves: the regions are those of `areas`, of one attribute a side.

Reference: Bornea 2010, 3.3 and algorithm 2; docs/algorithms/online.md, 3.3 and 3.4.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32, inlined
from dovetail.engine.kernels.compile import kernel
from dovetail.joins.online.kernels.areas import BLOCK, LOWER, MIDDLE, UPPER, Areas, draw, least_benefit
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    CODED,
    DROPPED,
    FLUSHED,
    GONE,
    Outcome,
    Rows,
    close_flush,
    largest_side,
    let_go,
)
from dovetail.joins.online.kernels.sorted_leaves import (
    USED,
    Leaves,
    lower_bound,
    position_from_end,
    remove_rows,
    rows_until,
)
from dovetail.joins.online.kernels.tree import Order, Trees, remove_node

TAKEN = 2  # a join bit of 2 marks a row that the Clock has chosen
_MIN, _MAX = -(2**63), 2**63 - 1


@inlined
def key_of(rows: Rows, slot: int) -> int:
    """The key that regions and leaves order a row by."""
    return rows.keys[len(rows.keys) - 1, slot]  # type: ignore[no-any-return]  # int and np.int64 are one in a kernel


@inlined
def by_code(rows: Rows) -> Order:
    """What rows with two keys are ordered by in the trees: the first, then the last."""
    return Order(rows.keys[0], rows.keys[len(rows.keys) - 1], rows.ats)


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
    lower = min(rows_until(ix, 0, s.low[side, 0]), n_rows - upper)
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
        until = rows_until(ix, 0, s.low[side, 0])
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
        region = MIDDLE if is_first else least_benefit(s, side, tried)[1]
        if tried[0] == 0:
            s.chosen[side, 0, region] += 1
        tried[0] |= 1 << region
        taken += _take(s, rows, side, ix, out, region, need - taken)
    if rows.meta[CODED]:
        for at in range(first, out.n[GONE]):
            remove_node(keyed, by_code(rows), side, 0, out.gone[at])
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
def drop_sorted(rows: Rows, s: Areas, ix: Leaves, keyed: Trees, out: Outcome, side: int, slots: I32) -> None:
    """These rows of one side are needed no more; one flush of the kind DROPPED lists them."""
    first = out.n[GONE]
    for at in range(len(slots)):
        slot = slots[at]
        remove_rows(ix, position_of(rows, ix, key_of(rows, slot), rows.ats[slot]), 1)
        if rows.meta[CODED]:
            remove_node(keyed, by_code(rows), side, 0, slot)
        let_go(rows, out, slot, side)
    close_flush(out, first, side, 0, DROPPED, rows.meta[CLOCK])
    recount(s, side, ix, rows.held[side])
