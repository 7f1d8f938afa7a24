"""Pairs of rows as batches of the answer: checked where codes were hashed, cut to the room there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.layout import Layout
from dovetail.engine.memory import Reservation
from dovetail.errors import PlanError
from dovetail.kernels.arrays import I64
from dovetail.online.keys import RowKeys
from dovetail.online.phases import PHASE_COLUMN
from dovetail.online.progress import Progress
from dovetail.online.store import picked

Rows: TypeAlias = Callable[[I64], pa.RecordBatch]


def with_phase(layout: Layout, wanted: bool) -> pa.Schema:
    """The schema of the answer, with the column of the phase if it is wanted."""
    if not wanted:
        return layout.schema
    if PHASE_COLUMN in layout.schema.names:
        raise PlanError(f"with_phase=True adds a column {PHASE_COLUMN!r}, which the inputs have; rename theirs.")
    return layout.schema.append(pa.field(PHASE_COLUMN, pa.string(), nullable=False))


class Answers:
    """Turns pairs into batches of at most `room` bytes, which are reserved all the time."""

    def __init__(
        self, layout: Layout, schema: pa.Schema, keys: RowKeys, room: Reservation, row_bytes: int, progress: Progress
    ) -> None:
        self.schema, self._layout, self._keys, self._room = schema, layout, keys, room
        self._limit = room.used
        self._row_bytes = float(max(1, row_bytes))
        self._phased = len(schema) > len(layout.schema)
        self._progress = progress

    def batches(self, left: Rows, left_at: I64, right: Rows, right_at: I64, phase: str) -> Iterator[pa.RecordBatch]:
        """The pairs (left_at[i], right_at[i]), whose columns `left` and `right` give."""
        done = 0
        while done < len(left_at):
            step = max(1, int(self._limit / (2.5 * self._row_bytes)))  # rows are gathered before they are put together
            stop = min(len(left_at), done + step)
            batch = self._built(left(left_at[done:stop]), right(right_at[done:stop]), phase)
            done = stop
            if batch.num_rows:
                self._measure(batch)
                self._progress.gave(phase, batch.num_rows)
                yield batch
                self._room.resize(self._limit)

    def _built(self, mine: pa.RecordBatch, theirs: pa.RecordBatch, phase: str) -> pa.RecordBatch:
        if not self._keys.exact:
            same = self._keys.same(mine, theirs)
            if not same.all():
                right = np.flatnonzero(same)
                mine, theirs = picked(mine, right), picked(theirs, right)
        plain = self._layout.batch(mine, theirs)
        if not self._phased:
            return plain
        phases = pa.repeat(pa.scalar(phase), plain.num_rows)
        return pa.RecordBatch.from_arrays([*plain.columns, phases], schema=self.schema)

    def _measure(self, batch: pa.RecordBatch) -> None:
        """Learn how wide rows are, and pay for what is wider than expected."""
        size = nbytes(batch)
        self._row_bytes = max(self._row_bytes * 0.9, size / batch.num_rows, 1.0)
        if 2 * size > self._limit:
            self._room.resize(2 * size)
