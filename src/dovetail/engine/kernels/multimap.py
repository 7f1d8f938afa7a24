"""Hash multimap from int64 keys to int64 values, many values a key, with stable slots.

A directory of cells, one a distinct key, is searched by linear probing; each cell counts its key's entries and names
the oldest. Entries live in slots and form one ring a key, so that the newest is the one before the oldest. Removing a
key shifts its cluster back instead of leaving a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, Bool, enlarged, grown_capacity, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import place

Pairs = tuple[I64, I64]


class HashMultimap:
    """Values by key, in insertion order within a key; equal (key, value) pairs may repeat.

    Insert, probe and deletion cost O(1) a row and O(1) a match. A slot names an entry until the entry is deleted; later
    inserts reuse it. Deletions never slow down later probes. At most 2**31 - 1 entries.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._table = _empty_table(max(1, capacity))

    def __len__(self) -> int:
        return int(self._table.meta[LIVE])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays held, used or not."""
        return sum(array.nbytes for array in self._table)

    def insert(self, keys: I64, values: I64) -> I64:
        """The slots of the new entries, one for each (key, value)."""
        keys, values = int64s(keys), int64s(values)
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys but {len(values)} values; each key needs one value")
        slots = np.empty(len(keys), np.int64)
        self._make_room(len(keys))
        done = _insert(self._table, keys, values, slots, 0)
        while done < len(keys):
            self._table = self._table._replace(cells=_rehashed(self._table.cells, 2 * len(self._table.cells)))
            done = _insert(self._table, keys, values, slots, done)
        return slots

    def _make_room(self, n_rows: int) -> None:
        have = len(self._table.before)
        rows = grown_capacity(have, len(self) + n_rows)
        if rows > have:  # `before` grows last, so that running out of memory half-way leaves the old capacity in force
            for name in ("keys", "values", "after", "before"):
                self._table = self._table._replace(**{name: enlarged(getattr(self._table, name), rows)})

    def probe(self, keys: I64) -> Pairs:
        """(row of `keys`, value) of every match, rows ascending, values of one row in insertion order."""
        chains = _chains(self._table, int64s(keys))
        return self._fill(chains, np.zeros(3, np.int64), int((chains >> HEAD_BITS).sum()))

    def probe_chunks(self, keys: I64, max_pairs: int) -> Iterator[Pairs]:
        """The pairs of `probe` in pieces of at most `max_pairs`; the map must not change until the last is taken."""
        if max_pairs < 1:
            raise ValueError(f"max_pairs is {max_pairs}; it must be at least 1")
        chains = _chains(self._table, int64s(keys))
        left = int((chains >> HEAD_BITS).sum())
        cursor = np.zeros(3, np.int64)
        while left:
            rows, values = self._fill(chains, cursor, min(left, max_pairs))
            left -= len(rows)
            yield rows, values

    def _fill(self, chains: I64, cursor: I64, n_pairs: int) -> Pairs:
        rows, slots = np.empty(n_pairs, np.int64), np.empty(n_pairs, np.int64)
        _fill_pairs(self._table, chains, cursor, rows, slots)
        return rows, self._table.values[slots]

    def delete_slots(self, slots: I64) -> Bool:
        """For each slot whether it held an entry, which is now deleted."""
        slots = int64s(slots)
        if len(slots) and not 0 <= slots.min() <= slots.max() < len(self._table.keys):
            raise IndexError(f"slots from {slots.min()} to {slots.max()}; there are {len(self._table.keys)}")
        gone = np.empty(len(slots), np.bool_)
        _delete_slots(self._table, slots, gone)
        return gone


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


def _load_limit(cells: int) -> int:
    """The most distinct keys in a directory of this size; a load of 5/8 keeps a miss near four cells."""
    return cells * 5 // 8


def _empty_table(capacity: int) -> Table:
    """A table with room for `capacity` entries of distinct keys."""
    cells = 8
    while _load_limit(cells) < capacity:
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


def _rehashed(cells: I64, n_cells: int) -> I64:
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
def _insert(t: Table, keys: I64, values: I64, slots: I64, start: int) -> int:
    """Insert from row `start`; the rows done, fewer than all if the directory must grow. The entries must have room."""
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


def _chains(t: Table, keys: I64) -> I64:
    """For each key count << 32 | oldest slot, or 0."""
    out = np.empty(len(keys), np.int64)
    _find_chains(t.cells, keys, out)
    return out


@kernel
def _fill_pairs(t: Table, chains: I64, cursor: I64, rows: I64, slots: I64) -> None:
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
def _delete_slots(t: Table, slots: I64, gone: Bool) -> None:
    """Delete the entries of `slots`; `gone` says which slots held one."""
    for row in range(len(slots)):
        slot = slots[row]
        gone[row] = slot < t.meta[USED] and t.before[slot] != FREE_SLOT
        if gone[row]:
            _unlink(t, _cell_of(t.cells, t.keys[slot]), slot)


@register_warmup
def _warm() -> None:
    some = np.arange(12, dtype=np.int64)
    found = HashMultimap(1)
    found.insert(some % 11, some)
    found.probe(some)
    found.delete_slots(some[8:9])
