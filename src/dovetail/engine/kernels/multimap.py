"""A hash multimap from int64 keys to int64 values, many values a key, with stable slots and exact memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.engine.kernels import multimap_table as table
from dovetail.engine.kernels.arrays import I64, Bool, enlarged, grown_capacity, int64s
from dovetail.engine.kernels.compile import register_warmup

Pairs = tuple[I64, I64]


class HashMultimap:
    """Values by key, in insertion order within a key; equal (key, value) pairs may repeat.

    Insert, probe and deletion by slot cost O(1) a row and O(1) a match; deletion by (key, value) walks the values of
    that key. A slot names an entry until the entry is deleted; later inserts reuse it. No tombstones: deletions never
    slow down later probes. At most 2**31 - 1 entries.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._initial = max(1, capacity)
        self.clear()

    def clear(self) -> None:
        """Forget every entry and give back all memory beyond the initial capacity."""
        self._table = table.empty_table(self._initial)

    def __len__(self) -> int:
        return int(self._table.meta[table.LIVE])

    @property
    def n_keys(self) -> int:
        """The number of distinct keys."""
        return int(self._table.meta[table.KEYS])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays held, used or not."""
        return sum(array.nbytes for array in self._table)

    def nbytes_after(self, n_rows: int) -> int:
        """The most that `nbytes` can be after `n_rows` more inserts.

        While it grows, one old array is held besides for a moment.
        """
        rows = grown_capacity(len(self._table.keys), len(self) + n_rows)
        cells = len(self._table.cells)
        while table.load_limit(cells) < self.n_keys + n_rows:
            cells *= 2
        return rows * table.ENTRY_BYTES + cells * table.CELL_BYTES + self._table.meta.nbytes

    def insert(self, keys: I64, values: I64) -> I64:
        """The slots of the new entries, one for each (key, value)."""
        keys, values = int64s(keys), int64s(values)
        _same_length(keys, values)
        slots = np.empty(len(keys), np.int64)
        self._make_room(len(keys))
        done = table.insert(self._table, keys, values, slots, 0)
        while done < len(keys):
            self._table = self._table._replace(cells=table.rehashed(self._table.cells, 2 * len(self._table.cells)))
            done = table.insert(self._table, keys, values, slots, done)
        return slots

    def _make_room(self, n_rows: int) -> None:
        have = len(self._table.before)
        rows = grown_capacity(have, len(self) + n_rows)
        if rows > have:  # `before` grows last, so that running out of memory half-way leaves the old capacity in force
            for name in ("keys", "values", "after", "before"):
                self._table = self._table._replace(**{name: enlarged(getattr(self._table, name), rows)})

    def count(self, keys: I64) -> I64:
        """For each key the number of its values."""
        return table.found_chains(self._table, int64s(keys)) >> table.HEAD_BITS

    def contains(self, keys: I64) -> Bool:
        """For each key whether it has a value."""
        found: Bool = table.found_chains(self._table, int64s(keys)) != 0
        return found

    def probe(self, keys: I64) -> Pairs:
        """(row of `keys`, value) of every match, rows ascending, values of one row in insertion order."""
        rows, slots = self.probe_slots(keys)
        return rows, self._table.values[slots]

    def probe_slots(self, keys: I64) -> Pairs:
        """(row of `keys`, slot) of every match, in the order of `probe`."""
        chains = table.found_chains(self._table, int64s(keys))
        return self._fill(chains, np.zeros(3, np.int64), int((chains >> table.HEAD_BITS).sum()))

    def probe_chunks(self, keys: I64, max_pairs: int) -> Iterator[Pairs]:
        """The pairs of `probe` in pieces of at most `max_pairs`; the map must not change until the last is taken."""
        if max_pairs < 1:
            raise ValueError(f"max_pairs is {max_pairs}; it must be at least 1")
        chains = table.found_chains(self._table, int64s(keys))
        left = int((chains >> table.HEAD_BITS).sum())
        cursor = np.zeros(3, np.int64)
        while left:
            rows, slots = self._fill(chains, cursor, min(left, max_pairs))
            left -= len(rows)
            yield rows, self._table.values[slots]

    def _fill(self, chains: I64, cursor: I64, n_pairs: int) -> Pairs:
        rows, slots = np.empty(n_pairs, np.int64), np.empty(n_pairs, np.int64)
        table.fill_pairs(self._table, chains, cursor, rows, slots)
        return rows, slots

    def delete_slots(self, slots: I64) -> Bool:
        """For each slot whether it held an entry, which is now deleted."""
        slots = int64s(slots)
        if len(slots) and not 0 <= slots.min() <= slots.max() < len(self._table.keys):
            raise IndexError(f"slots from {slots.min()} to {slots.max()}; there are {len(self._table.keys)}")
        gone = np.empty(len(slots), np.bool_)
        table.delete_slots(self._table, slots, gone)
        return gone

    def delete_pairs(self, keys: I64, values: I64) -> Bool:
        """For each (key, value) whether it was there; its oldest entry is now deleted."""
        keys, values = int64s(keys), int64s(values)
        _same_length(keys, values)
        gone = np.empty(len(keys), np.bool_)
        table.delete_pairs(self._table, keys, values, gone)
        return gone

    def delete_keys(self, keys: I64) -> int:
        """The number of entries deleted: every value of every one of `keys`."""
        before = len(self)
        table.delete_keys(self._table, int64s(keys))
        return before - len(self)

    def items(self) -> tuple[I64, I64, I64]:
        """Keys, values and slots of all entries, by slot."""
        used = int(self._table.meta[table.USED])
        slots = np.flatnonzero(self._table.before[:used] != table.FREE_SLOT)
        return self._table.keys[slots], self._table.values[slots], slots

    def entries(self, slots: I64) -> Pairs:
        """Keys and values of entries that are there; a deleted slot gives what it last held."""
        return self._table.keys[slots], self._table.values[slots]


def _same_length(keys: I64, values: I64) -> None:
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys but {len(values)} values; each key needs one value")


@register_warmup
def _warm() -> None:
    some = np.arange(12, dtype=np.int64)
    found = HashMultimap(1)
    found.insert(some % 11, some)
    found.probe(some)
    found.delete_pairs(some[:1], some[:1])
    found.delete_keys(some[:3])
    found.delete_slots(some[8:9])
