"""Rows in memory of a multiway online join, and what its kernels tell: combinations that met and rows that must leave.

A row is a slot of one relation, as in the two-way joins; only the caller makes slots free again, once it has written
them. The clock is strict: one tick for each arrival that probes, one for each flush.
Reference: docs/algorithms/online.md, 2, 4.1 and 5.1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, U8
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.inline import inlined
from dovetail.joins.online.kernels.match import float_range, float_ranges, whole_ranges
from dovetail.joins.online.kernels.tree import Order

_MIN, _MAX = -(2**63), 2**63 - 1


class MultiRows(NamedTuple):
    """Per slot: keys, arrival tick, place of its columns, bytes, join bit, relation (-1 if it is not in memory).

    Keys are those of the relation's attributes and then those of bands besides equal columns. By relation and
    attribute, `near` is the key that rows with the same key are ordered by: one of a band, or the key itself. `free` is
    a stack of slots, `held` the number of rows of each relation in memory.
    """

    key: I64
    near: I64
    ats: I64
    ref: I64
    size: I32
    bit: U8
    relation: I32
    free: I32
    held: I64
    meta: I64


CLOCK, N_FREE, BYTES, ROWS, MAX_BYTES, MAX_ROWS, EMIT, RESULTS, COMPARED = range(9)
"""Places in `MultiRows.meta`: last tick, free slots, bytes and rows in memory, their limits, whether combinations are
written or only counted, how many there were, and rows that probes looked at since last asked."""
ROW_BYTES = 8 * 2 + 4 * 3 + 1
KEY_BYTES = 8


class MultiArrivals(NamedTuple):
    """A chunk of one relation: keys by attribute and row, bytes of each; `slot` is filled for each row."""

    key: I64
    size: I64
    slot: I32
    at: I64


RELATION, FIRST_REF, NEXT, STAGE = range(4)
"""Places in `MultiArrivals.at`: the relation, place of the first row's columns, the row that comes next, its stage."""
TO_ENTER, TO_PROBE, TO_STORE = range(3)


class MultiOutcome(NamedTuple):
    """Combinations of slots by relation; slots that leave, and for each flush its relation, mark, tick and length.

    The mark is the attribute that a block is sorted by, or a bucket; a generation stands beside it.
    """

    slots: I32
    gone: I32
    heads: I64
    n: I64


COMBOS, GONE, HEADS = range(3)
H_RELATION, H_MARK, H_TICK, H_ROWS, H_GROUP = range(5)


class Stack(NamedTuple):
    """Where the search for combinations of one arriving row stands: slot and range of keys by depth, and depth."""

    slot: I32
    range: I64
    meta: I64


LOW, HIGH, NEAR_LOW, NEAR_HIGH = range(4)
DEPTH, FRESH, PENDING, FOUND = range(4)
"""Places in `Stack.meta`: depth, whether it was just entered, whether a combination waits for room, results so far."""


def empty_multi_rows(
    slots: int, relations: int, max_rows: int, max_bytes: int, near: I64, keys: int, emit: bool = True
) -> MultiRows:
    """No rows, with room for so many with so many keys."""
    meta = np.zeros(9, np.int64)
    meta[[N_FREE, MAX_BYTES, MAX_ROWS, EMIT]] = slots, max_bytes, max_rows, emit
    free = np.arange(slots - 1, -1, -1, dtype=np.int32)
    ats, ref, size = np.zeros(slots, np.int64), np.zeros(slots, np.int64), np.zeros(slots, np.int32)
    bit, relation = np.zeros(slots, np.uint8), np.full(slots, -1, np.int32)
    key, held = np.zeros((keys, slots), np.int64), np.zeros(relations, np.int64)
    return MultiRows(key, near, ats, ref, size, bit, relation, free, held, meta)


def no_bands(relations: int, attributes: int) -> I64:
    """What `MultiRows.near` is where rows are ordered by their keys alone."""
    return np.tile(np.arange(attributes, dtype=np.int64), (relations, 1))


def empty_multi_outcome(combos: int, relations: int, slots: int, flushes: int) -> MultiOutcome:
    """Room for so many combinations and flushes, and for all slots to leave."""
    found = np.empty((combos, relations), np.int32)
    return MultiOutcome(found, np.empty(slots, np.int32), np.zeros((flushes, 5), np.int64), np.zeros(3, np.int64))


def empty_stack(relations: int) -> Stack:
    """A search that has not begun."""
    return Stack(np.full(relations, -1, np.int32), np.zeros((relations, 4), np.int64), np.zeros(4, np.int64))


def multi_arrivals(relation: int, first_ref: int, key: I64, size: I64, slot: I32) -> MultiArrivals:
    """A chunk of which nothing has arrived yet."""
    return MultiArrivals(key, size, slot, np.array([relation, first_ref, 0, TO_ENTER], np.int64))


