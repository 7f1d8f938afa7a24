"""Combinations of rows as batches of the answer: checked where codes were hashed, cut to the room there is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.layout import Layout
from dovetail.engine.memory import Reservation
from dovetail.errors import PlanError
from dovetail.joins.online.keys import RowKeys
from dovetail.joins.online.phases import PHASE_COLUMN
from dovetail.joins.online.progress import Progress
from dovetail.joins.online.row_pages import NamedRows, Picks, picked

_COPIES = 2.5  # rows are gathered before they are put together


def with_phase(layout: Layout, wanted: bool) -> pa.Schema:
    """The schema of the answer, with the column of the phase if it is wanted."""
    if not wanted:
        return layout.schema
    if PHASE_COLUMN in layout.schema.names:
        raise PlanError(
            f"with_phase=True adds a column {PHASE_COLUMN!r}, which the inputs have; rename theirs.",
            argument="with_phase",
        )
    return layout.schema.append(pa.field(PHASE_COLUMN, pa.string(), nullable=False))


class AnswerBatches(ABC):
    """Turns combinations into batches that take at most the bytes of `room`, which are reserved all the time.

    Their sizes are known before rows are copied, so any number of combinations fits in any room that takes one.
    """

    def __init__(self, schema: pa.Schema, room: Reservation, row_bytes: int, progress: Progress, phased: bool) -> None:
        self.schema, self.room, self._progress, self._phased = schema, room, progress, phased
        self._row_bytes = float(max(1, row_bytes))

    @abstractmethod
    def put_together(self, rows: Sequence[pa.RecordBatch]) -> list[pa.Array]:
        """The columns of combinations, given as rows of each input, without those that hashes alone brought."""

    def batches(self, rows: Sequence[NamedRows], refs: Sequence[I64], phase: str) -> Iterator[pa.RecordBatch]:
        """The combinations of the rows named in `refs`, by input."""
        done = 0
        while done < len(refs[0]):
            picks = self._fitting(rows, [some[done:] for some in refs])
            batch = self._built([of.take(some) for of, some in zip(rows, picks, strict=True)], phase)
            done += picks[0].n
            if batch.num_rows:
                self._progress.gave(phase, batch.num_rows)
                yield batch

    def _fitting(self, rows: Sequence[NamedRows], refs: Sequence[I64]) -> list[Picks]:
        """As many combinations as there is room for, at least one; that is paid for if it is wider than the room."""
        n = len(refs[0])
        while True:
            n = max(1, min(n, int(self.room.used / (_COPIES * self._row_bytes))))
            picks = [Picks.of(some[:n]) for some in refs]
            size = sum(of.nbytes(some) for of, some in zip(rows, picks, strict=True))
            self._row_bytes = max(1.0, size / n)
            if n == 1 or _COPIES * size <= self.room.used:
                break
        if size > self.room.used:
            self.room.resize(size)
        return picks

    def _built(self, rows: list[pa.RecordBatch], phase: str) -> pa.RecordBatch:
        columns = self.put_together(rows)
        if self._phased:
            columns.append(pa.repeat(pa.scalar(phase), len(columns[0])))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


class Answers(AnswerBatches):
    """The answers of a join of two inputs."""

    def __init__(
        self, layout: Layout, schema: pa.Schema, keys: RowKeys, room: Reservation, row_bytes: int, progress: Progress
    ) -> None:
        super().__init__(schema, room, row_bytes, progress, len(schema) > len(layout.schema))
        self._layout, self._keys = layout, keys

    def put_together(self, rows: Sequence[pa.RecordBatch]) -> list[pa.Array]:
        """The columns of pairs."""
        left, right = rows
        if not self._keys.exact:
            same = self._keys.same(left, right)
            if not same.all():
                left, right = (picked(batch, np.flatnonzero(same)) for batch in rows)
        return list(self._layout.batch(left, right).columns)
