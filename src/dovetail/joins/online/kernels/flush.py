"""What leaves memory when it is full, for each of the joins that hash: one decision a function.

Reference: docs/algorithms/online.md, 2.2 to 2.8 and 6.4.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.engine.kernels.compile import kernel
from dovetail.joins.online.kernels.rows import CLOCK, FLUSHED, GONE, HELD, NEW, Outcome, Rows, close_flush, largest_side
from dovetail.joins.online.kernels.table import (
    BLOCK,
    BUCKETS,
    POLICY,
    RECEIVED,
    RECEIVED_RIGHT,
    SIDES,
    WAIT_LIMIT,
    WAITING,
    Table,
    fullest_waiting,
    take_oldest,
    take_waiting,
)

NEVER, OLDEST, DPHJ, XJOIN, HMJ, HMJ_SMALLEST, RPJ, EHJ, MJOIN, MJOIN_SMALLEST = range(10)
"""Flush policies, in `Table.meta[POLICY]`."""
ALPHA, N_FLUSH, BALANCE = range(3)
"""Places in a policy's knobs: RPJ's ageing factor and rows a flush, HMJ's share of memory by which sides may differ."""
_MANY = 2**62


@kernel
def _flush_queue(t: Table, rows: Rows, out: Outcome, side: int, bucket: int, n: int, tick: int) -> int:
    first = out.n[GONE]
    taken = take_oldest(t, rows, out, side, bucket, n)
    close_flush(out, first, side, bucket, FLUSHED, tick)
    return taken


@kernel
def _flush_bucket(t: Table, rows: Rows, out: Outcome, bucket: int) -> bool:
    """A bucket of all inputs leaves in one flush; false if there is no bucket."""
    if bucket < 0:
        return False
    rows.meta[CLOCK] += 1
    for side in range(t.meta[SIDES]):
        _flush_queue(t, rows, out, side, bucket, _MANY, rows.meta[CLOCK])
    return True


@kernel
def _rows_of(t: Table, bucket: int) -> int:
    """Rows of a bucket, of all inputs."""
    held = np.int64(0)
    for side in range(t.meta[SIDES]):
        held += t.held[side * t.meta[BUCKETS] + bucket]
    return int(held)


@kernel
def _largest_bucket(t: Table) -> int:
    """The bucket with the most rows of all inputs, -1 if there are none."""
    best, most = -1, 0
    for bucket in range(t.meta[BUCKETS]):
        held = _rows_of(t, bucket)
        if held > most:
            best, most = bucket, held
    return best


@kernel
def _smallest_bucket(t: Table, enough: int) -> int:
    """The bucket with the fewest rows of those that have enough; -1 if none has."""
    best, least = -1, _MANY
    for bucket in range(t.meta[BUCKETS]):
        held = _rows_of(t, bucket)
        if enough <= held < least:
            best, least = bucket, held
    return best


@kernel
def flush_waiting(t: Table, rows: Rows, out: Outcome) -> bool:
    """Whether rows that waited to be written left: those of the bucket with the most of them."""
    queue = fullest_waiting(t)
    if queue < 0:
        return False
    first, side, bucket = out.n[GONE], queue // t.meta[BUCKETS], queue % t.meta[BUCKETS]
    take_waiting(t, rows, out, side, bucket)
    rows.meta[CLOCK] += 1
    close_flush(out, first, side, bucket, NEW, rows.meta[CLOCK])
    return True


@kernel
def _flush_oldest(t: Table, rows: Rows, out: Outcome) -> bool:
    """The oldest block of the larger side; there is one bucket."""
    side = largest_side(rows)
    rows.meta[CLOCK] += 1
    return _flush_queue(t, rows, out, side, 0, t.meta[BLOCK], rows.meta[CLOCK]) > 0


@kernel
def _flush_dphj(t: Table, rows: Rows, out: Outcome) -> bool:
    """The bucket with the most rows of both sides leaves and is frozen."""
    best = _largest_bucket(t)
    if _flush_bucket(t, rows, out, best):
        t.frozen[best] = t.frozen[t.meta[BUCKETS] + best] = rows.meta[CLOCK]
    return best >= 0


