"""Rows in memory of an online join, and what a kernel tells of them: pairs that met and rows that must leave.

A row is a slot: key, arrival tick, where its columns are, bytes. Kernels take slots from the free ones and list those
that leave; only the caller, who has written them to disk, makes slots free again, so every slot named in an outcome
stays readable until then. The clock is strict: one tick for each arrival that probes, one for each flush.
Reference: docs/algorithms/online.md, 2 and 3.1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, U8
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.inline import inlined


class Rows(NamedTuple):
    """Per slot: key to order by, code that must be equal, arrival tick, place of its columns, bytes, join bit.

    `code` may be the very array `key`. `free` is a stack of slots.
    """

    key: I64
    code: I64
    ats: I64
    ref: I64
    size: I32
    bit: U8
    free: I32
    meta: I64


CLOCK, N_FREE, BYTES, LEFT, RIGHT, MAX_BYTES, MAX_ROWS, CODED, EMIT, MATCHES, COMPARED = range(11)
"""Places in `Rows.meta`: last tick, free slots, bytes and rows of each side in memory, their limits, whether codes are
compared, whether pairs are written or only counted, pairs found so far, rows that probes looked at since last asked."""
ROW_BYTES = 8 * 3 + 4 + 1 + 4
CODE_BYTES = 8


class Arrivals(NamedTuple):
    """A chunk of one side: key, code, range of matching keys on the other side, bytes; `slot` is filled for each row.

    The columns of row r are at `first_ref + r`, which is `at[FIRST_REF]`.
    """

    key: I64
    code: I64
    low: I64
    high: I64
    size: I64
    slot: I32
    at: I64


SIDE, FIRST_REF, NEXT, STAGE, SKIP = range(5)
"""Places in `Arrivals.at`: the side, place of the first row's columns, the row that comes next, whether it has probed
already, and how many of its pairs were written."""
TO_PROBE, TO_STORE = range(2)


class Outcome(NamedTuple):
    """Pairs of slots, left and right; slots that leave, and for each flush its side, bucket, kind, tick and length."""

    left: I32
    right: I32
    gone: I32
    heads: I64
    n: I64


PAIRS, GONE, HEADS = range(3)
"""Places in `Outcome.n`: pairs, slots that leave, flushes."""
H_SIDE, H_BUCKET, H_KIND, H_TICK, H_ROWS = range(5)
FLUSHED, NEW, DROPPED = range(3)
"""Kinds of rows that leave: of a flush, of a frozen bucket after its flush, and rows that nobody needs any more."""

DONE, PAIRS_FULL, NO_SLOT, INDEX_FULL, STUCK = range(5)
"""Why a kernel returns: all rows are in; pairs must go out; slots must be freed; the index needs room; nothing can
leave though memory is full."""


def empty_rows(slots: int, max_rows: int, max_bytes: int, coded: bool, emit: bool = True) -> Rows:
    """No rows; at most `max_rows` with at most `max_bytes`, and `slots` at a time with those that leave."""
    key = np.zeros(slots, np.int64)
    code = np.zeros(slots, np.int64) if coded else key
    meta = np.zeros(11, np.int64)
    meta[[N_FREE, MAX_BYTES, MAX_ROWS, CODED, EMIT]] = slots, max_bytes, max_rows, coded, emit
    ats, ref = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    free = np.arange(slots - 1, -1, -1, dtype=np.int32)
    return Rows(key, code, ats, ref, np.zeros(slots, np.int32), np.zeros(slots, np.uint8), free, meta)


def empty_outcome(pairs: int, slots: int, flushes: int) -> Outcome:
    """An outcome with room for so many pairs and flushes, and for all slots to leave."""
    left, right, gone = np.empty(pairs, np.int32), np.empty(pairs, np.int32), np.empty(slots, np.int32)
    return Outcome(left, right, gone, np.zeros((flushes, 5), np.int64), np.zeros(3, np.int64))


def outcome_bytes(pairs: int, slots: int, flushes: int) -> int:
    """Bytes of an outcome's arrays."""
    return 8 * pairs + 4 * slots + 40 * flushes + 24


def release(rows: Rows, slots: I32) -> None:
    """These slots have left for good."""
    n = int(rows.meta[N_FREE])
    rows.free[n : n + len(slots)] = slots
    rows.meta[N_FREE] = n + len(slots)


def claim(rows: Rows, n: int) -> I32:
    """Slots that were free and are not any more."""
    left = int(rows.meta[N_FREE]) - n
    rows.meta[N_FREE] = left
    return rows.free[left : left + n].copy()


@kernel
def enter(rows: Rows, new: Arrivals, at: int) -> int:
    """The slot of a row that arrives, with its tick: taken before it probes."""
    m = rows.meta
    m[N_FREE] -= 1
    slot: int = rows.free[m[N_FREE]]
    m[CLOCK] += 1
    rows.key[slot] = new.key[at]
    rows.code[slot] = new.code[at]
    rows.ats[slot] = m[CLOCK]
    rows.ref[slot] = new.at[FIRST_REF] + at
    rows.size[slot] = new.size[at]
    rows.bit[slot] = 0
    new.slot[at] = slot
    return slot


@kernel
def is_full(rows: Rows, size: int) -> bool:
    """Whether a row of this size needs room that others must make."""
    m = rows.meta
    held = m[LEFT] + m[RIGHT]
    return held > 0 and (held >= m[MAX_ROWS] or m[BYTES] + size > m[MAX_BYTES])  # type: ignore[no-any-return]  # Numba's bool


@kernel
def hold(rows: Rows, slot: int, side: int) -> None:
    """The row counts as in memory."""
    rows.meta[BYTES] += rows.size[slot]
    rows.meta[LEFT + side] += 1


@kernel
def hold_all(rows: Rows, slots: I64, side: int) -> None:
    """These rows count as in memory."""
    for at in range(len(slots)):
        hold(rows, slots[at], side)


@kernel
def let_go(rows: Rows, out: Outcome, slot: int, side: int) -> None:
    """The row leaves memory, as the next one of the flush that `close_flush` ends."""
    rows.meta[BYTES] -= rows.size[slot]
    rows.meta[LEFT + side] -= 1
    out.gone[out.n[GONE]] = slot
    out.n[GONE] += 1


@kernel
def close_flush(out: Outcome, first: int, side: int, bucket: int, kind: int, tick: int) -> None:
    """What left since `first` is one flush; nothing is listed if that is nothing."""
    if out.n[GONE] > first:
        head = out.n[HEADS]
        out.heads[head, H_SIDE], out.heads[head, H_BUCKET], out.heads[head, H_KIND] = side, bucket, kind
        out.heads[head, H_TICK], out.heads[head, H_ROWS] = tick, out.n[GONE] - first
        out.n[HEADS] += 1


@kernel
def can_list(out: Outcome, flushes: int) -> bool:
    """Whether so many more flushes can be listed."""
    return bool(out.n[HEADS] + flushes <= len(out.heads))


@inlined
def meet(rows: Rows, out: Outcome, side: int, mine: int, other: int) -> None:
    """Write one pair; there must be room."""
    at = out.n[PAIRS]
    out.left[at] = mine if side == 0 else other
    out.right[at] = other if side == 0 else mine
    out.n[PAIRS] = at + 1
