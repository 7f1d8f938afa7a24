"""What rows weigh in memory, how the operators divide their budget, and the smallest one that they accept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.columns import nbytes
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.errors import PlanError

OVERHEAD_BYTES = 64
"""Per row beside its columns: ordinal, weight, and its places in active lists and heap."""


class RowBytes:
    """The bytes that one row of a schema takes, its bookkeeping included.

    Fixed-width columns, strings and binaries are exact; a nested or encoded column counts with the mean of its batch.
    """

    def __init__(self, schema: pa.Schema) -> None:
        kinds = [field.type for field in schema]
        self.fixed = OVERHEAD_BYTES + sum(_fixed_bytes(kind) for kind in kinds)
        self._text = [i for i, kind in enumerate(kinds) if _is_text(kind)]
        self._other = [i for i, kind in enumerate(kinds) if not _is_text(kind) and not _is_fixed(kind)]

    def of(self, batch: pa.RecordBatch) -> I64:
        """The weight of each row, or an empty array if every row weighs `fixed`."""
        if not (self._text or self._other):
            return int64s([])
        weights = np.full(batch.num_rows, self.fixed, np.int64)
        for i in self._text:
            lengths = pc.binary_length(batch.column(i))
            weights += (pc.fill_null(lengths, 0) if lengths.null_count else lengths).to_numpy()
        for i in self._other:
            weights += -(-batch.column(i).nbytes // max(1, batch.num_rows))
        return int64s(weights)

    def fitting(self, batch: pa.RecordBatch, room: int) -> int:
        """How many rows from the first on weigh no more than `room`."""
        weights = self.of(batch)
        if weights.size:
            return int(np.searchsorted(np.cumsum(weights), room, side="right"))
        return int(min(batch.num_rows, max(0, room) // self.fixed))

    def each(self, batch: pa.RecordBatch) -> I64:
        """The weight of each row, one number a row even if all are the same."""
        weights = self.of(batch)
        return weights if weights.size else np.full(batch.num_rows, self.fixed, np.int64)

    def total(self, batch: pa.RecordBatch) -> int:
        """The weight of all rows together."""
        weights = self.of(batch)
        return int(weights.sum()) if weights.size else self.fixed * batch.num_rows


def stretches(weights: I64, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Rows of these weights in stretches, first and last row, of at most `rows` and `size`; no row is cut."""
    ends = np.cumsum(weights)
    first = 0
    while first < weights.size:
        room = size + (int(ends[first - 1]) if first else 0)
        last = max(first + 1, min(first + rows, int(np.searchsorted(ends, room, side="right"))))
        last = min(last, int(weights.size))
        yield first, last
        first = last


def rows_within(batch: pa.RecordBatch, size: int) -> int:
    """How many rows from the first on take about `size` bytes, bookkeeping included: at least one, at most all."""
    weight = nbytes(batch) + OVERHEAD_BYTES * batch.num_rows
    rows = min(batch.num_rows, max(1, batch.num_rows * size // max(1, weight)))
    while rows > 1 and nbytes(batch.slice(0, rows)) > 2 * size:
        rows //= 2
    return int(rows)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind))


def _fixed_bytes(kind: pa.DataType) -> int:
    validity = 1
    if _is_text(kind):
        return validity + (8 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 4)
    return validity + (-(-kind.bit_width // 8) if _is_fixed(kind) and not pa.types.is_null(kind) else 0)


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
        """The same division when `elsewhere` bytes are used beside the join itself."""
        return replace(self, limit=self.limit - elsewhere)

    def active(self, waiting: int) -> int:
        """Bytes that active tuples may weigh while `waiting` bytes of input wait in memory."""
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
