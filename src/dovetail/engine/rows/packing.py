"""Packs record batches as bytes, for state, logs and shuffles; combines small batches."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from dovetail.errors import DataError

CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 8 << 20
_LINE = 64  # parts start where Arrow can use them in place


def pack(head: Any, parts: Sequence[pa.Buffer | bytes]) -> bytes:
    """A head, which JSON can hold, and the parts after it."""
    views = [memoryview(part) for part in parts]
    text = json.dumps([head, [view.nbytes for view in views]]).encode()
    found: list[bytes | memoryview] = [struct.pack("<I", len(text)), text]
    at = 4 + len(text)
    for view in views:
        found += [b"\0" * (-at % _LINE), view]
        at += -at % _LINE + view.nbytes
    return b"".join(found)


def unpack(data: bytes | pa.Buffer) -> tuple[Any, list[pa.Buffer]]:
    """Head and parts of packed bytes; `DataError` if `pack` did not make them."""
    buffer = pa.py_buffer(data)
    try:
        (size,) = struct.unpack_from("<I", buffer)
        head, sizes = json.loads(bytes(buffer[4 : 4 + size]))
        at, parts = 4 + size, []
        for length in sizes:
            at += -at % _LINE
            parts.append(buffer.slice(at, length))
            at += length
    except (struct.error, ValueError, TypeError, IndexError) as error:
        raise DataError(f"a piece of the state of {buffer.size} bytes cannot be read: {error}.") from error
    if at != buffer.size:
        raise DataError(f"a piece of the state has {buffer.size} bytes, where {at} were stored.")
    return head, parts


def packed_rows(batches: Iterable[pa.RecordBatch | None]) -> pa.Array:
    """The rows of each batch as one binary value, which `unpack_rows` reads; null where there is no batch."""
    views = [None if batch is None else memoryview(batch.serialize()) for batch in batches]
    return pa.array(views, pa.binary())


def unpack_rows(data: pa.Buffer | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a serialised batch; `DataError` if the bytes are not rows of these columns."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        batch.validate()
    except (pa.ArrowInvalid, pa.ArrowIndexError, OSError, ValueError) as error:
        raise DataError(
            f"{len(memoryview(data))} bytes that should be rows of columns {schema.names} cannot be read ({error}); "
            f"the state or the exchange of this query is damaged: start it from an older checkpoint."
        ) from error
    return batch


def in_chunks(
    batches: Iterable[pa.RecordBatch], most_rows: int = CHUNK_ROWS, most_bytes: int = CHUNK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: small ones are combined, empty ones left out."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= most_rows or size >= most_bytes:
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def as_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns in the types and under the names of a schema."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
