"""Arrays of an index: keys as segment numbers, right rows by (key, start, end), and auxiliary arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dovetail.engine.kernels.arrays import I64, U64, AnyArray, int64s
from dovetail.engine.kernels.sort import sorted_copy, stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels.search import level_offsets, maxima, members, members_by_table, prefix_max
from dovetail.joins.interval.kernels.wavelet import wavelet

_SMALL_TABLE = 1024


@dataclass(frozen=True, slots=True)
class Segments:
    """The distinct keys of one input, ascending, numbered from 0; without keys, one segment that holds everything."""

    distinct: I64 | None
    table: I64 | None

    @classmethod
    def of(cls, key: I64 | None) -> Segments:
        """The segments of these keys; keys in a narrow range are looked up in a table instead of searched."""
        if key is None:
            return cls(None, None)
        low, high = (int(key.min()), int(key.max())) if len(key) else (0, -1)
        if high - low >= len(key) + _SMALL_TABLE:
            ascending = sorted_copy(key)
            fresh = np.ones(len(ascending), np.bool_)
            np.not_equal(ascending[1:], ascending[:-1], out=fresh[1:])
            return cls(int64s(ascending[fresh]), None)
        seen = np.zeros(high - low + 1, np.bool_)
        seen[key - low] = True
        numbers = np.where(seen, np.cumsum(seen) - 1, -1)
        return cls(int64s(np.nonzero(seen)[0] + low), int64s(numbers))

    @staticmethod
    def most_bytes(rows: int) -> int:
        """The most bytes that segments of `rows` keys take while they are made."""
        return 33 * (rows + _SMALL_TABLE)

    @property
    def count(self) -> int:
        """How many there are."""
        return 1 if self.distinct is None else len(self.distinct)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (self.distinct, self.table) if array is not None)

    def numbers(self, key: I64 | None, rows: int) -> I64:
        """The segment of each row, -1 where its key has none; `key` is None exactly if the segments have no keys."""
        if self.distinct is None or key is None:
            if self.distinct is not None or key is not None:
                raise ValueError("one input has equality keys and the other has none; give both or neither.")
            return int64s(np.zeros(rows, np.int64))
        if self.table is not None:
            least = int(self.distinct[0]) if len(self.distinct) else 0
            return int64s(members_by_table(int64s(key), least, self.table))
        return int64s(members(int64s(key), self.distinct))


# Bytes per row while a sort runs: two copies of the numbers, four of the row numbers, and the segment numbers.
_SORT_BYTES = 56
_WAVELET_COPY_BYTES = 16


class SortedRight:
    """Right rows in start order (by key, start, end, then as they came) and in end order (by key, end).

    A row's place in start order is its start rank. Each segment takes the same places in both orders.
    """

    def __init__(
        self,
        key: I64 | None,
        start: I64,
        end: I64,
        h: int,
        shift: int,
        budget: MemoryBudget | None,
    ) -> None:
        self.rows, self.h, self.shift = len(start), h, shift
        unlimited = MemoryBudget(2**63 - 1, "unlimited")
        self._reservation = (budget or unlimited).reserve("overlap index")
        try:
            self._sort(key, start, end)
        except BaseException:
            self._reservation.close()
            raise

    def _sort(self, key: I64 | None, start: I64, end: I64) -> None:
        self._reservation.grow(0 if key is None else Segments.most_bytes(self.rows))
        self.segments = Segments.of(key)
        self._reservation.resize(self.segments.nbytes + 8 * (self.segments.count + 1))
        number = None if key is None else self.segments.numbers(key, self.rows)
        self.offsets = _offsets(number, self.segments.count, self.rows)
        self.order = self._charged(8, _SORT_BYTES, lambda: _start_order(number, start, end))
        self.starts = self._charged(8, 0, lambda: int64s(start[self.order]))
        self.ends = self._charged(8, 0, lambda: int64s(end[self.order]))

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        return self._reservation.used

    def close(self) -> None:
        """Gives the memory back to the budget."""
        self._reservation.close()

    def positions(self, ranks: I64) -> I64:
        """The right input's row numbers of these start ranks; -1 stays -1."""
        if not self.rows:
            return np.full(len(ranks), -1, np.int64)
        return np.where(ranks < 0, -1, self.order[ranks])

    @cached_property
    def has_points(self) -> bool:
        """Whether any right interval is a single point, as written."""
        if (self.h, self.shift) == (0, 0):
            return False
        return bool(np.any(self.starts >> self.h == (self.ends - self.shift) >> self.h))

    @cached_property
    def sorted_ends(self) -> I64:
        """The ends in end order."""
        if self.segments.count == 1:
            return self._charged(8, _SORT_BYTES, lambda: sorted_copy(self.ends))
        return self._charged(8, _SORT_BYTES, lambda: int64s(self.ends[self._ranks_by_end()]))

    @cached_property
    def reach(self) -> I64:
        """The largest end of each row's segment so far, in start order."""
        return self._charged(8, 0, lambda: int64s(prefix_max(self.ends, self.offsets)))

    @cached_property
    def levels(self) -> I64:
        """Where the levels of `tree` begin."""
        return int64s(level_offsets(self.rows))

    @cached_property
    def tree(self) -> I64:
        """The largest end of every 16 rows, of every 256, and so on."""
        return self._charged(1, 0, lambda: int64s(maxima(self.ends, self.levels)))

    @cached_property
    def words(self) -> U64:
        """The start ranks in end order, as a wavelet."""
        per_row = 1 + max(1, self.rows.bit_length()) // 4
        levels: U64 = self._charged(
            per_row, _SORT_BYTES + _WAVELET_COPY_BYTES, lambda: _frozen(wavelet(self._ranks_by_end()))
        )
        return levels

    def _ranks_by_end(self) -> I64:
        order = stable_order(self.ends)
        if self.segments.count == 1:
            return order
        number = np.repeat(np.arange(self.segments.count, dtype=np.int64), np.diff(self.offsets))
        return stable_order(number, order)

    def _charged(self, expected: int, passing: int, build: Callable[[], AnyArray]) -> AnyArray:
        """The result of `build`, its bytes reserved first; sizes are per row, and `passing` bytes are released."""
        before = self._reservation.used
        self._reservation.grow(self.rows * (expected + passing))
        try:
            built = build()
        except BaseException:
            self._reservation.resize(before)
            raise
        self._reservation.resize(before + built.nbytes)
        return built


def _start_order(number: I64 | None, start: I64, end: I64) -> I64:
    order = stable_order(start, stable_order(end))
    return order if number is None else stable_order(number, order)


def _offsets(number: I64 | None, segments: int, rows: int) -> I64:
    if number is None:
        return int64s([0, rows])
    offsets = np.zeros(segments + 1, np.int64)
    np.cumsum(np.bincount(number, minlength=segments), out=offsets[1:])
    return int64s(offsets)


def _frozen(levels: U64) -> U64:
    levels.flags.writeable = False
    return levels
