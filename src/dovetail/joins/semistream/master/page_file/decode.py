"""Pages decoded to rows: many pages joined to one batch in one pass, whole or the rows of some keys."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, U8, AnyArray
from dovetail.engine.rows.columns import NARROW_TEXT, WIDE_TEXT, fixed_width, take_columns
from dovetail.joins.semistream.kernels import message_parts as kernels
from dovetail.joins.semistream.kernels.byte_keys import rows_among
from dovetail.joins.semistream.keys import KeyForm


def joined_pages(data: U8, starts: I64, stops: I64, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of the pages at these places of `data`, in order, in memory of their own.

    Plain columns (fixed-width, boolean, text, binary) of messages that are as ours are joined in one pass; anything
    else is left to Arrow.
    """
    parts = _parts_of(data, starts, stops, schema)
    found = None if parts is None else _joined_columns(data, parts, schema)
    if found is not None:
        return found
    whole = pa.py_buffer(data)
    messages = [whole.slice(a, b - a) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return pa.concat_batches([pa.ipc.read_record_batch(message, schema) for message in messages])


def keyed_rows(data: U8, starts: I64, stops: I64, schema: pa.Schema, form: KeyForm, codes: I64) -> pa.RecordBatch:
    """The rows of these pages whose key has one of these codes, in order, in memory of their own.

    Of plain columns only the keys are decoded of the other rows.
    """
    parts = _parts_of(data, starts, stops, schema)
    keys = None if parts is None else _key_columns(data, parts, schema, form)
    if parts is not None and keys is not None:
        rows = rows_among(form.normal(keys)[0].codes(), codes)
        found = _joined_columns(data, kernels.single_rows(parts, rows), schema)
        if found is not None:
            return found
    whole = joined_pages(data, starts, stops, schema)
    rows = rows_among(form.normal([whole.column(name) for name in form.names])[0].codes(), codes)
    return take_columns(whole, rows)


def _key_columns(data: U8, parts: kernels.Parts, schema: pa.Schema, form: KeyForm) -> list[pa.Array] | None:
    firsts = np.cumsum([0, *(_n_buffers(field.type) for field in schema)]).tolist()
    places = [schema.get_field_index(name) for name in form.names]
    found = [_column(data, parts, at, firsts[at], schema.field(at).type) for at in places]
    return None if any(column is None for column in found) else found


def _plain(schema: pa.Schema) -> bool:
    return all(_n_buffers(field.type) for field in schema)


@lru_cache(maxsize=256)
def _n_buffers(kind: pa.DataType) -> int:
    """Buffers of a plain column, 0 of another."""
    if kind in NARROW_TEXT or kind in WIDE_TEXT:
        return 3
    return 2 if pa.types.is_boolean(kind) or fixed_width(kind) else 0


def _parts_of(data: U8, starts: I64, stops: I64, schema: pa.Schema) -> kernels.Parts | None:
    """Where the columns of these pages are; None if they are not plain."""
    if not _plain(schema):
        return None
    parts = kernels.empty_parts(len(starts), len(schema), sum(_n_buffers(field.type) for field in schema))
    return parts if kernels.message_parts(data, starts, stops, parts) else None


def _joined_columns(data: U8, parts: kernels.Parts, schema: pa.Schema) -> pa.RecordBatch | None:
    columns, buffer = [], 0
    for number, field in enumerate(schema):
        column = _column(data, parts, number, buffer, field.type)
        if column is None:
            return None
        columns.append(column)
        buffer += _n_buffers(field.type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(data: U8, parts: kernels.Parts, number: int, buffer: int, kind: pa.DataType) -> pa.Array | None:
    rows, has_nulls = int(parts.rows.sum()), bool(parts.nulls[:, number].any())
    validity = None
    if has_nulls:
        validity = _bits(data, parts, buffer, rows)
        if validity is None:
            return None
    content = _content(data, parts, buffer + 1, rows, kind)
    if content is None:
        return None
    buffers = [None if array is None else pa.py_buffer(array) for array in (validity, *content)]
    return pa.Array.from_buffers(kind, rows, buffers, -1 if has_nulls else 0)


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
