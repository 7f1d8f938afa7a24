"""Rows in memory by hash: chains of equal hash for probing, a queue for each bucket of each input, and what is flushed.

Equal codes share a bucket of all inputs. A bucket's queue is in order of arrival. Rows of a frozen bucket that only
wait to be written stand in a second queue, where no probe finds them.
Reference: docs/algorithms/online.md, 2.1 to 2.8.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import F64, I32, I64, inlined
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.hashing import mixed
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    FLUSHED,
    GONE,
    HELD,
    NEW,
    Outcome,
    Rows,
    close_flush,
    hold,
    largest_side,
    let_go,
)

NONE = -1
_S32 = np.uint64(32)


class Table(NamedTuple):
    """Chains by hash of (side, code); per queue, side * buckets + bucket, its ends and rows; then the same for queues
    of rows that wait to be written, at + sides * buckets. `frozen` is the tick at which a queue was frozen, or 0.

    `seen` counts arrivals per queue, aged; `met` and `compared` count matches and comparable rows a bucket.
    """

    cell: I32
    next_cell: I32
    prev_cell: I32
    next_row: I32
    prev_row: I32
    head: I32
    tail: I32
    held: I64
    frozen: I64
    seen: F64
    met: F64
    compared: F64
    meta: I64


BUCKETS, MASK, POLICY, BLOCK, WAITING, WAIT_LIMIT, ONE_SIDE, SIDES, RECEIVED, RECEIVED_RIGHT = range(10)
"""Places in `Table.meta`: buckets a side, cells a side less one, flush policy, rows a block, rows that wait to be
written and how many may, the side of unique keys (-1: none), sides, rows received by each of two sides."""


def slot_bytes(sides: int) -> int:
    """Bytes of each slot: links of a chain and a queue, and at most two cells of each side."""
    return 4 * 4 + sides * 2 * 4


def bucket_bytes(sides: int) -> int:
    """Bytes of each bucket: its queues and what is counted of them, and two flushes listed of each side."""
    return sides * (2 * (4 + 4 + 8) + 8 + 8) + 8 + 8 + 2 * sides * 40


def cells_for(slots: int) -> int:
    """Cells of each side's hash table: a power of two, at most two a slot."""
    return 1 << max(1, slots - 1).bit_length()


def empty_table(
    slots: int, buckets: int, policy: int, block_rows: int, wait_limit: int, one_side: int = -1, sides: int = 2
) -> Table:
    """No rows; see `Table`."""
    cells, queues = cells_for(slots), sides * buckets
    a, b, c, d = (np.full(slots, NONE, np.int32) for _ in range(4))
    head, tail = np.full(2 * queues, NONE, np.int32), np.full(2 * queues, NONE, np.int32)
    held, frozen = np.zeros(2 * queues, np.int64), np.zeros(queues, np.int64)
    met, compared = np.zeros(buckets), np.zeros(buckets)
    meta = np.array([buckets, cells - 1, policy, block_rows, 0, wait_limit, one_side, sides, 0, 0], np.int64)
    cell = np.full(sides * cells, NONE, np.int32)
    return Table(cell, a, b, c, d, head, tail, held, frozen, np.zeros(queues), met, compared, meta)


@inlined
def bucket_of(code: int, buckets: int) -> int:
    """The bucket of a code; the high half of the hash, so that the low half still spreads over cells."""
    return int(np.int64(((mixed(np.uint64(code)) >> _S32) * np.uint64(buckets)) >> _S32))


@inlined
def cell_of(t: Table, side: int, code: int) -> int:
    """Where the chain of a code starts."""
    return int(side * (t.meta[MASK] + 1) + (np.int64(mixed(np.uint64(code))) & t.meta[MASK]))


@inlined
def _append(t: Table, queue: int, slot: int) -> None:
    tail = t.tail[queue]
    t.prev_row[slot], t.next_row[slot] = tail, NONE
    if tail == NONE:
        t.head[queue] = slot
    else:
        t.next_row[tail] = slot
    t.tail[queue] = slot
    t.held[queue] += 1


@inlined
def _unlink(t: Table, queue: int, slot: int) -> None:
    before, after = t.prev_row[slot], t.next_row[slot]
    if before == NONE:
        t.head[queue] = after
    else:
        t.next_row[before] = after
    if after == NONE:
        t.tail[queue] = before
    else:
        t.prev_row[after] = before
    t.held[queue] -= 1


@inlined
def put(t: Table, rows: Rows, side: int, slot: int) -> None:
    """The row can be found from now on."""
    code = rows.keys[0, slot]
    cell = cell_of(t, side, code)
    first = t.cell[cell]
    t.next_cell[slot], t.prev_cell[slot] = first, NONE
    if first != NONE:
        t.prev_cell[first] = slot
    t.cell[cell] = slot
    _append(t, side * t.meta[BUCKETS] + bucket_of(code, t.meta[BUCKETS]), slot)
    hold(rows, slot, side)