@kernel
def _flush_xjoin(t: Table, rows: Rows, out: Outcome) -> bool:
    """The largest bucket of either side leaves; the other side's stays."""
    n, best, most = t.meta[BUCKETS], -1, np.int64(0)
    for queue in range(2 * n):
        if t.held[queue] > most:
            best, most = queue, t.held[queue]
    if best < 0:
        return False
    rows.meta[CLOCK] += 1
    return _flush_queue(t, rows, out, best // n, best % n, _MANY, rows.meta[CLOCK]) > 0


@kernel
def _balanced_pair(t: Table, rows: Rows, share: float) -> int:
    """The largest pair of buckets that leaves both sides alike, else the pair that leaves them most alike."""
    n, best, most, closest, gap = t.meta[BUCKETS], -1, np.int64(0), -1, np.int64(_MANY)
    allowed = share * rows.meta[HELD]
    for bucket in range(n):
        mine, theirs = t.held[bucket], t.held[n + bucket]
        if mine + theirs == 0:
            continue
        left_over = abs((rows.held[0] - mine) - (rows.held[1] - theirs))
        if left_over <= allowed and mine + theirs > most:
            best, most = bucket, mine + theirs
        if left_over < gap:
            closest, gap = bucket, left_over
    return best if best >= 0 else closest


@kernel
def _rarest(t: Table) -> int:
    """The queue in which an arrival is least likely and whose opposite has rows; -1 if there is none."""
    n, best = t.meta[BUCKETS], -1
    for queue in range(2 * n):
        if t.held[(queue + n) % (2 * n)] > 0 and (best < 0 or t.seen[queue] < t.seen[best]):
            best = queue
    return best


@kernel
def _flush_rpj(t: Table, rows: Rows, out: Outcome, alpha: float, n_flush: int) -> bool:
    """Rows that the least likely arrivals would join with leave; arrivals so far count less from now on."""
    n, taken = t.meta[BUCKETS], 0
    rows.meta[CLOCK] += 1
    while taken < n_flush:
        rarest = _rarest(t)
        if rarest < 0:
            break
        victim = (rarest + n) % (2 * n)
        taken += _flush_queue(t, rows, out, victim // n, victim % n, n_flush - taken, rows.meta[CLOCK])
    for queue in range(2 * n):
        t.seen[queue] *= alpha
    return taken > 0


@kernel
def _flush_ehj(t: Table, rows: Rows, out: Outcome) -> bool:
    """The largest bucket of the larger relation leaves, else the smallest of the other; it is frozen."""
    n = t.meta[BUCKETS]
    larger = 0 if t.meta[RECEIVED] >= t.meta[RECEIVED_RIGHT] else 1
    best, most, smallest, least = -1, np.int64(0), -1, np.int64(_MANY)
    for bucket in range(n):
        held, other = t.held[larger * n + bucket], t.held[(1 - larger) * n + bucket]
        if held > most:
            best, most = bucket, held
        if 0 < other < least:
            smallest, least = bucket, other
    side, bucket = (larger, best) if best >= 0 else (1 - larger, smallest)
    if bucket < 0:
        return False
    rows.meta[CLOCK] += 1
    t.frozen[side * n + bucket] = rows.meta[CLOCK]
    return _flush_queue(t, rows, out, side, bucket, _MANY, rows.meta[CLOCK]) > 0


@kernel
def flush_hashed(t: Table, rows: Rows, out: Outcome, knobs: F64) -> bool:
    """Whether rows left, as the policy says; rows that only wait to be written go first once they are many."""
    policy = t.meta[POLICY]
    if t.meta[WAITING] >= t.meta[WAIT_LIMIT] and flush_waiting(t, rows, out):
        return True
    done = False
    if policy == OLDEST:
        done = _flush_oldest(t, rows, out)
    elif policy == DPHJ:
        done = _flush_dphj(t, rows, out)
    elif policy == XJOIN:
        done = _flush_xjoin(t, rows, out)
    elif policy == HMJ:
        done = _flush_bucket(t, rows, out, _balanced_pair(t, rows, knobs[BALANCE]))
    elif policy == HMJ_SMALLEST:  # of at least a block, else the largest one
        best = _smallest_bucket(t, t.meta[BLOCK])
        done = _flush_bucket(t, rows, out, best if best >= 0 else _largest_bucket(t))
    elif policy == MJOIN:
        done = _flush_bucket(t, rows, out, _largest_bucket(t))
    elif policy == MJOIN_SMALLEST:
        done = _flush_bucket(t, rows, out, _smallest_bucket(t, 1))
    elif policy == RPJ:
        done = _flush_rpj(t, rows, out, knobs[ALPHA], int(knobs[N_FLUSH]))
    elif policy == EHJ:
        done = _flush_ehj(t, rows, out)
    return done or flush_waiting(t, rows, out)
