"""The arrays of the hash multimap and the kernels on them.

A directory of cells, one a distinct key, found by linear probing; each cell counts its key's entries and names the
oldest. Entries live in slots and form one ring a key, so that the newest is the one before the oldest. Removing a key
shifts its cluster back instead of leaving a tombstone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, Bool
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.hashing import place


class Table(NamedTuple):
    """`cells` is (cells, 2): key, and count << 32 | slot of the oldest entry; count 0 marks an empty cell."""

    cells: I64
    keys: I64
    values: I64
    after: I32
    before: I32
    meta: I64


FREE, USED, LIVE, KEYS = 0, 1, 2, 3
"""Places in `meta`: first free slot, slots ever used, live entries, distinct keys."""
HEAD_BITS = 32
HEAD_MASK = (1 << 32) - 1
FREE_SLOT = -2
ENTRY_BYTES = 8 + 8 + 4 + 4
CELL_BYTES = 16


def load_limit(cells: int) -> int:
    """How many distinct keys a directory of so many cells may hold; 5/8 keeps a miss near four cells."""
    return cells * 5 // 8


def empty_table(capacity: int) -> Table:
    """A table with room for `capacity` entries of distinct keys."""
    cells = 8
    while load_limit(cells) < capacity:
        cells *= 2
    return Table(
        np.zeros((cells, 2), np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.array([-1, 0, 0, 0], np.int64),
    )


@kernel
def _cell_of(cells: I64, key: int) -> int:
    """The cell of the key, or the empty cell where it belongs."""
    mask = len(cells) - 1
    at = place(key, mask)
    while cells[at, 1] != 0 and cells[at, 0] != key:
        at = (at + 1) & mask
    return at


@kernel
def _rehash(cells: I64, out: I64) -> None:
    for at in range(len(cells)):
        if cells[at, 1] != 0:
            to = _cell_of(out, cells[at, 0])
            out[to, 0] = cells[at, 0]
            out[to, 1] = cells[at, 1]


def rehashed(cells: I64, n_cells: int) -> I64:
    """The same directory in `n_cells` cells, a power of two."""
    out = np.zeros((n_cells, 2), np.int64)
    _rehash(cells, out)
    return out


@kernel
def _new_slot(t: Table) -> int:
    slot: int = t.meta[FREE]
    if slot >= 0:
        t.meta[FREE] = t.after[slot]
    else:
        slot = t.meta[USED]
        t.meta[USED] += 1
    t.meta[LIVE] += 1
    return slot


@kernel
def _free_slot(t: Table, slot: int) -> None:
    t.after[slot] = t.meta[FREE]
    t.before[slot] = FREE_SLOT
    t.meta[FREE] = slot
    t.meta[LIVE] -= 1


@kernel
def insert(t: Table, keys: I64, values: I64, slots: I64, start: int) -> int:
    """Rows done: all, or fewer when the directory must grow first. Room for the entries is the caller's duty."""
    limit = len(t.cells) * 5 // 8
    for row in range(start, len(keys)):
        at = _cell_of(t.cells, keys[row])
        chain = t.cells[at, 1]
        if chain == 0 and t.meta[KEYS] >= limit:
            return row
        slot = _new_slot(t)
        t.keys[slot] = keys[row]
        t.values[slot] = values[row]
        slots[row] = slot
        if chain == 0:
            t.meta[KEYS] += 1
            t.cells[at, 0] = keys[row]
            t.cells[at, 1] = (1 << HEAD_BITS) | slot
            t.after[slot] = slot
            t.before[slot] = slot
        else:
            head = chain & HEAD_MASK
            tail = t.before[head]
            t.after[tail] = slot
            t.before[slot] = tail
            t.after[slot] = head
            t.before[head] = slot
            t.cells[at, 1] = chain + (1 << HEAD_BITS)
    return len(keys)


@kernel
def _find_chains(cells: I64, keys: I64, out: I64) -> None:
    for row in range(len(keys)):
        out[row] = cells[_cell_of(cells, keys[row]), 1]


def found_chains(t: Table, keys: I64) -> I64:
    """For each key count << 32 | oldest slot, or 0."""
    out = np.empty(len(keys), np.int64)
    _find_chains(t.cells, keys, out)
    return out


@kernel
def fill_pairs(t: Table, chains: I64, cursor: I64, rows: I64, slots: I64) -> None:
    """Fill both outputs with the next pairs; `cursor` is row, entries done in that row, slot to go on with."""
    row, done, slot = cursor[0], cursor[1], cursor[2]
    at = 0
    while at < len(rows):
        count = chains[row] >> HEAD_BITS
        if done == 0:
            slot = chains[row] & HEAD_MASK
        while done < count and at < len(rows):
            rows[at] = row
            slots[at] = slot
            at += 1
            done += 1
            if done < count:
                slot = np.int64(t.after[slot])
        if done == count:
            row += 1
            done = 0
    cursor[0], cursor[1], cursor[2] = row, done, slot


@kernel
def _drop_cell(cells: I64, hole: int) -> None:
    mask = len(cells) - 1
    at = (hole + 1) & mask
    while cells[at, 1] != 0:
        home = place(cells[at, 0], mask)
        # A cell may move into the hole only if that does not put it before its home.
        if ((at - home) & mask) >= ((at - hole) & mask):
            cells[hole, 0] = cells[at, 0]
            cells[hole, 1] = cells[at, 1]
            hole = at
        at = (at + 1) & mask
    cells[hole, 1] = 0


@kernel
def _unlink(t: Table, at: int, slot: int) -> None:
    chain = t.cells[at, 1]
    if chain >> HEAD_BITS == 1:
        _drop_cell(t.cells, at)
        t.meta[KEYS] -= 1
    else:
        before, after = t.before[slot], t.after[slot]
        t.after[before] = after
        t.before[after] = before
        head = chain & HEAD_MASK
        if head == slot:
            head = np.int64(after)
        t.cells[at, 1] = (((chain >> HEAD_BITS) - 1) << HEAD_BITS) | head
    _free_slot(t, slot)


@kernel
def delete_slots(t: Table, slots: I64, gone: Bool) -> None:
    """Delete the entries of `slots`; those that hold none are told in `gone`."""
    for row in range(len(slots)):
        slot = slots[row]
        gone[row] = slot < t.meta[USED] and t.before[slot] != FREE_SLOT
        if gone[row]:
            _unlink(t, _cell_of(t.cells, t.keys[slot]), slot)


@kernel
def delete_pairs(t: Table, keys: I64, values: I64, gone: Bool) -> None:
    """Delete the oldest entry of each (key, value); those that are not there are told in `gone`."""
    for row in range(len(keys)):
        at = _cell_of(t.cells, keys[row])
        gone[row] = False
        slot = t.cells[at, 1] & HEAD_MASK
        for _ in range(t.cells[at, 1] >> HEAD_BITS):
            if t.values[slot] == values[row]:
                _unlink(t, at, slot)
                gone[row] = True
                break
            slot = np.int64(t.after[slot])


@kernel
def delete_keys(t: Table, keys: I64) -> None:
    """Delete every entry of every key."""
    for row in range(len(keys)):
        at = _cell_of(t.cells, keys[row])
        slot = t.cells[at, 1] & HEAD_MASK
        count = t.cells[at, 1] >> HEAD_BITS
        if count == 0:
            continue
        for _ in range(count):
            after = np.int64(t.after[slot])
            _free_slot(t, slot)
            slot = after
        _drop_cell(t.cells, at)
        t.meta[KEYS] -= 1
