"""Sends rows of both sides of a join in one stream of batches, row by row or in bundles, and delivers them to a task.

A batch of rows has a column with the side of a row, one with its partition, and places for the columns of both sides.
Columns of one type may share a place, so that a row is little wider than a row of its own side.

A bundle has the rows of one side for one partition as one binary value: a task that sends rows orders a chunk of them
by partition, and serialises the rows of each partition as one Arrow batch. Spark exchanges few large values in place of
many rows: neither side of the exchange converts a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import nbytes, take_columns, taken_bytes
from dovetail.engine.rows.packing import as_schema, in_chunks, packed_rows, unpack_rows

SIDE, CELL = "__dt_side", "__dt_cell"
LEFT, RIGHT = 0, 1
SIDES = ("left", "right")  # by their numbers
Columns = Mapping[str, str]
"""The columns of a side, each with its place in the batches."""
ROWS = "__dt_rows"
_CHUNK_SHARE, _CHUNK_LIMIT = 8, 32 << 20  # of the budget: a chunk is held, ordered and serialised at one time
_BATCH_LIMIT = 64 << 20  # bytes that are serialised at one time; copies may be many
_COPIES = 3  # of a bundle: as Spark delivers it, opened, and combined with others


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the columns of both sides, and of the pairs of columns that share a place, in order."""

    left: Columns
    right: Columns
    paired: tuple[str, ...] = ()


class Delivery:
    """Delivers the batches of an exchange to an operator, and counts their rows and the memory of the current one.

    Spark passes whole Arrow batches. At most `room` bytes of the budget are kept free for the current batch; memory of
    a batch beyond that is Spark's, and reported.
    """

    def __init__(self, schemas: Mapping[str, pa.Schema], room: int, budget: MemoryBudget) -> None:
        self.schemas, self.room = schemas, room
        self.rows = dict.fromkeys(SIDES, 0)
        self._held = budget.reserve("delivered batch")
        self._peak = 0

    @contextmanager
    def holding(self, size: int, needed: int) -> Iterator[None]:
        """While a batch of `size` bytes is used, for which `needed` bytes are charged as far as there is room."""
        self._peak = max(self._peak, size)
        self._held.resize(min(needed, self.room))
        yield
        self._held.resize(0)

    def close(self) -> None:
        """Release the memory of the current batch."""
        self._held.close()

    def record(self, metrics: Metrics, budget: MemoryBudget) -> None:
        """Record the rows of each side that has some, the largest batch and the peak of the memory."""
        for side, rows in self.rows.items():
            if rows:
                metrics.add("placed", rows, side=side, per_task=True)
        metrics.peak("memory", budget.peak)
        if self._peak:
            metrics.peak("delivered_batch", self._peak)


class RowDelivery(Delivery):
    """Delivers rows of both sides in one batch: separates those of each side. At most `share` of the budget is kept."""

    def __init__(
        self, left: Columns, right: Columns, first: pa.RecordBatch, budget: MemoryBudget, share: float
    ) -> None:
        self._sides = (("left", LEFT, left), ("right", RIGHT, right))
        # Spark announces some columns as never null; in rows of the other side they are.
        schemas = {
            side: pa.schema(
                [first.schema.field(place).with_name(name).with_nullable(True) for name, place in own.items()]
            )
            for side, _, own in self._sides
        }
        super().__init__(schemas, min(2 * nbytes(first), int(budget.limit * share)), budget)

    def take(self, batch: pa.RecordBatch, piece_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """The batch in pieces of about `piece_bytes` bytes; the batch stays charged until the last piece is used."""
        size = nbytes(batch)
        rows = batch.num_rows if piece_bytes is None else max(1, batch.num_rows * piece_bytes // max(1, size))
        with self.holding(size, size):
            for first in range(0, batch.num_rows, max(1, rows)):
                yield batch.slice(first, rows)

    def by_side(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch, npt.NDArray[np.intp]]]:
        """The rows of each side that has some, with its own columns, and their positions in the batch."""
        sides = np.asarray(batch[SIDE])
        for side, number, own in self._sides:
            chosen = np.flatnonzero(sides == number)
            if not len(chosen):
                continue
            self.rows[side] += len(chosen)
            rows = pa.RecordBatch.from_arrays([batch[place] for place in own.values()], schema=self.schemas[side])
            yield side, rows if len(chosen) == batch.num_rows else rows.take(pa.array(chosen)), chosen


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