def release_slots(rows: MultiRows, slots: I32) -> None:
    """These slots have left for good."""
    n = int(rows.meta[N_FREE])
    rows.free[n : n + len(slots)] = slots
    rows.meta[N_FREE] = n + len(slots)


def claim_slots(rows: MultiRows, n: int) -> I32:
    """Slots that were free and are not any more."""
    left = int(rows.meta[N_FREE]) - n
    rows.meta[N_FREE] = left
    return rows.free[left : left + n].copy()


@kernel
def reach(key: int, down: int, up: int) -> tuple[int, int]:
    """First and last key from key + down to key + up, cut off where int64 ends; none where the first is the larger."""
    if (down > 0 and key > _MAX - down) or (up < 0 and key < _MIN - up):
        return _MAX, _MIN
    low = _MIN if down < 0 and key < _MIN - down else key + down
    high = _MAX if up > 0 and key > _MAX - up else key + up
    return low, high


WHOLE, FORTH, BACK = range(3)
"""How the keys of an edge's ends are compared: as whole numbers, or as doubles from the first end or the second."""


@kernel
def key_range(key: int, down: int, up: int, measure: int) -> tuple[int, int]:
    """First and last key of the other end that match a key; of doubles, `down` and `up` are the bits of the band's
    bounds."""
    if measure == WHOLE:
        return reach(key, down, up)
    lo, hi = np.int64(down).view(np.float64), np.int64(up).view(np.float64)
    return float_range(key, lo, hi, measure == FORTH)


@kernel
def range_of(key: int, around: I64) -> tuple[int, int]:
    """As `key_range`, with down, up and measure in an array."""
    return key_range(key, around[0], around[1], around[2])


def key_ranges(keys: I64, down: int, up: int, measure: int) -> tuple[I64, I64]:
    """As `key_range`, for many keys."""
    if measure == WHOLE:
        return whole_ranges(keys, down, up)
    lo, hi = np.array([down, up], np.int64).view(np.float64).tolist()
    return float_ranges(keys, lo, hi, measure == FORTH)


@inlined
def order_of(rows: MultiRows, r: int, a: int) -> Order:
    """What the rows of a relation are ordered by in the index of an attribute."""
    return Order(rows.key[a], rows.key[rows.near[r, a]], rows.ats)


@kernel
def enter_row(rows: MultiRows, new: MultiArrivals, at: int) -> int:
    """The slot of a row that arrives, with its tick: taken before it probes."""
    m = rows.meta
    m[N_FREE] -= 1
    slot: int = rows.free[m[N_FREE]]
    m[CLOCK] += 1
    rows.ats[slot], rows.ref[slot] = m[CLOCK], new.at[FIRST_REF] + at
    rows.size[slot], rows.bit[slot] = new.size[at], 0
    for a in range(len(new.key)):
        rows.key[a, slot] = new.key[a, at]
    new.slot[at] = slot
    return slot


@kernel
def needs_room(rows: MultiRows, size: int) -> bool:
    """Whether a row of this size needs room that others must make."""
    m = rows.meta
    return m[ROWS] > 0 and (m[ROWS] >= m[MAX_ROWS] or m[BYTES] + size > m[MAX_BYTES])  # type: ignore[no-any-return]  # Numba's bool


@kernel
def keep_row(rows: MultiRows, slot: int, relation: int) -> None:
    """The row counts as in memory."""
    rows.relation[slot] = relation
    rows.held[relation] += 1
    rows.meta[ROWS] += 1
    rows.meta[BYTES] += rows.size[slot]


@kernel
def let_row_go(rows: MultiRows, out: MultiOutcome, slot: int) -> None:
    """The row leaves memory, as the next one of the flush that `end_flush` ends."""
    rows.held[rows.relation[slot]] -= 1
    rows.relation[slot] = -1
    rows.meta[ROWS] -= 1
    rows.meta[BYTES] -= rows.size[slot]
    out.gone[out.n[GONE]] = slot
    out.n[GONE] += 1


@kernel
def end_flush(out: MultiOutcome, first: int, relation: int, mark: int, tick: int, group: int) -> None:
    """What left since `first` is one flush; nothing is listed if that is nothing."""
    if out.n[GONE] > first:
        head = out.n[HEADS]
        out.heads[head, H_RELATION], out.heads[head, H_MARK], out.heads[head, H_TICK] = relation, mark, tick
        out.heads[head, H_ROWS], out.heads[head, H_GROUP] = out.n[GONE] - first, group
        out.n[HEADS] += 1


@kernel
def largest_relation(rows: MultiRows) -> int:
    """The relation with the most rows in memory, the first of equal ones."""
    best = 0
    for r in range(1, len(rows.held)):
        if rows.held[r] > rows.held[best]:
            best = r
    return best
