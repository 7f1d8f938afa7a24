"""Combinations of rows as batches of the answer: checked where codes were hashed, cut to the room there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.layout import Layout
from dovetail.engine.memory import Reservation
from dovetail.errors import PlanError
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.phases import PHASE_COLUMN, Progress
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
        raise PlanError(
            f"the answer would have columns {twice} twice; rename them in an input, or the input itself.",
            argument="inputs",
        )
    return pa.schema(out)


class AnswerColumns(NamedTuple):
    """The schema of the answer, the columns of each input that are in it, and whether the phase follows them."""

    schema: pa.Schema
    taken: tuple[tuple[str, ...], ...]
    phased: bool


class Answers:
    """Turns combinations into batches that take at most the bytes of `room`, which are reserved all the time.

    Their sizes are known before rows are copied, so any number of combinations fits in any room that takes one.
    """

    def __init__(
        self, columns: AnswerColumns, keys: JoinKeys, room: Reservation, row_bytes: int, progress: Progress
    ) -> None:
        self._columns, self._keys, self.room, self._progress = columns, keys, room, progress
        self._row_bytes = float(max(1, row_bytes))

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

    def _built(self, rows: Sequence[pa.RecordBatch], phase: str) -> pa.RecordBatch:
        """Combinations, given as rows of each input, without those that hashes alone brought."""
        if not self._keys.exact:
            same = self._keys.same(rows)
            if not same.all():
                rows = [picked(batch, np.flatnonzero(same)) for batch in rows]
        columns = [batch.column(c) for batch, taken in zip(rows, self._columns.taken, strict=True) for c in taken]
        if self._columns.phased:
            columns.append(pa.repeat(pa.scalar(phase), len(columns[0])))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns.schema)
