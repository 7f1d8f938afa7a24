"""The session of a join in a worker, the same in both modes: opened, brought to new versions, re-split, reported."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.semistream.cost.reads import IoDone, dearer
from dovetail.joins.semistream.decision import (
    Decision,
    decide,
    is_enough,
    measured_sizes,
    moved,
    sample_of,
    specification,
)
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.plan.task import EnrichTask
from dovetail.joins.semistream.sizes import FITTED
from dovetail.spark.arrow import Batches


class Session:
    """A running join, the version that it reads, and the decision that it runs by.

    `turns` counts tasks, or micro-batches with rows, so far. A session that `is_spent` answered all it was given, but
    its parts cannot take up the decision: the next turn opens another.
    """

    def __init__(self, task: EnrichTask, pages: Pages, stream: pa.Schema, decision: Decision, turns: int = 0) -> None:
        self.task, self.pages, self.stream, self.decision, self.turns = task, pages, stream, decision, turns
        self.operator = _opened(task, pages, stream, decision)
        self.is_spent = False
        self.resplits = 0
        self._spent_ns = 0
        self._counted = Metrics()
        self._read = IoDone.by(pages.device)

    @classmethod
    def first(
        cls, task: EnrichTask, pages: Pages, stream: pa.Schema, head: list[pa.RecordBatch], n_rows: int | None = None
    ) -> Session:
        """A session decided from its first rows, if nothing else is known of the stream; a turn has `n_rows` if known.

        The pages are closed if it cannot be opened.
        """
        try:
            return cls(task, pages, stream, _first_decision(task, pages, head, n_rows))
        except BaseException:
            pages.close()
            raise

    def push(self, batch: pa.RecordBatch) -> Batches:
        """Take stream rows and give the answers that are possible now."""
        return self.timed(self.operator.push("stream", batch))

    def drain(self) -> Batches:
        """Answer everything that waits."""
        return self.timed(self.operator.drain())

    def timed(self, batches: Batches) -> Batches:
        """The same batches; only the time inside the operator counts as serving."""
        while True:
            start = time.perf_counter_ns()
            batch = next(batches, None)
            self._spent_ns += time.perf_counter_ns() - start
            if batch is None:
                return
            yield batch

    def adopt(self, pages: Pages) -> Batches:
        """Answer what waits from the old version, then read the new one."""
        old = self.pages
        yield from self.timed(self.operator.adopt(pages, changed_pages(self.task, old.version, pages.version)))
        self.pages, self._read = pages, IoDone.by(pages.device)
        old.close()

    def resplit(self, rows: pa.RecordBatch, n_rows: int | None) -> Batches:
        """Split memory again if the skew or the cost of reads is no longer what the decision was made for.

        `rows` are some of the turn, which had `n_rows` if that is known.
        """
        self.turns += 1
        found = self._next_decision(rows, n_rows)
        if found is None:
            return
        self.decision, self._read = found, IoDone.by(self.pages.device)
        self.resplits += 1
        yield from self.drain()
        task = self.task
        spec = specification(task.request, task.wiring, self.pages, found.algorithm, found.sizes)
        try:
            yield from self.timed(self.operator.resize(spec.fit(task.request.join_memory, self.stream)))
        except (BudgetExceeded, PlanError):  # these parts cannot change while it runs
            self.is_spent = True

    def _next_decision(self, rows: pa.RecordBatch, n_rows: int | None) -> Decision | None:
        task, now = self.task, self.decision
        request = task.request
        if not _looks_again(self.turns) or request.tune != "model" or request.sizes is not None:
            return None
        start = time.perf_counter_ns()
        sample = sample_of([rows], task.wiring.on, self.pages, n_rows)
        done = IoDone.by(self.pages.device)
        ratio, self._read = dearer(now.io, done.since(self._read), self.pages), done
        found = None
        if moved(now.exponent, sample, int(self.pages.starts[-1])) or (ratio is not None and is_enough(sample)):
            seen = now.io if ratio is None or now.io is None else now.io.times(ratio)
            request = replace(request, algorithm=now.algorithm)
            found = decide(request, task.wiring, self.pages, self.stream, sample, seen)
        self._spent_ns += time.perf_counter_ns() - start
        return None if found is None or found.same_as(now) else found

    def report(self) -> Metrics:
        """What was done since the last report."""
        now = _totals(self.operator)
        report, self._counted = difference(now, self._counted), now
        report.add_ns("serving", self._spent_ns)
        if self.resplits:
            report.add("resplits", self.resplits, unit="times")
        self._spent_ns = self.resplits = 0
        return report

    def close(self) -> None:
        """Free memory, files and connections."""
        try:
            self.operator.close()
        finally:
            self.pages.close()


def _looks_again(turns: int) -> bool:
    """Whether the skew is estimated again after so many turns: after 4, 16 and 64 of them, then after every 256."""
    return turns in (4, 16, 64) or turns % 256 == 0


def _first_decision(task: EnrichTask, pages: Pages, head: list[pa.RecordBatch], n_rows: int | None) -> Decision:
    decision = task.decision
    if task.learns and head:
        sample = sample_of(head, task.wiring.on, pages, n_rows)
        decision = decide(task.request, task.wiring, pages, head[0].schema, sample)
    if task.request.tune == "measure" and head:
        decision = measured_sizes(task.request, task.wiring, pages, head, decision)
    return decision


def _opened(task: EnrichTask, pages: Pages, stream: pa.Schema, decision: Decision) -> SemiStreamOperator:
    """The running join in a budget of its own; sizes that this version has no room for are fitted."""
    spec = specification(task.request, task.wiring, pages, decision.algorithm, decision.sizes)
    try:
        return spec.open(MemoryBudget(task.request.join_memory, "enrich"), {"stream": stream})
    except (BudgetExceeded, PlanError):
        if decision.origin in ("explicit", "carried"):
            raise
        budget = MemoryBudget(task.request.join_memory, "enrich")
        return replace(spec, sizes=FITTED).open(budget, {"stream": stream})


def changed_pages(task: EnrichTask, old: str, new: str) -> I64 | None:
    """Pages that differ between two versions; None if that cannot be told, as when the old one is gone."""
    try:
        return task.store.changed(old, new)
    except ConfigError:
        return None


def _totals(operator: SemiStreamOperator) -> Metrics:
    """Everything that an operator has counted since it was opened."""
    own, operator.metrics = operator.metrics, Metrics()
    try:
        found = operator.report()
    finally:
        operator.metrics = own
    found.peak("memory_peak", operator.budget.peak)
    for component, held in operator.budget.at_peak().items():
        found.peak("memory", held, component)
    return found


def difference(now: Metrics, before: Metrics) -> Metrics:
    """Counters as far as they grew, and peaks as they are."""
    known = {(e.name, e.side): e.value for e in before.entries()}
    found = Metrics()
    for entry in now.entries():
        if entry.kind == "peak":
            found.peak(entry.name, entry.value, entry.side, entry.unit)
        elif entry.value != known.get((entry.name, entry.side), 0):
            found.add(entry.name, entry.value - known.get((entry.name, entry.side), 0), entry.side, entry.unit)
    return found
