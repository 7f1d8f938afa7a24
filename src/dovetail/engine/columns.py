"""Arrow columns as operators handle them: rows by number, how many bytes they hold, copies that hold no more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.engine.buffers import NARROW_TEXT, VIEWS, WIDE_TEXT, fixed_width, offsets_of
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.take import take_columns, take_runs, taken_bytes

__all__ = ["compact", "compact_bytes", "held_bytes", "nbytes", "row_bytes", "take_columns", "take_runs", "taken_bytes"]


def nbytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Bytes of the rows themselves: of a slice only its own part, whatever it was cut from."""
    return int(batch.nbytes)


def held_bytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Bytes that this batch keeps alive: of a slice all that it was cut from, of shared buffers each once."""
    return int(batch.get_total_buffer_size())


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in memory of their own if the batch keeps more alive than it shows, else the batch itself."""
    return batch if held_bytes(batch) <= compact_bytes(batch) else pa.concat_batches([batch])


def compact_bytes(batch: pa.RecordBatch) -> int:
    """An upper bound of `held_bytes(compact(batch))`, for reserving before the copy is made."""
    return nbytes(batch) + 16 * sum(_n_buffers(field.type) for field in batch.schema)


def _n_buffers(kind: pa.DataType) -> int:
    own = kind.num_buffers or 3  # view types have as many as they need; a compact copy has one
    return own + sum(_n_buffers(kind.field(i).type) for i in range(kind.num_fields))


def row_bytes(batch: pa.RecordBatch) -> I64:
    """Bytes of each row, those of nested values included; nulls count as the values they stand for."""
    ends = sum((_ends(column) for column in batch.columns), np.zeros(batch.num_rows + 1, np.int64))
    return np.diff(ends) + len(batch.schema) // 8


def _ends(array: pa.Array) -> I64:
    """Bytes of all rows before each row, and at last of all rows."""
    kind, n = array.type, len(array)
    if isinstance(kind, pa.BaseExtensionType):
        return _ends(array.storage)
    if pa.types.is_dictionary(kind):
        return _ends(array.indices)
    if kind in VIEWS:
        return _ends(array.cast(VIEWS[kind]))
    width = fixed_width(kind)
    if width is not None:
        return width * np.arange(n + 1, dtype=np.int64)
    if pa.types.is_struct(kind):
        return sum((_ends(child) for child in array.flatten()), np.arange(n + 1, dtype=np.int64))
    if pa.types.is_fixed_size_list(kind):
        items = array.values.slice(array.offset * kind.list_size, n * kind.list_size)
        return _ends(items)[:: int(kind.list_size)] if kind.list_size else np.zeros(n + 1, np.int64)
    if kind in NARROW_TEXT or kind in WIDE_TEXT:
        offsets: I64 = offsets_of(array).astype(np.int64)
        return offsets - int(offsets[0]) + (8 if kind in WIDE_TEXT else 4) * np.arange(n + 1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _ends(array.values)[offsets_of(array)] + 8 * np.arange(n + 1)
    return np.arange(n + 1, dtype=np.int64)  # bits, and nothing
