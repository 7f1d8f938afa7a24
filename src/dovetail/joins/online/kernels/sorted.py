"""The arriving phase over two sorted indexes, one tuple at a time: probe, count, make room, store.

Every decision is the one that a tuple-at-a-time join takes; only the columns of rows move in batches, by the caller.
Reference: Bornea 2010, algorithms 1 and 3; docs/algorithms/online.md, 3.2 and 3.3.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, inlined, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.online.kernels.areas import BENEFIT, Areas, area_of, empty_areas
from dovetail.joins.online.kernels.ranges import range_of
from dovetail.joins.online.kernels.regions import by_code, drop_sorted, flush_block, key_of, recount
from dovetail.joins.online.kernels.rows import (
    CODED,
    COMPARED,
    DONE,
    EMIT,
    FOUND,
    FULL,
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
    empty_outcome,
    empty_rows,
    enter,
    hold,
    hold_all,
    is_full,
    meet,
)
from dovetail.joins.online.kernels.sorted_leaves import USED, Leaves, empty_leaves, insert_sorted, lower_bound
from dovetail.joins.online.kernels.tree import Trees, empty_trees, first_from, insert_node

_MIN = -(2**63)


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
    node = first_from(keyed, order, 1 - side, 0, code, low, _MIN) if low <= high else -1
    while node >= 0:
        compared += 1
        if order.key[node] != code or order.near[node] > high:
            break
        match, node = node, int(keyed.after[0, node])
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
            insert_node(keyed, by_code(rows), side, 0, slot)
        hold(rows, slot, side)
        s.held[side, 0, area_of(s, side, 0, one_key[0])] += 1
        new.at[NEXT], new.at[STAGE] = at + 1, TO_ENTER
    return DONE


@kernel
def key_rows(rows: Rows, keyed: Trees, side: int, slots: I64) -> None:
    """Rows that were in memory before are found by code and key again."""
    for at in range(len(slots)):
        insert_node(keyed, by_code(rows), side, 0, slots[at])


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
