"""Arrow batches of the rows that a scan has completed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.xml.kernels import codes as code
from dovetail.xml.scan.request import ROW, Column, ScanRequest, count_name
from dovetail.xml.scan.tables import Tables


def schema_of(request: ScanRequest) -> pa.Schema:
    """The columns of a scan: the row's number, then for each column its value and their number, or a list of them."""
    fields = [pa.field(ROW, pa.int64(), nullable=False)]
    for column in request.columns:
        if column.many:
            fields.append(pa.field(column.name, pa.list_(pa.string()), nullable=False))
        else:
            fields += [
                pa.field(column.name, pa.string()),
                pa.field(count_name(column.name), pa.int32(), nullable=False),
            ]
    return pa.schema(fields)


def taken(tables: Tables, first_row: int, schema: pa.Schema) -> pa.RecordBatch:
    """The complete rows, taken out of the tables; a row that is still open stays in them."""
    rows = int(tables.mem[code.N_ROWS])
    counts = tables.table(code.COUNTS)
    arrays: list[pa.Array] = [pa.array(np.arange(first_row, first_row + rows))]
    for number, column in enumerate(tables.columns):
        arrays += _arrays(tables, number, column, counts[number, :rows])
        shown = counts[number, :rows] if column.many else np.minimum(counts[number, :rows], 1)
        _forget(tables, number, int(shown.sum()))
    if tables.mem[code.ROW_OPEN]:
        counts[:, 0] = counts[:, rows]
    tables.mem[[code.N_ROWS, code.ROOM, code.VALUES_LEFT]] = 0
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrays(tables: Tables, number: int, column: Column, counts: I64) -> list[pa.Array]:
    ends, start = tables.table(code.ENDS)[number], int(tables.table(code.COLUMN)[number, code.C_START])
    shown = counts if column.many else np.minimum(counts, 1)
    upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(shown)])
    offsets = ends[: upto[-1] + 1] if column.many else ends[upto]
    data = pa.py_buffer(tables.data[start : start + int(offsets[-1])].tobytes())
    text_offsets = pa.py_buffer(offsets.astype(np.int32))
    if column.many:
        values = pa.StringArray.from_buffers(len(offsets) - 1, text_offsets, data)
        return [pa.ListArray.from_arrays(pa.array(upto.astype(np.int32)), values)]
    missing = int((counts == 0).sum())
    valid = pa.py_buffer(np.packbits(counts > 0, bitorder="little")) if missing else None
    value = pa.StringArray.from_buffers(len(counts), text_offsets, data, valid, missing)
    return [value, pa.array(counts.astype(np.int32))]


def _forget(tables: Tables, number: int, values: int) -> None:
    """Drop the first values of a column; what follows them belongs to the open row and moves to the front."""
    record, ends = tables.table(code.COLUMN)[number], tables.table(code.ENDS)[number]
    start, fill, known = (int(record[place]) for place in (code.C_START, code.C_FILL, code.C_VALUES))
    gone = int(ends[values])
    tables.data[start : fill - gone] = tables.data[start + gone : fill].copy()
    ends[: known - values + 1] = ends[values : known + 1] - gone
    record[[code.C_FILL, code.C_VALUES, code.C_ROW_FILL, code.C_ROW_VALUES]] = fill - gone, known - values, 0, 0
