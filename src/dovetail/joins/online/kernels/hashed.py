"""The arriving phase of the joins that hash, of two inputs or many, one tuple at a time: make room, probe, store.

A row probes the tables of all other inputs, the most selective one first. What it has found so far is a stack, with a
row of each input probed; the table of the last input is walked in a loop of its own, which is all that a join of two
inputs does.
Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.1 to 2.8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import F64, I32, I64, inlined
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.online.kernels.ranges import range_of
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    COMPARED,
    DONE,
    DROPPED,
    EMIT,
    ENOUGH_PROBES,
    FOUND,
    FULL,
    GONE,
    MATCHES,
    N_FREE,
    NEXT,
    NO_SLOT,
    PROBES,
    RESULTS,
    SIDE,
    SPACE,
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
)
from dovetail.joins.online.kernels.table import (
    BUCKETS,
    DPHJ,
    EHJ,
    MJOIN,
    NONE,
    ONE_SIDE,
    POLICY,
    RECEIVED,
    SIDES,
    XJOIN,
    Table,
    bucket_of,
    cell_of,
    empty_table,
    flush_hashed,
    flush_waiting,
    put,
    put_waiting,
    queue_slots,
    take,
)


class Search(NamedTuple):
    """In which order an arriving row probes, and how far it has come.

    By arriving input and depth, `order` is the input probed. By input probed, matches, rows that could have matched and
    probes are counted; `sigma` is matches over those rows. `bands` are those besides the common key, in both
    directions: input and key that it goes from, input and key that it goes to, and the range there as down, up and
    measure. By depth, `slot` is the row found and `next` the row to look at; `near` has how many bands are asked there,
    and for each of them the key, and the first and last value, that match. `depth` is one number.
    """

    order: I64
    counts: I64
    sigma: F64
    bands: I64
    slot: I64
    next: I64
    near: I64
    depth: I64


def empty_search(sides: int, bands: I64 | None = None) -> Search:
    """A search of which nothing is known yet; there are no bands if they are not given."""
    bands = np.zeros((0, 7), np.int64) if bands is None else bands
    order, counts, near = np.zeros((sides, sides)), np.zeros((sides, 3)), np.zeros((sides, 1 + 3 * len(bands)))
    slot, following, depth = np.zeros(sides), np.zeros(sides), np.zeros(1)
    numbers = [each.astype(np.int64) for each in (order, counts, slot, following, near, depth)]
    search = Search(numbers[0], numbers[1], np.zeros(sides), bands, *numbers[2:])
    order_tables(search)
    return search


@kernel
def order_tables(s: Search) -> None:
    """Most selective table first; inputs with enough probes are judged again, and their counts begin at zero.

    Order decides cost, never results.
    """
    for r in range(len(s.sigma)):
        if s.counts[r, PROBES] >= ENOUGH_PROBES and s.counts[r, SPACE] > 0:
            s.sigma[r] = s.counts[r, MATCHES] / s.counts[r, SPACE]
            s.counts[r, :] = 0
    by_sigma = np.argsort(s.sigma, kind="mergesort")
    for r in range(len(s.sigma)):
        depth = 0
        s.order[r, 0] = r
        for at in range(len(by_sigma)):
            if by_sigma[at] != r:
                depth += 1
                s.order[r, depth] = by_sigma[at]


@inlined
def _descend(rows: Rows, t: Table, s: Search, side: int, depth: int, code: int) -> None:
    """Begin the chain of the input at this depth."""
    other = s.order[side, depth]
    s.next[depth] = t.cell[cell_of(t, other, code)]
    s.counts[other, PROBES] += 1
    s.counts[other, SPACE] += rows.held[other]
    n = 0
    for band in range(len(s.bands)):
        if s.bands[band, 2] != other:
            continue
        for before in range(depth):
            if s.order[side, before] == s.bands[band, 0]:
                low, high = range_of(rows.keys[s.bands[band, 1], s.slot[before]], s.bands[band, 4:])
                s.near[depth, 3 * n + 1], s.near[depth, 3 * n + 2] = s.bands[band, 3], low
                s.near[depth, 3 * n + 3] = high
                n += 1
    s.near[depth, 0] = n


@inlined
def _matches(rows: Rows, s: Search, depth: int, slot: int, code: int) -> bool:
    """Whether a row of a chain has the code, and is within all bands."""
    if rows.keys[0, slot] != code:
        return False
    for n in range(s.near[depth, 0]):
        key = rows.keys[s.near[depth, 3 * n + 1], slot]
        if key < s.near[depth, 3 * n + 2] or key > s.near[depth, 3 * n + 3]:
            return False
    return True


@inlined
def _probe_last(rows: Rows, t: Table, s: Search, out: Outcome, side: int, code: int) -> bool:
    """Whether all combinations with rows of the last input were written; false when there is no room for more of them.

    With unique keys on one of two sides a row of the other leaves with its match, so that no pair is met again.
    """
    last, first = len(s.order) - 1, out.n[GONE]
    other, found, compared, room = s.order[side, last], np.int64(0), np.int64(0), True
    drops, emits = t.meta[ONE_SIDE] == side, rows.meta[EMIT] != 0
    slot, n = s.next[last], out.n[FOUND]
    while slot != NONE:
        compared += 1
        if _matches(rows, s, last, slot, code):
            if emits:
                if n == len(out.slots):
                    room = False
                    break
                for depth in range(last):
                    out.slots[n, s.order[side, depth]] = s.slot[depth]
                out.slots[n, other] = slot
                n += 1
            found += 1
            if drops:
                take(t, rows, out, other, slot)
        slot = np.int64(t.next_cell[slot])
    s.next[last], out.n[FOUND] = slot, n
    s.counts[other, MATCHES] += found
    rows.meta[COMPARED] += compared
    rows.meta[RESULTS] += found
    close_flush(out, first, other, 0, DROPPED, rows.meta[CLOCK])
    return room


@inlined
def _probe(rows: Rows, t: Table, s: Search, out: Outcome, side: int, code: int) -> bool:
    """Whether all combinations of the row were written; called again, it goes on where it stopped."""
    last, depth = len(s.order) - 1, s.depth[0]
    while depth > 0:
        if depth == last:
            if not _probe_last(rows, t, s, out, side, code):
                s.depth[0] = depth
                return False
            depth -= 1
            continue
        slot = s.next[depth]
        while slot != NONE and not _matches(rows, s, depth, slot, code):
            rows.meta[COMPARED] += 1
            slot = np.int64(t.next_cell[slot])
        if slot == NONE:
            depth -= 1
            continue
        rows.meta[COMPARED] += 1
        s.counts[s.order[side, depth], MATCHES] += 1
        s.slot[depth], s.next[depth] = slot, t.next_cell[slot]
        depth += 1
        _descend(rows, t, s, side, depth, code)
    s.depth[0] = 0
    return True


@inlined
def _searches(t: Table, side: int, bucket: int) -> bool:
    """Whether an arrival probes: not where the rows it would meet have gone to disk for good."""
    policy = t.meta[POLICY]
    if policy in (DPHJ, EHJ):
        return bool(t.frozen[(1 - side) * t.meta[BUCKETS] + bucket] == 0)
    return True


@kernel
def _drop(rows: Rows, out: Outcome, slot: int, side: int) -> None:
    """The row that has just found its only match is not stored."""
    first = out.n[GONE]
    hold(rows, slot, side)
    let_go(rows, out, slot, side)
    close_flush(out, first, side, 0, DROPPED, rows.meta[CLOCK])


@kernel
def _make_room(rows: Rows, t: Table, s: Search, out: Outcome, size: int, ageing: float) -> int:
    """DONE if a row of this size has room, else why there is none yet."""
    n, sides = t.meta[BUCKETS], t.meta[SIDES]
    flushes = sides if t.meta[POLICY] >= MJOIN else 2 * n + 2
    while is_full(rows, size):
        if not can_list(out, flushes):
            return NO_SLOT
        if not flush_hashed(t, rows, out, ageing):
            return STUCK
        if sides > 2:
            order_tables(s)
    return DONE if can_list(out, 2) else NO_SLOT


@kernel
def arrive_hashed(rows: Rows, t: Table, s: Search, new: Arrivals, out: Outcome, ageing: float) -> int:
    """Take rows from `new.at[NEXT]` on and say why it stopped; called again, it goes on where it stopped.

    Room is made before the row probes: rows that leave together with their bucket have then met all that are inside.
    """
    side, n, sides = new.at[SIDE], t.meta[BUCKETS], t.meta[SIDES]
    if sides > 2 and new.at[NEXT] == 0 and new.at[STAGE] == TO_ENTER:  # with ample memory there is never a flush
        order_tables(s)
    while new.at[NEXT] < len(new.size):
        at = new.at[NEXT]
        code = new.keys[0, at]
        bucket = bucket_of(code, n)
        searches = _searches(t, side, bucket)
        if new.at[STAGE] == TO_ENTER:
            if rows.meta[N_FREE] == 0:
                return NO_SLOT
            if is_full(rows, new.size[at]) or not can_list(out, 2):
                status = _make_room(rows, t, s, out, new.size[at], ageing)
                if status != DONE:
                    return status
                searches = _searches(t, side, bucket)
            s.slot[0] = enter(rows, new, at)
            s.depth[0] = 1
            _descend(rows, t, s, side, 1, code)
            new.at[STAGE] = TO_PROBE
        before = rows.meta[RESULTS]
        if searches and not _probe(rows, t, s, out, side, code):
            if rows.meta[RESULTS] > before:
                rows.bit[s.slot[0]] = 1
            return FULL
        slot = s.slot[0]
        if sides == 2:  # what RPJ and EHJ decide by
            t.seen[side * n + bucket] += 1.0
            t.met[bucket] += float(rows.meta[RESULTS] - before)
            t.compared[bucket] += float(t.held[(1 - side) * n + bucket])
            t.meta[RECEIVED + side] += 1
        unique = t.meta[ONE_SIDE]
        if unique >= 0 and unique != side and (rows.bit[slot] or rows.meta[RESULTS] > before):
            _drop(rows, out, slot, side)
        elif t.frozen[side * n + bucket]:
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
    slots = np.zeros(8, np.int32)
    rows, out = empty_rows(10, 6, 1000), empty_outcome(4, 10, 16)
    t, s = empty_table(10, 2, XJOIN, 2, 2), empty_search(2)
    for side in (0, 1):
        new = arrivals(side, 0, np.arange(8)[None, :], np.arange(8), slots)
        arrive_hashed(rows, t, s, new, out, 1.0)
    flush_hashed(t, rows, out, 1.0)
    flush_waiting(t, rows, out)
    drop_all(t, rows, out, 0, np.zeros(0, np.int32))
    put_all(rows, t, 0, np.zeros(0, np.int32))
    queue_slots(t, 0, np.zeros(0, np.int32))
