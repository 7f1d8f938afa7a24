"""Runs a task of an enrichment: its input, the current attempt, and the session that answers its rows.

Both modes use a session: it is opened, adopts new versions, is re-split and reports. In mode "per_batch" a worker
keeps it between tasks and micro-batches, for its caches only: a lost session is opened again and gives the same
answers.
"""

from __future__ import annotations

import atexit
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.clock import queued_ns
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.semistream.cost.reads import IoDone, dearer
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.decision import (
    Decision,
    Wiring,
    check_store,
    decide,
    is_enough,
    keys_in,
    measured_sizes,
    moved,
    sample_of,
    specification,
    timed_costs,
)
from dovetail.joins.semistream.master.pages import Pages, Resting
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.plan.attempt import Attempt, is_awake
from dovetail.joins.semistream.request import Drop, Park, Request
from dovetail.joins.semistream.sizes import FITTED
from dovetail.joins.semistream.versions import VersionLog
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.pool import Pool
from dovetail.spark.task import MetricsSink

_OUTGROWN = 8  # times the rows of the first micro-batch


@dataclass(frozen=True, slots=True)
class EnrichTask:
    """One planned enrichment as its tasks see it.

    Columns have neutral names inside, so that none can clash: the stream's by position, `wiring.on` among them.
    `stream` has the columns that operators get, `picked` is, for each output column, its position among the operator's.
    `dead_letter_columns` are the stream's columns as the user named them. `streams`: the planned frame is a stream.
    `learns`: the first rows decide sizes, as the stream was unknown when it was planned.
    """

    plan: str
    store: MasterStore
    request: Request
    decision: Decision
    wiring: Wiring
    n_stream: int
    stream: pa.Schema
    picked: tuple[int, ...]
    output: pa.Schema
    dead_letter_columns: pa.Schema
    log: VersionLog
    version: str | None
    learns: bool
    sink: MetricsSink
    streams: bool = False

    def stream_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch from Spark under our names; timestamps that are keys in the master's unit and zone, a name only."""
        arrays, names = batch.columns[: self.n_stream], stream_names(self.n_stream)
        for name, key in zip(self.wiring.on, self.store.probed, strict=True):
            at, kind = names.index(name), self.store.schema.field(key).type
            if pa.types.is_timestamp(kind):
                arrays[at] = _as(arrays[at], kind)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def answer_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """An operator's batch as the result has it."""
        arrays = [_as(batch.column(at), field.type) for at, field in zip(self.picked, self.output, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def split_misses(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows of an operator's batch that match, and the stream's columns of the others, None if not needed."""
        if isinstance(self.request.on_miss, Drop):
            return batch, None
        met = batch.column(batch.num_columns - 1)
        return batch.filter(met), batch.filter(pc.invert(met)).select(range(self.n_stream))

    def dead_letter_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The stream's part of an operator's batch, under the user's names."""
        arrays = [_as(batch.column(at), field.type) for at, field in enumerate(self.dead_letter_columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.dead_letter_columns)


def stream_names(n: int) -> list[str]:
    """The names of the stream's columns inside tasks."""
    return [f"\0{at}" for at in range(n)]


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def matched(
    task: EnrichTask, batches: Batches, dead: DeadLetters | None, parked: list[pa.RecordBatch] | None = None
) -> Batches:
    """Batches as the result has them, without rows that go to the dead letters or are parked."""
    for batch in batches:
        found, missed = task.split_misses(batch)
        if dead is not None and missed is not None:
            dead.add(task.dead_letter_rows(missed))
        elif parked is not None and missed is not None and missed.num_rows and isinstance(task.request.on_miss, Park):
            parked.append(missed)
        if found.num_rows:
            yield task.answer_rows(found)


class Session:
    """A running join, the version that it reads, and the decision that it runs by.

    `micro_batches` counts tasks, or micro-batches with rows, so far. A session that `is_spent` has answered all its
    rows, but cannot apply the new decision, or micro-batches have outgrown it: the next one opens another.
    """

    def __init__(
        self, task: EnrichTask, pages: Pages, stream: pa.Schema, decision: Decision, micro_batches: int = 0
    ) -> None:
        self.task, self.pages, self.stream, self.decision = task, pages, stream, decision
        self.micro_batches = micro_batches
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
        """A session decided from its first rows, if the stream is otherwise unknown.

        The micro-batch has `n_rows` rows if that is known.
        The pages are closed if it cannot be opened.
        """
        try:
            return cls(task, pages, stream, _first_decision(task, pages, head, n_rows))
        except BaseException:
            pages.close()
            raise

    def push(self, batch: pa.RecordBatch) -> Batches:
        """Take stream rows; yields the answers that are now possible."""
        return self.timed(self.operator.push("stream", batch))

    def drain(self) -> Batches:
        """Answer all waiting rows."""
        return self.timed(self.operator.drain())

    def timed(self, batches: Batches) -> Batches:
        """The same batches; only the time inside the operator counts as serving, without waits for a processor."""
        while True:
            start = time.perf_counter_ns() - queued_ns()
            batch = next(batches, None)
            self._spent_ns += time.perf_counter_ns() - queued_ns() - start
            if batch is None:
                return
            yield batch

    def adopt(self, pages: Pages) -> Batches:
        """Answer waiting rows from the old version, then read the new one."""
        old = self.pages
        yield from self.timed(self.operator.adopt(pages, changed_pages(self.task, old.version, pages.version)))
        self.pages, self._read = pages, IoDone.by(pages.device)
        old.close()

    def resplit(self, rows: pa.RecordBatch, n_rows: int | None) -> Batches:
        """Split memory again if the skew or the cost of reads is no longer what the decision was made for.

        `rows` are some of the micro-batch, which had `n_rows` if that is known.
        """
        self.micro_batches += 1
        found = self._next_decision(rows, n_rows)
        if found is None:
            return
        self.decision, self._read = found, IoDone.by(self.pages.device)
        self.resplits += 1
        yield from self.drain()
        task = self.task
        spec = specification(task.request, task.wiring, self.pages, found.algorithm, found.sizes)
        try:
            memory = task.request.beside(self.pages).join_memory
            yield from self.timed(self.operator.resize(spec.fit(memory, self.stream)))
        except (BudgetExceeded, PlanError):  # these parts cannot change while it runs
            self.is_spent = True

    def _next_decision(self, rows: pa.RecordBatch, n_rows: int | None) -> Decision | None:
        task, now = self.task, self.decision
        request = task.request
        if not _looks_again(self.micro_batches) or request.tune != "model" or request.sizes is not None:
            return None
        if now.algorithm == "hash_join":  # nothing is read, so neither skew nor costs matter
            return None
        if n_rows is not None and self._is_outgrown(n_rows):
            self.is_spent = True
            return None
        sample = sample_of([rows], task.wiring.on, self.pages, n_rows)
        done = IoDone.by(self.pages.device)
        ratio, self._read = dearer(now.io, done.since(self._read), self.pages), done
        found = None
        if moved(now.exponent, sample, keys_in(self.pages)) or (ratio is not None and is_enough(sample)):
            seen = now.io if ratio is None or now.io is None else now.io.times(ratio)
            request = replace(request, algorithm=now.algorithm)
            found = decide(request, task.wiring, self.pages, self.stream, sample, seen)
        return None if found is None or found.same_as(now) else found

    def _is_outgrown(self, n_rows: int) -> bool:
        """Whether micro-batches have grown enough for another algorithm to suit them."""
        price = self.decision.price
        planned = None if price is None or price.setting is None else price.setting.batch_rows
        return self.task.request.algorithm == "auto" and planned is not None and n_rows > _OUTGROWN * planned

    def report(self, metrics: Metrics) -> None:
        """Count what was done since the last report."""
        now = Metrics()
        self.operator.report(now)
        for component, held in self.operator.budget.at_peak().items():
            now.peak("memory", held, component)
        add_growth(metrics, now, self._counted)
        metrics.peak("memory_peak", self.operator.budget.peak)
        metrics.add_ns("serving", self._spent_ns)
        if self.resplits:
            metrics.add("resplits", self.resplits, unit="times")
        self._counted, self._spent_ns, self.resplits = now, 0, 0

    def close(self) -> None:
        """Free memory, files and connections."""
        try:
            self.operator.close()
        finally:
            self.pages.close()


def _looks_again(micro_batches: int) -> bool:
    """Whether the skew is estimated again after this micro-batch: after 4, 16 and 64, then after every 256."""
    return micro_batches in (4, 16, 64) or micro_batches % 256 == 0


def _first_decision(task: EnrichTask, pages: Pages, head: list[pa.RecordBatch], n_rows: int | None) -> Decision:
    decision = task.decision
    check_store(task.request.algorithm, pages)
    if task.learns and head:
        sample = sample_of(head, task.wiring.on, pages, n_rows)
        costs = timed_costs(task.request, task.wiring, pages, head[0].schema)
        decision = decide(task.request, task.wiring, pages, head[0].schema, sample, costs)
    if task.request.tune == "measure" and head:
        decision = measured_sizes(task.request, task.wiring, pages, head, decision)
    return decision


def _opened(task: EnrichTask, pages: Pages, stream: pa.Schema, decision: Decision) -> SemiStreamOperator:
    """The running join in a budget of its own; sizes that do not fit this version are fitted again."""
    spec = specification(task.request, task.wiring, pages, decision.algorithm, decision.sizes)
    memory = task.request.beside(pages).join_memory
    try:
        return spec.open(MemoryBudget(memory, "enrich"), {"stream": stream})
    except (BudgetExceeded, PlanError):
        if decision.origin in ("explicit", "carried"):
            raise
        return replace(spec, sizes=FITTED).open(MemoryBudget(memory, "enrich"), {"stream": stream})


def changed_pages(task: EnrichTask, old: str, new: str) -> I64 | None:
    """Pages that differ between two versions; None if unknown, as when the old one is gone."""
    try:
        return task.store.changed(old, new)
    except ConfigError:
        return None


def add_growth(metrics: Metrics, now: Metrics, before: Metrics) -> None:
    """Count how far counters grew, and record peaks as they are."""
    known = {(e.name, e.side): e.value for e in before.entries()}
    for entry in now.entries():
        if entry.kind == "peak":
            metrics.peak(entry.name, entry.value, entry.side, entry.unit)
        elif entry.value != known.get((entry.name, entry.side), 0):
            metrics.add(entry.name, entry.value - known.get((entry.name, entry.side), 0), entry.side, entry.unit)


_PEEKED = 4  # batches that are looked at before a stream's first rows decide

SESSIONS: Pool[Session] = Pool(most=4)
"""Sessions that this worker keeps between tasks; each has the budget of a task."""

atexit.register(SESSIONS.close)


def enrich_rows(task: EnrichTask, batches: Batches, metrics: Metrics) -> Batches:
    """The answers of all rows of a task, from one version of the master data; every row is answered when it ends.

    Where rows without a match are kept, the last column is the number of the partition that rows come from.
    """
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    if first is None:
        return
    rows = map(task.stream_rows, chain([first], given))
    attempt, part = Attempt(task), str(first.column(first.num_columns - 1)[0])
    session, head = _taken(attempt, [next(rows)], rows)
    try:
        yield from _answers(session, chain(head, rows), attempt.dead_letters(part), metrics)
        attempt.settle()
    except BaseException:
        session.close()  # half way through a batch: never used again
        attempt.settle()  # if Spark wants no more rows, the task has not failed
        raise
    _keep(task.plan, session)


def _answers(session: Session, rows: Batches, dead: DeadLetters | None, metrics: Metrics) -> Batches:
    task, n_rows, price, seen = session.task, 0, session.decision.price, session.operator.counts["rows"]
    with dead or nullcontext():
        for batch in rows:
            last, n_rows = batch, n_rows + batch.num_rows
            yield from matched(task, session.push(batch), dead)
        yield from matched(task, session.drain(), dead)
        if dead is not None:
            dead.commit(n_rows)
            metrics.add("dead_letters", dead.rows)
    yield from matched(task, session.resplit(last, n_rows), None)  # none, as nothing waits
    session.report(metrics)
    predicted = None if price is None else price.micro_batch_s(n_rows, seen)
    if predicted is not None:
        metrics.add_ns("serving_predicted", round(predicted * 1e9))


def _taken(attempt: Attempt, head: list[pa.RecordBatch], rows: Batches) -> tuple[Session, list[pa.RecordBatch]]:
    """The session of this plan on the version that the task must read, and the rows that were looked at."""
    task = attempt.task
    session = SESSIONS.take(task.plan)
    try:
        version = attempt.version(defer=True, held=None if session is None else session.pages)
        if session is not None and session.stream.equals(head[0].schema):
            if (version or task.store.version()) == session.pages.version and is_awake(session.pages):
                return session, head
            if _adopted(session, attempt.open(version)):
                return session, head
            session = None
        elif session is not None:
            session.close()
            session = None
        pages = attempt.open(version)
        if task.learns or task.request.tune == "measure":
            head = [*head, *islice(rows, _PEEKED - 1)]
        n_rows = sum(batch.num_rows for batch in head) if len(head) < _PEEKED else None
        return Session.first(task, pages, head[0].schema, head, n_rows), head
    except BaseException:
        if session is not None:
            session.close()
        raise


def _adopted(session: Session, pages: Pages) -> bool:
    """Whether the session took up the new version; if it cannot, it is closed instead.

    Its parts may no longer fit the budget, or the version may have lost the index, or got one.
    """
    if session.pages.indexed != pages.indexed:
        session.close()
        pages.close()
        return False
    try:
        for _ in session.adopt(pages):
            pass
    except (BudgetExceeded, PlanError):
        session.close()
        pages.close()
        return False
    return True


def _keep(plan: str, session: Session) -> None:
    """Keep the session for the next task, unless that needs another one."""
    if session.is_spent:
        session.close()
        return
    if isinstance(session.pages, Resting):
        session.pages.rest()
    SESSIONS.keep(plan, session)