@inlined
def put_waiting(t: Table, rows: Rows, side: int, slot: int) -> None:
    """The row only waits to be written."""
    bucket = bucket_of(rows.keys[0, slot], t.meta[BUCKETS])
    _append(t, (t.meta[SIDES] + side) * t.meta[BUCKETS] + bucket, slot)
    t.meta[WAITING] += 1
    hold(rows, slot, side)


@kernel
def take(t: Table, rows: Rows, out: Outcome, side: int, slot: int) -> None:
    """The row leaves and cannot be found any more."""
    code = rows.keys[0, slot]
    before, after = t.prev_cell[slot], t.next_cell[slot]
    if before == NONE:
        t.cell[cell_of(t, side, code)] = after
    else:
        t.next_cell[before] = after
    if after != NONE:
        t.prev_cell[after] = before
    _unlink(t, side * t.meta[BUCKETS] + bucket_of(code, t.meta[BUCKETS]), slot)
    let_go(rows, out, slot, side)


@kernel
def take_oldest(t: Table, rows: Rows, out: Outcome, side: int, bucket: int, n: int) -> int:
    """How many rows of a bucket left, the oldest ones, at most n."""
    queue = side * t.meta[BUCKETS] + bucket
    n = min(n, int(t.held[queue]))
    for _ in range(n):
        take(t, rows, out, side, t.head[queue])
    return n


@kernel
def take_waiting(t: Table, rows: Rows, out: Outcome, side: int, bucket: int) -> int:
    """How many rows that waited to be written left: all of the bucket."""
    queue = (t.meta[SIDES] + side) * t.meta[BUCKETS] + bucket
    n = int(t.held[queue])
    for _ in range(n):
        slot = t.head[queue]
        _unlink(t, queue, slot)
        let_go(rows, out, slot, side)
    t.meta[WAITING] -= n
    return n


@kernel
def fullest_waiting(t: Table) -> int:
    """The queue with the most rows that wait to be written, counted from the first such queue; -1 if none waits."""
    best, most, n = -1, np.int64(0), t.meta[SIDES] * t.meta[BUCKETS]
    for queue in range(n):
        held = t.held[n + queue]
        if held > most:
            best, most = queue, held
    return best


@kernel
def queue_slots(t: Table, queue: int, out: I32) -> None:
    """Fill `out`, which has the length of the queue, with its slots, oldest first."""
    slot = t.head[queue]
    for at in range(len(out)):
        out[at] = slot
        slot = t.next_row[slot]


NEVER, OLDEST, DPHJ, XJOIN, HMJ, HMJ_SMALLEST, RPJ, EHJ, MJOIN, MJOIN_SMALLEST = range(10)
"""Flush policies, in `Table.meta[POLICY]`."""
_BALANCE = 0.05  # of memory, by which HMJ's sides may differ
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
def _balanced_pair(t: Table, rows: Rows) -> int:
    """The largest pair of buckets that leaves both sides alike, else the pair that leaves them most alike."""
    n, best, most, closest, gap = t.meta[BUCKETS], -1, np.int64(0), -1, np.int64(_MANY)
    allowed = _BALANCE * rows.meta[HELD]
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
def _flush_rpj(t: Table, rows: Rows, out: Outcome, ageing: float) -> bool:
    """Rows that the least likely arrivals would join with leave; arrivals so far count less from now on."""
    n, taken = t.meta[BUCKETS], 0
    rows.meta[CLOCK] += 1
    while taken < t.meta[BLOCK]:
        rarest = _rarest(t)
        if rarest < 0:
            break
        victim = (rarest + n) % (2 * n)
        taken += _flush_queue(t, rows, out, victim // n, victim % n, t.meta[BLOCK] - taken, rows.meta[CLOCK])
    for queue in range(2 * n):
        t.seen[queue] *= ageing
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
def flush_hashed(t: Table, rows: Rows, out: Outcome, ageing: float) -> bool:
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
        done = _flush_bucket(t, rows, out, _balanced_pair(t, rows))
    elif policy == HMJ_SMALLEST:  # of at least a block, else the largest one
        best = _smallest_bucket(t, t.meta[BLOCK])
        done = _flush_bucket(t, rows, out, best if best >= 0 else _largest_bucket(t))
    elif policy == MJOIN:
        done = _flush_bucket(t, rows, out, _largest_bucket(t))
    elif policy == MJOIN_SMALLEST:
        done = _flush_bucket(t, rows, out, _smallest_bucket(t, 1))
    elif policy == RPJ:
        done = _flush_rpj(t, rows, out, ageing)
    elif policy == EHJ:
        done = _flush_ehj(t, rows, out)
    return done or flush_waiting(t, rows, out)
