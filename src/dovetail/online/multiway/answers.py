"""Combinations of rows as batches of the answer: names of columns, cut to the room there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.memory import Reservation
from dovetail.errors import PlanError
from dovetail.kernels.arrays import I64
from dovetail.online.multiway.keys import MultiKeys
from dovetail.online.phases import PHASE_COLUMN
from dovetail.online.progress import Progress
from dovetail.online.store import picked

RowsOf: TypeAlias = Callable[[int, I64], pa.RecordBatch]
"""The rows of an input by their names."""


def multi_schema(names: Sequence[str], schemas: Mapping[str, pa.Schema], with_phase: bool) -> pa.Schema:
    """The columns of all inputs in order; a name that several inputs have is preceded by its input's: orders_id.

    `PlanError` if that makes a name that another column has.
    """
    fields = [(name, field) for name in names for field in schemas[name]]
    often = Counter(field.name for _, field in fields)
    out = [field.with_name(f"{name}_{field.name}") if often[field.name] > 1 else field for name, field in fields]
    if with_phase:
        out.append(pa.field(PHASE_COLUMN, pa.string(), nullable=False))
    twice = sorted(name for name, n in Counter(field.name for field in out).items() if n > 1)
    if twice:
        raise PlanError(f"the answer would have columns {twice} twice; rename them in an input, or the input itself.")
    return pa.schema(out)


class MultiAnswers:
    """Turns combinations into batches of at most `room` bytes, which are reserved all the time."""

    def __init__(
        self, schema: pa.Schema, keys: MultiKeys, room: Reservation, row_bytes: int, progress: Progress, phased: bool
    ) -> None:
        self.schema, self._keys, self._room, self._progress, self._phased = schema, keys, room, progress, phased
        self._limit = room.used
        self._row_bytes = float(max(1, row_bytes))

    def batches(self, rows_of: RowsOf, refs: I64, phase: str) -> Iterator[pa.RecordBatch]:
        """The combinations `refs`, by row and input."""
        done = 0
        while done < len(refs):
            stop = done + max(1, int(self._limit / (2.5 * self._row_bytes)))  # gathered before they are put together
            batch = self._built([rows_of(r, refs[done:stop, r]) for r in range(refs.shape[1])], phase)
            done = stop
            if batch.num_rows:
                self._measure(batch)
                self._progress.gave(phase, batch.num_rows)
                yield batch
                self._room.resize(self._limit)

    def _built(self, rows: list[pa.RecordBatch], phase: str) -> pa.RecordBatch:
        if not self._keys.exact:
            same = self._keys.same(rows)
            if not same.all():
                rows = [picked(batch, np.flatnonzero(same)) for batch in rows]
        columns = [column for batch in rows for column in batch.columns]
        if self._phased:
            columns.append(pa.repeat(pa.scalar(phase), rows[0].num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _measure(self, batch: pa.RecordBatch) -> None:
        """Learn how wide rows are, and pay for what is wider than expected."""
        size = nbytes(batch)
        self._row_bytes = max(self._row_bytes * 0.9, size / batch.num_rows, 1.0)
        if 2 * size > self._limit:
            self._room.resize(2 * size)
