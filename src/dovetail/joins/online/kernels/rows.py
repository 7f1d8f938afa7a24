"""Rows in memory of an online join, and what a kernel tells of them: combinations that met and rows that must leave.

A row is a slot of one input: keys, arrival tick, where its columns are, bytes. Kernels take slots from the free ones
and list those that leave; only the caller, after writing them to disk, makes slots free again, so every slot named in
an outcome stays readable until then. The clock is strict: one tick for each arrival that probes, one for each flush.
Reference: docs/algorithms/online.md, 2, 3.1, 4.1 and 5.1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, U8, Bool, inlined, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup


class Rows(NamedTuple):
    """Per slot: keys by number, arrival tick, place of its columns, bytes, join bit.

    Keys are those of the input's attributes, then those of bands besides equal columns. Of a join of two inputs the
    first key must be equal, unless there is but a band, and the last one orders. `free` is a stack of slots, `held` has
    the rows of each input. Each array costs time in every call between kernels: there are no more than all of them use.
    """

    keys: I64
    ats: I64
    ref: I64
    size: I32
    bit: U8
    free: I32
    held: I64
    meta: I64


CLOCK, N_FREE, BYTES, HELD, MAX_BYTES, MAX_ROWS, CODED, EMIT, RESULTS, COMPARED = range(10)
"""Places in `Rows.meta`: last tick, free slots, bytes and rows in memory, their limits, whether rows have a code
besides the key, whether combinations are written or only counted, how many there were, and rows that probes looked at
since last asked."""
MATCHES, SPACE, PROBES = range(3)
"""Places of what is counted of probes: matches, rows that could have matched, and probes."""
ENOUGH_PROBES = 100
"""Probes from which their counts decide the order of the next ones."""
ROW_BYTES = 8 * 2 + 4 * 2 + 1
KEY_BYTES = 8


class Arrivals(NamedTuple):
    """A chunk of one input: keys by number and row, and bytes; `slot` is filled for each row.

    The columns of row r are at `at[FIRST_REF] + r`.
    """

    keys: I64
    size: I64
    slot: I32
    at: I64


SIDE, FIRST_REF, NEXT, STAGE, SKIP = range(5)
"""Places in `Arrivals.at`: the input, place of the first row's columns, the row that comes next, its stage, and how
many of its pairs were written."""
TO_ENTER, TO_PROBE, TO_STORE = range(3)


class Outcome(NamedTuple):
    """Combinations of slots by input; slots that leave, and for each flush its input, bucket, kind, tick and length.

    The bucket of a flush of MINER is the attribute that it was chosen by.
    """

    slots: I32
    gone: I32
    heads: I64
    n: I64


FOUND, GONE, HEADS = range(3)
"""Places in `Outcome.n`: combinations, slots that leave, flushes."""
H_SIDE, H_BUCKET, H_KIND, H_TICK, H_ROWS = range(5)
FLUSHED, NEW, DROPPED = range(3)
"""Kinds of rows that leave: of a flush, of a frozen bucket after its flush, and rows that are needed no more."""

DONE, FULL, NO_SLOT, INDEX_FULL, STUCK, LOAD_FULL = range(6)
"""Why a kernel returns: all rows are in; combinations must go out; slots must be freed; the index needs room; nothing
can leave though memory is full; all that is in memory must be joined before anything leaves."""


def empty_rows(slots: int, max_rows: int, max_bytes: int, sides: int = 2, keys: int = 1, emit: bool = True) -> Rows:
    """No rows; at most `max_rows` with at most `max_bytes`, and `slots` at a time with those that leave."""
    meta = np.zeros(10, np.int64)
    meta[[N_FREE, MAX_BYTES, MAX_ROWS, CODED, EMIT]] = slots, max_bytes, max_rows, keys > 1, emit
    key, held = np.zeros((keys, slots), np.int64), np.zeros(sides, np.int64)
    ats, ref, size = np.zeros(slots, np.int64), np.zeros(slots, np.int64), np.zeros(slots, np.int32)
    bit, free = np.zeros(slots, np.uint8), np.arange(slots - 1, -1, -1, dtype=np.int32)
    return Rows(key, ats, ref, size, bit, free, held, meta)


def empty_outcome(combinations: int, slots: int, flushes: int, sides: int = 2) -> Outcome:
    """An empty outcome with room for these numbers of combinations and flushes, and for all slots to leave."""
    found, gone = np.empty((combinations, sides), np.int32), np.empty(slots, np.int32)
    return Outcome(found, gone, np.zeros((flushes, 5), np.int64), np.zeros(3, np.int64))


def flush_list_bytes(flushes: int) -> int:
    """Bytes of the list of flushes."""
    return 40 * flushes + 24


def arrivals(side: int, first_ref: int, keys: I64, size: I64, slot: I32) -> Arrivals:
    """A chunk of which nothing has arrived yet."""
    return Arrivals(int64s(keys), int64s(size), slot, np.array([side, first_ref, 0, TO_ENTER, 0], np.int64))


def release(rows: Rows, slots: I32) -> None:
    """These slots have left for good."""
    n = int(rows.meta[N_FREE])
    rows.free[n : n + len(slots)] = slots
    rows.meta[N_FREE] = n + len(slots)


def taken_gone(out: Outcome) -> tuple[I64, I32]:
    """The flushes that were listed and the slots that left in them; the lists are empty afterwards."""
    heads, gone = out.heads[: out.n[HEADS]].copy(), out.gone[: out.n[GONE]].copy()
    out.n[GONE] = out.n[HEADS] = 0
    return heads, gone


def lacks_room(rows: Rows, n: int, width: int) -> bool:
    """Whether n rows of this width do not fit beside those in memory."""
    m = rows.meta
    full = m[HELD] + n > m[MAX_ROWS] or m[BYTES] + n * width > m[MAX_BYTES] or n > m[N_FREE]
    return bool(m[HELD] and full)


def fill(rows: Rows, slots: I32, first_ref: int, keys: I64, width: int) -> None:
    """Rows have these slots, each with a tick of its own."""
    n = len(slots)
    rows.keys[: len(keys), slots] = keys
    rows.ref[slots], rows.size[slots], rows.bit[slots] = first_ref + np.arange(n), width, 0
    rows.ats[slots] = rows.meta[CLOCK] + 1 + np.arange(n)
    rows.meta[CLOCK] += n


def claim(rows: Rows, n: int) -> I32:
    """Slots that were free and are not any more."""
    left = int(rows.meta[N_FREE]) - n
    rows.meta[N_FREE] = left
    return rows.free[left : left + n].copy()


@inlined
def enter(rows: Rows, new: Arrivals, at: int) -> int:
    """The slot of a row that arrives, with its tick: taken before it probes."""
    m = rows.meta
    m[N_FREE] -= 1
    slot: int = rows.free[m[N_FREE]]
    m[CLOCK] += 1
    for a in range(len(new.keys)):
        rows.keys[a, slot] = new.keys[a, at]
    rows.ats[slot] = m[CLOCK]
    rows.ref[slot] = new.at[FIRST_REF] + at
    rows.size[slot] = new.size[at]
    rows.bit[slot] = 0
    new.slot[at] = slot
    return slot


@inlined
def is_full(rows: Rows, size: int) -> bool:
    """Whether a row of this size needs room that others must make."""
    m = rows.meta
    return m[HELD] > 0 and (m[HELD] >= m[MAX_ROWS] or m[BYTES] + size > m[MAX_BYTES])  # type: ignore[no-any-return]  # Numba's bool


@inlined
def hold(rows: Rows, slot: int, side: int) -> None:
    """The row counts as in memory."""
    rows.meta[BYTES] += rows.size[slot]
    rows.meta[HELD] += 1
    rows.held[side] += 1


@kernel
def hold_all(rows: Rows, slots: I64, side: int) -> None:
    """These rows count as in memory."""
    for at in range(len(slots)):
        hold(rows, slots[at], side)


@inlined
def let_go(rows: Rows, out: Outcome, slot: int, side: int) -> None:
    """The row leaves memory, as the next one of the flush that `close_flush` ends."""
    rows.meta[BYTES] -= rows.size[slot]
    rows.meta[HELD] -= 1
    rows.held[side] -= 1
    out.gone[out.n[GONE]] = slot
    out.n[GONE] += 1


@kernel
def close_flush(out: Outcome, first: int, side: int, bucket: int, kind: int, tick: int) -> None:
    """List the rows that left since `first` as one flush; nothing if there are none."""
    if out.n[GONE] > first:
        head = out.n[HEADS]
        out.heads[head, H_SIDE], out.heads[head, H_BUCKET], out.heads[head, H_KIND] = side, bucket, kind
        out.heads[head, H_TICK], out.heads[head, H_ROWS] = tick, out.n[GONE] - first
        out.n[HEADS] += 1


@inlined
def can_list(out: Outcome, flushes: int) -> bool:
    """Whether the list of flushes has room for this many more."""
    return bool(out.n[HEADS] + flushes <= len(out.heads))


@kernel
def largest_side(rows: Rows) -> int:
    """The input with the most rows in memory, the first of equal ones."""
    best = 0
    for side in range(1, len(rows.held)):
        if rows.held[side] > rows.held[best]:
            best = side
    return best


@inlined
def meet(rows: Rows, out: Outcome, side: int, mine: int, other: int) -> None:
    """Write one pair of a join of two inputs; there must be room."""
    at = out.n[FOUND]
    out.slots[at, side] = mine
    out.slots[at, 1 - side] = other
    out.n[FOUND] = at + 1


@kernel
def mark_bits(bits: U8, places: I64) -> Bool:
    """Set the bits at these places; for each, whether it was not set before."""
    fresh = np.empty(len(places), np.bool_)
    for at in range(len(places)):
        byte, bit = places[at] >> 3, np.uint8(1 << (places[at] & 7))
        fresh[at] = (bits[byte] & bit) == 0
        bits[byte] |= bit
    return fresh


@register_warmup
def _warm() -> None:
    """Compile the kernel."""
    mark_bits(np.zeros(1, np.uint8), np.zeros(1, np.int64))
