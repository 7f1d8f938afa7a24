"""Many pages of a page file made one batch of rows, column by column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.engine.buffers import NARROW_TEXT, WIDE_TEXT, fixed_width
from dovetail.engine.kernels.arrays import I64, U8, AnyArray
from dovetail.joins.semistream.kernels import message_parts as kernels


def joined_pages(data: U8, starts: I64, stops: I64, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of the pages that lie at these places of `data`, in order, in memory of their own.

    Plain columns (fixed-width, boolean, text, binary) of messages that are as ours are joined in one pass; anything
    else is left to Arrow.
    """
    found = _joined(data, starts, stops, schema) if _plain(schema) else None
    if found is not None:
        return found
    whole = pa.py_buffer(data)
    messages = [whole.slice(a, b - a) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return pa.concat_batches([pa.ipc.read_record_batch(message, schema) for message in messages])


def _plain(schema: pa.Schema) -> bool:
    return all(_n_buffers(field.type) for field in schema)


def _n_buffers(kind: pa.DataType) -> int:
    """Buffers of a plain column, 0 of another."""
    if kind in NARROW_TEXT or kind in WIDE_TEXT:
        return 3
    return 2 if pa.types.is_boolean(kind) or fixed_width(kind) else 0


def _joined(data: U8, starts: I64, stops: I64, schema: pa.Schema) -> pa.RecordBatch | None:
    parts = kernels.empty_parts(len(starts), len(schema), sum(_n_buffers(field.type) for field in schema))
    if not kernels.message_parts(data, starts, stops, parts):
        return None
    columns, buffer = [], 0
    for number, field in enumerate(schema):
        column = _column(data, parts, number, buffer, field.type)
        if column is None:
            return None
        columns.append(column)
        buffer += _n_buffers(field.type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(data: U8, parts: kernels.Parts, number: int, buffer: int, kind: pa.DataType) -> pa.Array | None:
    rows, nulls = int(parts.rows.sum()), int(parts.nulls[:, number].sum())
    validity = None
    if nulls:
        validity = _bits(data, parts, buffer, rows)
        if validity is None:
            return None
    content = _content(data, parts, buffer + 1, rows, kind)
    if content is None:
        return None
    buffers = [None if array is None else pa.py_buffer(array) for array in (validity, *content)]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _content(data: U8, parts: kernels.Parts, buffer: int, rows: int, kind: pa.DataType) -> list[AnyArray] | None:
    if pa.types.is_boolean(kind):
        bits = _bits(data, parts, buffer, rows)
        return None if bits is None else [bits]
    width = fixed_width(kind)
    if width:
        values = np.empty(rows * width, np.uint8)
        return [values] if kernels.joined_values(data, parts, buffer, width, values) else None
    words = data[: len(data) // 8 * 8].view(np.int64 if kind in WIDE_TEXT else np.int32)
    size = kernels.text_bytes(words, parts, buffer)
    if size < 0 or (words.itemsize == 4 and size >= 2**31):
        return None
    offsets, text = np.empty(rows + 1, words.dtype), np.empty(size, np.uint8)
    return [offsets, text] if kernels.joined_text(data, words, parts, buffer, offsets, text) else None


def _bits(data: U8, parts: kernels.Parts, buffer: int, rows: int) -> U8 | None:
    bits = np.zeros(-(-rows // 8), np.uint8)
    return bits if kernels.joined_bits(data, parts, buffer, bits) else None
