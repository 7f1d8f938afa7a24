"""Takes rows of Arrow columns by number, and gives their memory as NumPy arrays, without a copy where possible."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, NO_BYTES, U8, AnyArray, Bool
from dovetail.engine.kernels.gather import (
    Selection,
    gather_bits,
    gather_bytes,
    gather_fixed,
    gather_fixed_lists,
    gather_lists,
    gather_validity,
    gathered_bytes,
)
from dovetail.errors import UnsupportedError

NARROW_TEXT = (pa.string(), pa.binary())
WIDE_TEXT = (pa.large_string(), pa.large_binary())
VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def memory_of(array: pa.Array, number: int) -> U8:
    """All bytes of one of the array's buffers, from before its first row; empty if the buffer is absent."""
    buffer = array.buffers()[number]
    return NO_BYTES if buffer is None else np.frombuffer(buffer, np.uint8)


def offsets_of(array: pa.Array) -> AnyArray:
    """The offsets of a string, binary, list or map array with at least one row: one more than it has rows."""
    wide = array.type in WIDE_TEXT or pa.types.is_large_list(array.type)
    found = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    return found[array.offset : array.offset + len(array) + 1]


def fixed_width(kind: pa.DataType) -> int | None:
    """Bytes of a value of a fixed-width type; None for other types."""
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return int(kind.bit_width) // 8 if plain and not pa.types.is_boolean(kind) else None


def fixed_values(array: pa.Array, width: int) -> U8:
    """The bytes of the rows of a fixed-width array, `width` each."""
    return memory_of(array, 1)[array.offset * width : (array.offset + len(array)) * width]


