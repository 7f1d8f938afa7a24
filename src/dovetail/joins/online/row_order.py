"""Hashes of whole rows, and an order of rows that depends on their values alone.

A micro-batch that Spark repeats has the same rows, but other cores, other partitions and shuffles bring them in another
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import fixed_values, fixed_width, memory_of, offsets_of, row_bytes, valid_rows
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.hashing import folded, text_hashes
from dovetail.joins.online.row_pages import SHIFT, NamedRows, Picks


def in_fixed_order(batches: Sequence[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in an order, and cut into batches, that follow from the rows alone, however they were cut before.

    Rows of equal hashes are equal, or one case in 2^64: then they stay in the order in which they came.
    """
    hashes = np.concatenate([row_hashes(batch) for batch in batches])
    names = np.concatenate([(at << SHIFT) + np.arange(batch.num_rows) for at, batch in enumerate(batches)])
    size = sum(int(row_bytes(batch).sum()) for batch in batches)
    step = max(1, min(most_rows, most_bytes * len(names) // max(1, size)))
    names = names[np.argsort(hashes, kind="stable")]
    rows = NamedRows(dict(enumerate(batches)), batches[0].schema)
    for at in range(0, len(names), step):
        yield rows.take(Picks.of(names[at : at + step]), distinct=True)


def row_hashes(batch: pa.RecordBatch) -> I64:
    """A hash of all columns of each row, the same in every process."""
    found = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        found = folded(found, _hashes(column))
    return found


def _hashes(array: pa.Array) -> I64:
    """A hash of each value; 0 of nulls, whatever lies below them."""
    return np.where(valid_rows(array), _value_hashes(array), 0)


def _value_hashes(array: pa.Array) -> I64:
    kind, n = array.type, len(array)
    if pa.types.is_null(kind) or n == 0:
        return np.zeros(n, np.int64)
    if pa.types.is_boolean(kind):
        return byte_hashes(array.cast(pa.int8()))
    if pa.types.is_struct(kind):
        return row_hashes(pa.RecordBatch.from_arrays(array.flatten(), [str(at) for at in range(kind.num_fields)]))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _list_hashes(array)
    return byte_hashes(array)


def _list_hashes(array: pa.Array) -> I64:
    """Those of lists: the sum of what each item is at its place, which is a difference of two running sums."""
    offsets = offsets_of(array).astype(np.int64)
    items = _hashes(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets, sizes = offsets - offsets[0], np.diff(offsets)
    places = np.arange(len(items)) - np.repeat(offsets[:-1], sizes)
    sums = np.append(0, np.cumsum(folded(items, places)))
    return folded(int64s(sums[offsets[1:]] - sums[offsets[:-1]]), int64s(sizes))


def byte_hashes(array: pa.Array) -> I64:
    """A hash of each value of a type of fixed width, of text or of binary values."""
    if len(array) == 0:
        return np.empty(0, np.int64)
    width = fixed_width(array.type)
    if width is None:
        return text_hashes(offsets_of(array), memory_of(array, 2))
    return text_hashes(np.arange(len(array) + 1, dtype=np.int64) * width, fixed_values(array, width))
