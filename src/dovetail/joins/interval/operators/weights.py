"""What each row weighs in memory, so that active tuples can be counted in bytes before they are kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.columns import nbytes
from dovetail.engine.kernels.arrays import I64, int64s

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
