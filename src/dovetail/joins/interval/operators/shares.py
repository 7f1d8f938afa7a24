"""How the operators divide their budget, and the smallest one that they accept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.errors import PlanError
from dovetail.joins.interval.operators.weights import RowBytes

_BASE_BYTES = 16 * 1024
_ROWS_AT_LEAST = 64
_SEGMENT_LIMIT = 4 * 2**20
_OUTPUT_LIMIT = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes for the output, for one segment of input, and for everything else.

    A window is rewritten when it is refilled: what stays is copied, then the old one goes. So active tuples need their
    bytes twice, and segments exist once per window, once more while one is replaced, and once serialised.
    """

    limit: int
    output: int
    segment: int

    @classmethod
    def of(cls, budget: MemoryBudget, left: pa.Schema, right: pa.Schema) -> Shares:
        """The division of what `budget` has left; `PlanError` below the minimum."""
        limit, least = budget.available, minimum_bytes(left, right)
        if limit < least:
            raise PlanError(
                f"an interval join over these rows needs at least {format_bytes(least)} ({least} bytes) of memory; "
                f"{budget.name!r} has {format_bytes(limit)} ({limit} bytes). Give it more."
            )
        return cls(limit, min(limit // 8, _OUTPUT_LIMIT), min(limit // 16, _SEGMENT_LIMIT))

    def without(self, elsewhere: int) -> Shares:
        """The same division when so many of the bytes are used beside the join itself."""
        return replace(self, limit=self.limit - elsewhere)

    def active(self, waiting: int) -> int:
        """Bytes that active tuples may weigh while `waiting` bytes of input lie in memory unread."""
        return max(0, (self.limit - self.output - 4 * self.segment - waiting) // 2)

    def blocking(self, waiting: int) -> int:
        """Bytes that rows of a partitioned join may weigh: ordering them by partition needs two copies beside them.

        They may overshoot by one segment before they are written, and what holds a row costs more than the row.
        """
        return max(0, (self.limit - self.output - 4 * self.segment - waiting) // 5)

    @property
    def pairs(self) -> int:
        """How many pairs of row numbers are collected before they are given out."""
        return max(16, min(self.output // 64, 2**17))


def minimum_bytes(left: pa.Schema, right: pa.Schema) -> int:
    """The smallest budget with which a join of rows of these schemas opens."""
    return _BASE_BYTES + _ROWS_AT_LEAST * (RowBytes(left).fixed + RowBytes(right).fixed)
