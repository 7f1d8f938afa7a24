"""Converts combinations of rows to answer batches, and counts them by phase.

Combinations are verified if their keys were hashed, and batches are cut to the reserved bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import Clock
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.layout import Layout
from dovetail.engine.rows.named_rows import NamedRows, Picks, picked
from dovetail.errors import PlanError
from dovetail.joins.online.keys import JoinKeys

ARRIVING, REACTIVE, CLEANUP = "arriving", "reactive", "cleanup"
PHASES = (ARRIVING, REACTIVE, CLEANUP)
PHASE_COLUMN = "_phase"
MARKS = (1, 10, 50, 90)
_MOST_POINTS = 512


class Progress:
    """Results of each phase, and points (rows arrived, nanoseconds, results) at most 512 of them, evenly thinned."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._start_ns = clock, clock.now_ns()
        self.arrived = 0
        self.results = dict.fromkeys(PHASES, 0)
        self._points: list[tuple[int, int, int]] = []
        self._every, self._skipped = 1, 0

    @property
    def total(self) -> int:
        """Results so far."""
        return sum(self.results.values())

    def gave(self, phase: str, n: int) -> None:
        """Record `n` results of a phase."""
        self.results[phase] += n
        self._skipped += 1
        if self._skipped >= self._every:
            self._skipped = 0
            self._points.append((self.arrived, self._clock.now_ns() - self._start_ns, self.total))
            if len(self._points) > _MOST_POINTS:
                self._points = self._points[1::2]
                self._every *= 2

    def marks(self) -> dict[int, tuple[int, int]]:
        """Rows arrived and nanoseconds passed when 1, 10, 50 and 90 % of the results so far had been produced."""
        total = self.total
        now = (self.arrived, self._clock.now_ns() - self._start_ns, total)
        found = {}
        for mark in MARKS if total else ():
            point = next((p for p in self._points if p[2] * 100 >= mark * total), now)
            found[mark] = point[0], point[1]
        return found

    def record(self, metrics: Metrics) -> None:
        """Record the results of each phase, and the marks."""
        for phase, n in self.results.items():
            metrics.add(f"results_{phase}", n)
        for mark, (arrived, ns) in self.marks().items():
            metrics.peak(f"arrivals_to_{mark}_percent", arrived, unit="rows")
            metrics.peak(f"time_to_{mark}_percent", ns, unit="ns")


class Asked:
    """Wraps an `until` that is called after each unit of work, and records the longest time between two calls.

    >>> from dovetail.engine.clock import RealClock
    >>> asked = Asked(lambda: True, RealClock())
    >>> asked(), asked.longest_ns >= 0
    (True, True)
    """

    def __init__(self, until: Callable[[], bool], clock: Clock) -> None:
        self._until, self._clock, self._last = until, clock, clock.now_ns()
        self.longest_ns = 0

    def __call__(self) -> bool:
        """The result of the wrapped `until`."""
        now = self._clock.now_ns()
        self.longest_ns, self._last = max(self.longest_ns, now - self._last), now
        return self._until()

    def record(self, metrics: Metrics) -> None:
        """Record the hand-over delay."""
        metrics.peak("handover_delay", self.longest_ns, unit="ns")


_PAIR_BYTES = 160  # of a pair whose bounds are compared: four bounds, as columns and as codes, with their copies
_COPIES = 2.5  # rows are gathered before they are put together


def with_phase(layout: Layout, wanted: bool) -> pa.Schema:
    """The schema of the answer, with the column of the phase if requested."""
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
        if self._keys.bounds is not None:
            refs = self._related(rows, refs, self._keys.bounds)
        done = 0
        while done < len(refs[0]):
            picks = self._fitting(rows, [some[done:] for some in refs])
            batch = self._built([of.take(some) for of, some in zip(rows, picks, strict=True)], phase)
            done += picks[0].n
            if batch.num_rows:
                self._progress.gave(phase, batch.num_rows)
                yield batch

    def _related(
        self, rows: Sequence[NamedRows], refs: Sequence[I64], bounds: Sequence[Sequence[str]]
    ) -> Sequence[I64]:
        """The pairs whose intervals stand in the relation; only their bounds are read, as many as fit in the room."""
        step, kept = max(1, self.room.used // _PAIR_BYTES), []
        for start in range(0, len(refs[0]), step):
            some = [each[start : start + step] for each in refs]
            taken = [of.take_columns(names, Picks.of(at)) for of, names, at in zip(rows, bounds, some, strict=True)]
            kept.append(start + np.flatnonzero(self._keys.related(taken)))
        found = np.concatenate(kept) if kept else np.zeros(0, np.int64)
        return [each[found] for each in refs]

    def _fitting(self, rows: Sequence[NamedRows], refs: Sequence[I64]) -> list[Picks]:
        """As many combinations as fit, at least one; one that is wider than the room is charged in addition."""
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
        """Combinations, given as rows of each input, without those whose hashes alone are equal."""
        if not self._keys.exact:
            same = self._keys.same(rows)
            if not same.all():
                rows = [picked(batch, np.flatnonzero(same)) for batch in rows]
        columns = [batch.column(c) for batch, taken in zip(rows, self._columns.taken, strict=True) for c in taken]
        if self._columns.phased:
            columns.append(pa.repeat(pa.scalar(phase), len(columns[0])))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns.schema)
