"""MJoin's arriving phase: one hash table for each relation on a common key, buckets flushed from all of them at once.

Reference: Bornea 2010, 2; docs/algorithms/online.md, 2.8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import F64, I32, I64
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import mixed
from dovetail.joins.online.kernels.indexed import (
    DEPTH,
    ENOUGH_PROBES,
    FRESH,
    MATCHES,
    PENDING,
    PROBES,
    SPACE,
    Stack,
    empty_stack,
)
from dovetail.joins.online.kernels.ranges import range_of
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    COMPARED,
    DONE,
    DROPPED,
    EMIT,
    FLUSHED,
    FOUND,
    FULL,
    GONE,
    N_FREE,
    NEXT,
    NO_SLOT,
    RESULTS,
    SIDE,
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


class Tables(NamedTuple):
    """By slot: next slot of the chain; by relation and cell: first slot. By bucket: rows.

    A bucket is a run of cells. `counts` and `sigma` are by relation that is probed, `order` by selectivity. `bands` are
    those besides the common key, in both directions: relation and key that it goes from, relation and key that it goes
    to, and the range there as down, up and measure.
    """

    after: I32
    heads: I32
    held: I64
    counts: I64
    sigma: F64
    order: I64
    bands: I64
    meta: I64


BUCKETS, CELLS, SMALLEST = range(3)
"""Places in `Tables.meta`: buckets, cells a bucket, whether the smallest bucket is flushed and not the largest."""
CHAIN_BYTES = 4


def empty_tables(relations: int, slots: int, buckets: int, smallest: bool, bands: I64 | None = None) -> Tables:
    """Tables without rows."""
    bands = np.zeros((0, 7), np.int64) if bands is None else bands
    cells = max(1, slots // buckets)
    heads, held = np.full((relations, buckets * cells), -1, np.int32), np.zeros(buckets, np.int64)
    counts, meta = np.zeros((relations, 3), np.int64), np.array([buckets, cells, smallest], np.int64)
    order = np.arange(relations, dtype=np.int64)
    after = np.full(slots, -1, np.int32)
    return Tables(after, heads, held, counts, np.zeros(relations), order, bands, meta)


@kernel
def bucket_of(t: Tables, key: int) -> int:
    """The bucket of a key."""
    return int(mixed(np.uint64(key)) % np.uint64(t.meta[BUCKETS]))


@kernel
def _cell(t: Tables, key: int) -> int:
    h = mixed(np.uint64(key))
    inside = (h // np.uint64(t.meta[BUCKETS])) % np.uint64(t.meta[CELLS])
    return int(h % np.uint64(t.meta[BUCKETS])) * int(t.meta[CELLS]) + int(inside)


@kernel
def _order_tables(t: Tables) -> None:
    """Most selective table first; relations with enough probes are judged and counted anew."""
    for r in range(len(t.sigma)):
        if t.counts[r, PROBES] >= ENOUGH_PROBES and t.counts[r, SPACE] > 0:
            t.sigma[r] = t.counts[r, MATCHES] / t.counts[r, SPACE]
            t.counts[r, :] = 0
    t.order[:] = np.argsort(t.sigma, kind="mergesort")


@kernel
def _relation_at(t: Tables, r: int, depth: int) -> int:
    """The relation that a row of r probes at this depth, from 1 on."""
    seen = 0
    for at in range(len(t.order)):
        if t.order[at] != r:
            seen += 1
            if seen == depth:
                return t.order[at]  # type: ignore[no-any-return]  # int and np.int64 are one in a kernel
    return r


@kernel
def _is_near(rows: Rows, t: Tables, r: int, stack: Stack, depth: int, other: int, slot: int) -> bool:
    """Whether a row is within the bands between its relation and those at smaller depths."""
    for band in range(len(t.bands)):
        origin, mine, to, theirs = t.bands[band, 0], t.bands[band, 1], t.bands[band, 2], t.bands[band, 3]
        if to != other:
            continue
        for before in range(depth):
            if (r if before == 0 else _relation_at(t, r, before)) == origin:
                low, high = range_of(rows.keys[mine, stack.slot[before]], t.bands[band, 4:])
                if not low <= rows.keys[theirs, slot] <= high:
                    return False
    return True


@kernel
def _step(rows: Rows, t: Tables, r: int, stack: Stack, depth: int) -> int:
    """The next row of this depth with the arriving row's key, or -1."""
    key, other = rows.keys[0, stack.slot[0]], _relation_at(t, r, depth)
    if stack.meta[FRESH]:
        t.counts[other, PROBES] += 1
        t.counts[other, SPACE] += rows.held[other]
        stack.meta[FRESH] = 0
        slot = t.heads[other, _cell(t, key)]
    else:
        slot = t.after[stack.slot[depth]]
    while slot >= 0:
        rows.meta[COMPARED] += 1
        if rows.keys[0, slot] == key and _is_near(rows, t, r, stack, depth, other, slot):
            t.counts[other, MATCHES] += 1
            break
        slot = t.after[slot]
    return int(slot)


