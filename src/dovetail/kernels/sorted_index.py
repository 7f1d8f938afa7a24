"""A sorted index from int64 keys to int64 values: range look-ups, batch inserts, eviction from both ends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.kernels import sorted_leaves as leaves
from dovetail.kernels import sorted_removal as removal
from dovetail.kernels.arrays import I64, Bool, enlarged, grown_capacity, int64s
from dovetail.kernels.compile import register_warmup

Pairs = tuple[I64, I64]


class SortedIndex:
    """(key, value) rows in key order, rows of equal keys in order of insertion; equal rows may repeat.

    With n rows in leaves of B places: a batch costs its sort and, where it is scattered, O(log n + B) a row; a range
    costs O(log n) and its own rows; eviction of k rows from either end costs O(k + n / B). Deletion by (key, value)
    walks the rows of that key. Bounds are inclusive. No operation but growth touches all rows.
    """

    def __init__(self, leaf_rows: int = 256) -> None:
        if leaf_rows < 4:
            raise ValueError(f"leaf_rows is {leaf_rows}; it must be at least 4")
        self._places = leaf_rows
        self.clear()

    def clear(self) -> None:
        """Forget every row and give back all memory but that of one leaf."""
        self._ix = leaves.empty_leaves(1, self._places)

    def __len__(self) -> int:
        return int(self._ix.meta[leaves.LIVE])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays held, used or not."""
        return sum(array.nbytes for array in self._ix)

    def nbytes_after(self, n_rows: int) -> int:
        """The most that `nbytes` can be after `n_rows` more inserts.

        While it grows, one old array is held besides for a moment.
        """
        used, have = int(self._ix.meta[leaves.USED]), len(self._ix.order)
        needed = used + min(n_rows, used) + 2 * n_rows // self._places + 1
        while have < needed:
            have = grown_capacity(have, have + 1)
        return have * (16 * self._places + 16) + self._ix.meta.nbytes

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The smallest and the largest key; None without rows."""
        if not len(self):
            return None
        last = self._ix.order[self._ix.meta[leaves.USED] - 1]
        return int(self._ix.firsts[0]), int(self._ix.keys[last, self._ix.sizes[last] - 1])

    def insert(self, keys: I64, values: I64) -> None:
        """Add the rows, in any order; a batch that is sorted already is not sorted again."""
        keys, values = int64s(keys), int64s(values)
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys but {len(values)} values; each key needs one value")
        if np.any(keys[1:] < keys[:-1]):
            by_key = np.argsort(keys, kind="stable")
            keys, values = int64s(keys[by_key]), int64s(values[by_key])
        done = leaves.insert_sorted(self._ix, keys, values, 0)
        while done < len(keys):
            self._add_leaves()
            done = leaves.insert_sorted(self._ix, keys, values, done)

    def _add_leaves(self) -> None:
        have = len(self._ix.order)
        more = grown_capacity(have, have + 1)
        for name in ("keys", "values", "sizes", "firsts"):
            self._ix = self._ix._replace(**{name: enlarged(getattr(self._ix, name), more)})
        order = enlarged(self._ix.order, more)
        order[have:] = np.arange(have, more)
        self._ix = self._ix._replace(order=order)  # last: its length is what says how many leaves there are

    def count(self, low: I64, high: I64) -> I64:
        """For each range [low, high] the number of its rows; 0 where low > high."""
        return self._found(low, high)[1]

    def contains(self, keys: I64) -> Bool:
        """For each key whether it is there."""
        found: Bool = self.count(keys, keys) > 0
        return found

    def probe(self, low: I64, high: I64) -> Pairs:
        """(row of the ranges, value) of every row in [low, high], ranges ascending, values in key order."""
        starts, counts = self._found(low, high)
        return self._fill(starts, counts, np.zeros(3, np.int64), int(counts.sum()))

    def probe_chunks(self, low: I64, high: I64, max_pairs: int) -> Iterator[Pairs]:
        """The pairs of `probe` in pieces of at most `max_pairs`; the index must not change until the last is taken."""
        if max_pairs < 1:
            raise ValueError(f"max_pairs is {max_pairs}; it must be at least 1")
        starts, counts = self._found(low, high)
        left, cursor = int(counts.sum()), np.zeros(3, np.int64)
        while left:
            pairs = self._fill(starts, counts, cursor, min(left, max_pairs))
            left -= len(pairs[0])
            yield pairs

    def _found(self, low: I64, high: I64) -> Pairs:
        low, high = int64s(low), int64s(high)
        if len(low) != len(high):
            raise ValueError(f"{len(low)} lower but {len(high)} upper bounds; each range needs both")
        starts, counts = np.empty(len(low), np.int64), np.empty(len(low), np.int64)
        leaves.find_ranges(self._ix, low, high, starts, counts)
        return starts, counts

    def _fill(self, starts: I64, counts: I64, cursor: I64, n_pairs: int) -> Pairs:
        rows, values = np.empty(n_pairs, np.int64), np.empty(n_pairs, np.int64)
        leaves.fill_ranges(self._ix, starts, counts, cursor, rows, values)
        return rows, values

    def between(self, low: int, high: int) -> Pairs:
        """Keys and values of the rows in [low, high], in key order."""
        starts, counts = self._found(np.array([low], np.int64), np.array([high], np.int64))
        return self._rows(int(starts[0]), int(counts[0]))

    def items(self) -> Pairs:
        """Keys and values of all rows, in key order."""
        return self._rows(0, len(self))

    def _rows(self, position: int, n_rows: int) -> Pairs:
        keys, values = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        leaves.copy_rows(self._ix, position, keys, values)
        return keys, values

    def evict_low(self, n_rows: int) -> Pairs:
        """Keys and values of the `n_rows` smallest rows, or of all if there are fewer; they are gone."""
        return self._taken(0, max(0, min(n_rows, len(self))))

    def evict_high(self, n_rows: int) -> Pairs:
        """Keys and values of the `n_rows` largest rows, or of all if there are fewer, in key order; they are gone."""
        n_rows = max(0, min(n_rows, len(self)))
        return self._taken(removal.position_from_end(self._ix, n_rows), n_rows)

    def delete_range(self, low: int, high: int) -> Pairs:
        """Keys and values of the rows in [low, high], in key order; they are gone."""
        starts, counts = self._found(np.array([low], np.int64), np.array([high], np.int64))
        return self._taken(int(starts[0]), int(counts[0]))

    def _taken(self, position: int, n_rows: int) -> Pairs:
        out = self._rows(position, n_rows)
        if n_rows:
            removal.remove_rows(self._ix, position, n_rows)
        return out

    def delete_pairs(self, keys: I64, values: I64) -> Bool:
        """For each (key, value) whether it was there; its oldest row is now gone."""
        keys, values = int64s(keys), int64s(values)
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys but {len(values)} values; each key needs one value")
        gone = np.empty(len(keys), np.bool_)
        removal.remove_pairs(self._ix, keys, values, gone)
        return gone

    def compact(self) -> None:
        """Keep the rows in as little memory as they need; useful after a large eviction."""
        keys, values = self.items()
        self._ix = leaves.empty_leaves(max(1, -(-len(keys) // self._places)), self._places)
        self.insert(keys, values)


@register_warmup
def _warm() -> None:
    some = np.arange(40, dtype=np.int64)
    index = SortedIndex(4)
    index.insert(some[::-1], some)
    index.insert(some // 2, some)
    index.probe(some[:2], some[2:4])
    index.delete_pairs(some[:3], some[:3])
    index.evict_low(9)
    index.evict_high(9)
    index.compact()