def valid_rows(array: pa.Array) -> Bool:
    """For each row whether it is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


Rows: TypeAlias = pa.RecordBatch | pa.Table


def take_columns(rows: Rows, indices: I64 | Selection) -> pa.RecordBatch:
    """The rows of these numbers, in this order, in memory of their own; a row of nulls for each -1.

    Columns may be fixed-width, boolean, string, binary, list, map, struct, dictionary (which keeps its dictionary) or
    extensions of these; unions and run-ends are an `UnsupportedError`. `IndexError` for a number out of range;
    `OverflowError` where the text of one column would pass the 2 GiB that its offsets can reach.
    """
    batch = one_batch(rows)
    return _taken_batch(batch, Selection.of(indices, batch.num_rows))


def taken_bytes(rows: Rows, indices: I64 | Selection) -> int:
    """Bytes that `take_columns` would allocate at most, to reserve them first."""
    batch = one_batch(rows)
    picked = Selection.of(indices, batch.num_rows)
    return sum(_bytes_of(column, picked) for column in batch.columns)


def one_batch(rows: Rows) -> pa.RecordBatch:
    """The rows as one batch."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        raise OverflowError("a column of the table has more text than one array holds; take from it batch by batch.")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def _taken_batch(batch: pa.RecordBatch, picked: Selection) -> pa.RecordBatch:
    columns = [_taken(column, picked) for column in batch.columns]
    if not columns:  # a batch without columns still has a number of rows
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(picked), pa.struct([])))
    schema = batch.schema
    if picked.n_null:
        schema = pa.schema([field.with_nullable(True) for field in schema], schema.metadata)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _taken(array: pa.Array, picked: Selection) -> pa.Array:
    kind = array.type
    if len(array) == 0 or pa.types.is_null(kind):
        return _all_null(array, picked)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _taken(array.storage, picked))
    if pa.types.is_dictionary(kind):
        codes = _taken(array.indices, picked)
        return pa.DictionaryArray.from_arrays(codes, array.dictionary, ordered=kind.ordered, safe=False)
    width = fixed_width(kind)
    if width is not None:
        return _build(array, picked, [_fixed(array, width, picked) if width else NO_BYTES])
    if pa.types.is_boolean(kind):
        return _build(array, picked, [gather_bits(memory_of(array, 1), array.offset, picked)])
    if kind in NARROW_TEXT or kind in WIDE_TEXT:
        return _build(array, picked, list(_text(array, picked)))
    if pa.types.is_struct(kind):
        return _build(array, picked, [], [_taken(array.field(i), picked) for i in range(kind.num_fields)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets, children = gather_lists(offsets_of(array), picked)
        return _build(array, picked, [offsets], [_taken_rows(array.values, children)])
    if pa.types.is_fixed_size_list(kind):
        children = gather_fixed_lists(kind.list_size, picked, len(array))
        return _build(array, picked, [], [_taken_rows(_items(array), children)])
    if kind in VIEWS:
        return _taken(array.cast(VIEWS[kind]), picked).cast(kind)
    raise UnsupportedError(f"rows of a column of type {kind} cannot be picked; cast the column to a plain type first.")


def _taken_rows(array: pa.Array, rows: I64) -> pa.Array:
    return _taken(array, Selection.of(rows, len(array)))


def _all_null(array: pa.Array, picked: Selection) -> pa.Array:
    return pa.nulls(len(picked), array.type)


def _build(
    array: pa.Array, picked: Selection, data: list[AnyArray], children: list[pa.Array] | None = None
) -> pa.Array:
    validity, n_null = _validity(array, picked)
    buffers = [pa.py_buffer(validity) if n_null else None, *map(pa.py_buffer, data)]
    return pa.Array.from_buffers(array.type, len(picked), buffers, n_null, children=children)


def _validity(array: pa.Array, picked: Selection) -> tuple[U8, int]:
    if array.null_count == 0 and not picked.n_null:
        return NO_BYTES, 0
    return gather_validity(memory_of(array, 0), array.offset, picked, len(array))


def _fixed(array: pa.Array, width: int, picked: Selection) -> U8:
    data = fixed_values(array, width)
    return gather_fixed(data, width, picked)


def _text(array: pa.Array, picked: Selection) -> tuple[AnyArray, U8]:
    offsets, data = offsets_of(array), memory_of(array, 2)
    return gather_bytes(offsets, data, picked)


def _bytes_of(array: pa.Array, picked: Selection) -> int:
    kind, n = array.type, len(picked)
    bitmap = -(-n // 8) if array.null_count or picked.n_null else 0
    if len(array) == 0 or pa.types.is_null(kind):
        return int(pa.nulls(1, kind).get_total_buffer_size()) * n
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes_of(array.storage, picked)
    if pa.types.is_dictionary(kind):
        return _bytes_of(array.indices, picked)
    width = fixed_width(kind)
    if width is not None:
        return bitmap + n * width
    if pa.types.is_boolean(kind):
        return bitmap + -(-n // 8)
    if kind in NARROW_TEXT or kind in WIDE_TEXT:
        offsets = offsets_of(array)
        return bitmap + (n + 1) * offsets.itemsize + gathered_bytes(offsets, picked)
    if pa.types.is_struct(kind):
        return bitmap + sum(_bytes_of(array.field(i), picked) for i in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets, children = gather_lists(offsets_of(array), picked)
        return bitmap + offsets.nbytes + _bytes_of(array.values, Selection.of(children, len(array.values)))
    if pa.types.is_fixed_size_list(kind):
        children = gather_fixed_lists(kind.list_size, picked, len(array))
        return bitmap + _bytes_of(_items(array), Selection.of(children, n_rows=len(array) * kind.list_size))
    if kind in VIEWS:
        return 8 * n + 2 * _bytes_of(array.cast(VIEWS[kind]), picked)
    raise UnsupportedError(f"rows of a column of type {kind} cannot be picked; cast the column to a plain type first.")


def _items(array: pa.Array) -> pa.Array:
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


__all__ = [
    "compact",
    "compact_bytes",
    "empty_batch",
    "held_bytes",
    "nbytes",
    "one_batch",
    "row_bytes",
    "take_columns",
    "taken_bytes",
]


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of these columns."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


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