@kernel
def _probe(rows: Rows, t: Tables, r: int, stack: Stack, out: Outcome) -> bool:
    """Whether all combinations of the row were found and written; false when there is no room for more of them."""
    m, last = stack.meta, len(t.order) - 1
    while m[DEPTH] > 0:
        if not m[PENDING]:
            slot = _step(rows, t, r, stack, m[DEPTH])
            stack.slot[m[DEPTH]] = slot
            if slot < 0:
                m[DEPTH] -= 1
                continue
            if m[DEPTH] < last:
                m[DEPTH] += 1
                m[FRESH] = 1
                continue
        if rows.meta[EMIT]:
            if out.n[FOUND] == len(out.slots):
                m[PENDING] = 1
                return False
            for depth in range(last + 1):
                of = r if depth == 0 else _relation_at(t, r, depth)
                out.slots[out.n[FOUND], of] = stack.slot[depth]
            out.n[FOUND] += 1
        m[PENDING] = 0
        rows.meta[RESULTS] += 1
    return True


@kernel
def _chosen_bucket(t: Tables) -> int:
    best = -1
    for b in range(len(t.held)):
        if t.held[b] == 0:
            continue
        better = best >= 0 and (t.held[b] < t.held[best] if t.meta[SMALLEST] else t.held[b] > t.held[best])
        if best < 0 or better:
            best = b
    return best


@kernel
def flush_bucket(rows: Rows, t: Tables, out: Outcome) -> bool:
    """One bucket leaves all tables in one tick, which is its generation; false if there is no row at all."""
    bucket = _chosen_bucket(t)
    if bucket < 0:
        return False
    rows.meta[CLOCK] += 1
    cells = t.meta[CELLS]
    for r in range(len(t.heads)):
        first = out.n[GONE]
        for cell in range(bucket * cells, (bucket + 1) * cells):
            slot = t.heads[r, cell]
            while slot >= 0:
                let_go(rows, out, slot, r)
                slot = t.after[slot]
            t.heads[r, cell] = -1
        close_flush(out, first, r, bucket, FLUSHED, rows.meta[CLOCK])
    t.held[bucket] = 0
    return True


@kernel
def _store(rows: Rows, t: Tables, r: int, slot: int) -> None:
    cell = _cell(t, rows.keys[0, slot])
    t.after[slot] = t.heads[r, cell]
    t.heads[r, cell] = slot
    t.held[bucket_of(t, rows.keys[0, slot])] += 1
    hold(rows, slot, r)


@kernel
def store_hashed(rows: Rows, t: Tables, r: int, slots: I64) -> None:
    """Rows with keys are in memory again."""
    for at in range(len(slots)):
        _store(rows, t, r, slots[at])


@kernel
def drop_hashed(rows: Rows, t: Tables, out: Outcome, r: int, until: int) -> None:
    """Rows of one relation that arrived up to this tick leave, as one flush."""
    first = out.n[GONE]
    for cell in range(t.heads.shape[1]):
        slot, kept = t.heads[r, cell], -1
        while slot >= 0:
            following = t.after[slot]
            if rows.ats[slot] <= until:
                t.held[bucket_of(t, rows.keys[0, slot])] -= 1
                let_go(rows, out, slot, r)
                if kept < 0:
                    t.heads[r, cell] = following
                else:
                    t.after[kept] = following
            else:
                kept = slot
            slot = following
    close_flush(out, first, r, 0, DROPPED, rows.meta[CLOCK])


@kernel
def arrive_tables(rows: Rows, t: Tables, new: Arrivals, stack: Stack, out: Outcome) -> int:
    """Take rows from `new.at[NEXT]` on and say why it stopped; called again, it goes on where it stopped.

    Room is made before a row is stored and probes: what it meets has its own generation.
    """
    r = new.at[SIDE]
    if new.at[NEXT] == 0 and new.at[STAGE] == TO_ENTER:  # with ample memory there is never a flush
        _order_tables(t)
    while new.at[NEXT] < len(new.size):
        at = new.at[NEXT]
        if new.at[STAGE] == TO_ENTER:
            while is_full(rows, new.size[at]):
                if not can_list(out, len(t.heads)):
                    return NO_SLOT
                if not flush_bucket(rows, t, out):
                    return STUCK
                _order_tables(t)
            if rows.meta[N_FREE] == 0:
                return NO_SLOT
            slot = enter(rows, new, at)
            _store(rows, t, r, slot)
            stack.slot[0] = slot
            stack.meta[DEPTH], stack.meta[FRESH], stack.meta[PENDING] = 1, 1, 0
            new.at[STAGE] = TO_PROBE
        if not _probe(rows, t, r, stack, out):
            return FULL
        new.at[NEXT], new.at[STAGE] = at + 1, TO_ENTER
    return DONE


@register_warmup
def _warm() -> None:
    rows, t = empty_rows(20, 6, 1000, 3, named=True), empty_tables(3, 20, 2, False)
    out, stack = empty_outcome(4, 20, 8, 3), empty_stack(3)
    key, size, none = np.zeros((1, 4), np.int64), np.ones(4, np.int64), np.empty(0, np.int64)
    for r in range(3):
        arrive_tables(rows, t, arrivals(r, 0, key, size, np.zeros(4, np.int32), (none, none)), stack, out)
    flush_bucket(rows, t, out)
    store_hashed(rows, t, 0, np.zeros(0, np.int64))
    drop_hashed(rows, t, out, 0, 0)
