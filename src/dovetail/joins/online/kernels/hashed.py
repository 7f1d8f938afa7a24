"""The arriving phase of the joins that hash, one tuple at a time: probe, make room, store.

Reference: docs/algorithms/online.md, 2.1 to 2.7.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import F64, I32, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.online.kernels.flush import DPHJ, EHJ, XJOIN, flush_hashed, flush_waiting
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    CODED,
    COMPARED,
    DONE,
    DROPPED,
    EMIT,
    FOUND,
    FULL,
    GONE,
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
    is_full,
    let_go,
    meet,
)
from dovetail.joins.online.kernels.table import (
    BUCKETS,
    NONE,
    ONE_SIDE,
    POLICY,
    RECEIVED,
    Table,
    bucket_of,
    cell_of,
    empty_table,
    put,
    put_waiting,
    queue_slots,
    take,
)


@kernel
def _searches(t: Table, side: int, bucket: int) -> bool:
    """Whether an arrival probes: not where the rows it would meet have gone to disk for good."""
    n, policy = t.meta[BUCKETS], t.meta[POLICY]
    if policy in (DPHJ, EHJ):
        return bool(t.frozen[(1 - side) * n + bucket] == 0)
    return True


@kernel
def _probe(rows: Rows, t: Table, new: Arrivals, out: Outcome, at: int, slot: int) -> bool:
    """Whether all pairs of the row were found and written; false when there is no room for more of them.

    With unique keys on one side a row of the other leaves with its match, so that no pair is met again.
    """
    side, done, code = new.at[SIDE], new.at[SKIP], new.code[at]
    drops = t.meta[ONE_SIDE] == side
    first, found = out.n[GONE], np.int64(0)
    match = t.cell[cell_of(t, 1 - side, code)]
    while match != NONE:
        other, match = match, t.next_cell[match]
        rows.meta[COMPARED] += 1
        if rows.code[other] != code or (rows.meta[CODED] and not new.low[at] <= rows.key[other] <= new.high[at]):
            continue
        found += 1
        if found <= done:
            continue
        if rows.meta[EMIT]:
            if out.n[FOUND] == len(out.slots):
                new.at[SKIP] = 0 if drops else found - 1
                close_flush(out, first, 1 - side, 0, DROPPED, rows.meta[CLOCK])
                return False
            meet(rows, out, side, slot, other)
        rows.bit[slot] = 1
        rows.meta[RESULTS] += 1
        if drops:
            take(t, rows, out, 1 - side, other)
    close_flush(out, first, 1 - side, 0, DROPPED, rows.meta[CLOCK])
    return True


@kernel
def _meet(rows: Rows, t: Table, new: Arrivals, out: Outcome, at: int) -> bool:
    """Probe if there is anything to meet, and count for the estimates of RPJ."""
    side, n = new.at[SIDE], t.meta[BUCKETS]
    bucket = bucket_of(new.code[at], n)
    before = rows.meta[RESULTS]
    if _searches(t, side, bucket) and not _probe(rows, t, new, out, at, new.slot[at]):
        return False
    t.seen[side * n + bucket] += 1.0
    t.met[bucket] += float(rows.meta[RESULTS] - before)
    t.compared[bucket] += float(t.held[(1 - side) * n + bucket])
    t.meta[RECEIVED + side] += 1
    return True


@kernel
def _drop(rows: Rows, out: Outcome, slot: int, side: int) -> None:
    """The row that has just found its only match is not stored."""
    first = out.n[GONE]
    hold(rows, slot, side)
    let_go(rows, out, slot, side)
    close_flush(out, first, side, 0, DROPPED, rows.meta[CLOCK])


@kernel
def arrive_hashed(rows: Rows, t: Table, new: Arrivals, out: Outcome, knobs: F64) -> int:
    """Take rows from `new.at[NEXT]` on and say why it stopped; called again, it goes on where it stopped.

    Room is made before the row probes: rows that leave together with their bucket have then met all that are inside.
    """
    side, n = new.at[SIDE], t.meta[BUCKETS]
    while new.at[NEXT] < len(new.key):
        at = new.at[NEXT]
        if new.at[STAGE] == TO_ENTER:
            if rows.meta[N_FREE] == 0:
                return NO_SLOT
            while is_full(rows, new.size[at]):
                if not can_list(out, 2 * n + 2):
                    return NO_SLOT
                if not flush_hashed(t, rows, out, knobs):
                    return STUCK
            if not can_list(out, 2):
                return NO_SLOT
            enter(rows, new, at)
            new.at[STAGE], new.at[SKIP] = TO_PROBE, 0
        if not _meet(rows, t, new, out, at):
            return FULL
        slot = new.slot[at]
        if t.meta[ONE_SIDE] == 1 - side and rows.bit[slot]:
            _drop(rows, out, slot, side)
        elif t.frozen[side * n + bucket_of(new.code[at], n)]:
            put_waiting(t, rows, side, slot)
        else:
            put(t, rows, side, slot)
        new.at[NEXT], new.at[STAGE] = at + 1, TO_ENTER
    return DONE


@kernel
def put_all(rows: Rows, t: Table, side: int, slots: I32) -> None:
    """Rows with keys and ticks are in memory, in this order."""
    for at in range(len(slots)):
        put(t, rows, side, slots[at])


@kernel
def drop_all(t: Table, rows: Rows, out: Outcome, side: int, slots: I32) -> None:
    """These rows of one side are needed no more; one flush of the kind DROPPED lists them."""
    first = out.n[GONE]
    for at in range(len(slots)):
        take(t, rows, out, side, slots[at])
    close_flush(out, first, side, 0, DROPPED, rows.meta[CLOCK])


@register_warmup
def _warm() -> None:
    some, slots = int64s(np.arange(8)), np.zeros(8, np.int32)
    knobs = np.array([1.0, 1.0, 0.05])
    rows, out = empty_rows(10, 6, 1000), empty_outcome(4, 10, 16)
    t = empty_table(10, 2, XJOIN, 2, 2, -1)
    for side in (0, 1):
        arrive_hashed(rows, t, arrivals(side, 0, some[None, :], some, slots, (some, some)), out, knobs)
    flush_hashed(t, rows, out, knobs)
    flush_waiting(t, rows, out)
    drop_all(t, rows, out, 0, np.zeros(0, np.int32))
    put_all(rows, t, 0, np.zeros(0, np.int32))
    queue_slots(t, 0, np.zeros(0, np.int32))
