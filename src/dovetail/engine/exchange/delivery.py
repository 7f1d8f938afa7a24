"""Rows of both sides of a join in one stream of batches, as an exchange delivers them to a task.

A batch has a column with the side of a row, one with its partition, and places for the columns of both sides. Columns
of one type may share a place, so that a row is little wider than a row of its own side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import nbytes

SIDE, CELL = "__dt_side", "__dt_cell"
LEFT, RIGHT = 0, 1
SIDES = ("left", "right")  # by their numbers
Columns = Mapping[str, str]
"""The columns of a side, each with its place in the batches."""


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
