"""Rows of a partitioned input that are in memory, in partition order, and where each partition begins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.interval.kernels.sweep_state import Rows
from dovetail.joins.interval.operators.feed import END, ROW, START
from dovetail.joins.interval.operators.weights import RowBytes

_NONE: I64 = int64s([])


@dataclass(frozen=True)
class Loaded:
    """A batch whose rows lie in pieces: piece i is rows first[i] to first[i + 1], of partition part[i] and key[i].

    `key` is empty if the join has no key.
    """

    batch: pa.RecordBatch
    part: I64
    first: I64
    key: I64
    row_bytes: RowBytes

    @cached_property
    def ordinals(self) -> I64:
        """Positions of the rows in their input."""
        return int64s(self.batch.column(ROW).to_numpy())

    @cached_property
    def _weights(self) -> I64:
        return self.row_bytes.of(self.batch)

    def rows(self) -> Rows:
        """What the kernels see; keys and weights are matters of the partitions."""
        start, end = (int64s(self.batch.column(name).to_numpy()) for name in (START, END))
        return Rows(start, end, _NONE, _NONE, 1)

    def bytes_of(self, rows: I64) -> I64:
        """What each of these rows weighs, in bytes."""
        return self._weights[rows] if self._weights.size else np.full(rows.size, self.row_bytes.fixed)


def nothing_loaded(schema: pa.Schema) -> Loaded:
    """No rows of this schema."""
    return Loaded(empty_batch(schema), int64s([]), int64s([0]), int64s([]), RowBytes(schema))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def pieces_of(parts: I64, keys: I64) -> tuple[I64, I64, I64]:
    """Of rows in which equal partitions and keys stand together: each partition once, the edges between, and the keys.

    Without keys (an empty array) there are none in the answer either.
    """
    if parts.size == 0:
        return int64s([]), int64s([0]), int64s([])
    changes = parts[1:] != parts[:-1]
    if keys.size:
        changes |= keys[1:] != keys[:-1]
    first = np.concatenate([[0], np.flatnonzero(changes) + 1])
    return int64s(parts[first]), int64s(np.append(first, parts.size)), int64s(keys[first] if keys.size else keys)
