"""Bundles rows before an exchange: the rows of one side for one partition travel as one binary value.

A task that sends rows orders a chunk of them by partition, and serialises the rows of each partition as one Arrow
batch. Spark exchanges few large values in place of many rows: neither side of the exchange converts a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.exchange.delivery import CELL, SIDE, SIDES, Delivery
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import nbytes, take_columns, taken_bytes
from dovetail.engine.rows.packing import as_schema, in_chunks, packed_rows, unpack_rows

ROWS = "__dt_rows"
_CHUNK_SHARE, _CHUNK_LIMIT = 8, 32 << 20  # of the budget: a chunk is held, ordered and serialised at one time
_BATCH_LIMIT = 64 << 20  # bytes that are serialised at one time; copies may be many
_COPIES = 3  # of a bundle: as Spark delivers it, opened, and combined with others


class Copied(Protocol):
    """Rows that other partitions than their own need."""

    def copies(self, rows: pa.RecordBatch, cells: I64) -> tuple[I64, I64]:
        """The numbers of these rows, one for each copy, and the partitions of the copies."""
        ...


class Placement(Protocol):
    """Says where rows go."""

    def cells(self, rows: pa.RecordBatch) -> I64:
        """The partition of each row."""
        ...


@dataclass(frozen=True, slots=True)
class InColumn:
    """A column has the partition of each row."""

    name: str

    def cells(self, rows: pa.RecordBatch) -> I64:
        """The partition of each row."""
        return int64s(np.asarray(rows[self.name], np.int64))


@dataclass(frozen=True, slots=True)
class Bundling:
    """The bundles of one side: rows have the columns of `schema`, and go where `placement` says.

    `copied` says which rows go to other partitions, too.
    """

    side: int
    placement: Placement
    schema: pa.Schema
    memory: int
    copied: Copied | None = None

    def bundles(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, a bundle for each partition that has some."""
        numbers, cells = self._with_copies(rows, self.placement.cells(rows))
        order = stable_order(cells)
        yield from self._bundled(rows.select(self.schema.names), int64s(numbers[order]), int64s(cells[order]))

    def _bundled(self, rows: pa.RecordBatch, numbers: I64, cells: I64) -> Iterator[pa.RecordBatch]:
        """The rows of these numbers, ordered by partition; in two halves where a batch would be too large."""
        if len(numbers) > 1 and taken_bytes(rows, numbers) > _BATCH_LIMIT:
            middle = len(numbers) // 2
            yield from self._bundled(rows, int64s(numbers[:middle]), int64s(cells[:middle]))
            yield from self._bundled(rows, int64s(numbers[middle:]), int64s(cells[middle:]))
            return
        ordered = as_schema(take_columns(rows, numbers), self.schema)
        found, firsts = np.unique(cells, return_index=True)
        yield pa.RecordBatch.from_pydict(
            {
                SIDE: pa.array(np.full(len(found), self.side, np.int8)),
                CELL: pa.array(found.astype(np.int32)),
                ROWS: serialized(ordered, int64s(firsts)),
            }
        )

    def _with_copies(self, rows: pa.RecordBatch, cells: I64) -> tuple[I64, I64]:
        """The numbers of all rows with their partitions, those of copies last."""
        numbers = int64s(np.arange(rows.num_rows))
        if self.copied is None:
            return numbers, cells
        copies, targets = self.copied.copies(rows, cells)
        return int64s(np.concatenate([numbers, copies])), int64s(np.concatenate([cells, targets]))


def bundle_rows(bundling: Bundling, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The bundles of a side's batches, chunk by chunk."""
    size = min(bundling.memory // _CHUNK_SHARE, _CHUNK_LIMIT)
    for chunk in in_chunks(batches, most_rows=size, most_bytes=size):
        yield from bundling.bundles(chunk)


class BundledDelivery(Delivery):
    """Delivers bundles to an operator: opens them, and combines those of a side that arrive together."""

    def __init__(
        self, schemas: Mapping[str, pa.Schema], first: pa.RecordBatch, budget: MemoryBudget, share: float
    ) -> None:
        super().__init__(schemas, min(_COPIES * nbytes(first), int(budget.limit * share)), budget)

    def take(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each side, as many bundles at a time as the room for them takes."""
        size = nbytes(batch)
        step = max(1, batch.num_rows * self.room // max(1, _COPIES * size))
        with self.holding(size, _COPIES * size):
            for first in range(0, batch.num_rows, step):
                for side, rows in opened(batch.slice(first, step), self.schemas):
                    self.rows[side] += rows.num_rows
                    yield side, rows


def serialized(rows: pa.RecordBatch, firsts: I64) -> pa.Array:
    """The rows from each of these numbers to the next, as binary values."""
    return packed_rows(rows.slice(first, last - first) for first, last in pairwise([*firsts.tolist(), rows.num_rows]))


def opened(bundles: pa.RecordBatch, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each side that has bundles here, as one batch."""
    sides = np.asarray(bundles[SIDE])
    for number, side in enumerate(SIDES):
        chosen = np.flatnonzero(sides == number)
        if len(chosen):
            data = bundles[ROWS]
            yield side, pa.concat_batches([unpack_rows(data[at].as_buffer(), schemas[side]) for at in chosen.tolist()])
