"""Equality keys as small segment numbers: which run of the sorted right side a left row may match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.interval.kernels.rank_merge import members, members_by_table
from dovetail.joins.interval.kernels.rank_sort import sorted_copy

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
        """What the segments of so many keys take at most, while they are made."""
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
