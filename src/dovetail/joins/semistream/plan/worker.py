"""A running enrichment in a worker: the session of both modes, and a task of mode "per_batch".

A session is opened, brought to new versions, re-split and reported. In mode "per_batch" a worker keeps it between tasks
and micro-batches, for the sake of its caches only: one that is lost, with its worker or after a failure, is opened
again and answers alike.
"""

from __future__ import annotations

import atexit
import time
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.semistream.cost.reads import IoDone, dearer
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.decision import (
    Decision,
    decide,
    is_enough,
    measured_sizes,
    moved,
    sample_of,
    specification,
)
from dovetail.joins.semistream.keys import KeyCodes, key_columns
from dovetail.joins.semistream.master.pages import Pages, Resting
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.plan.task import Attempt, EnrichTask, matched
from dovetail.joins.semistream.sizes import FITTED
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.exchange import Homes
from dovetail.spark.hosts.resident import Pool


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


_PEEKED = 4  # batches that are looked at before a stream's first rows decide

SESSIONS: Pool[Session] = Pool(most=4)
"""What this worker keeps between tasks: each session has the budget of a task."""

atexit.register(SESSIONS.close)


def enrich_rows(task: EnrichTask, batches: Batches) -> Batches:
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
        yield from _answers(task, session, chain(head, rows), attempt.dead_letters(part))
    except BaseException:
        session.close()  # half way through a batch: never used again
        raise
    _keep(task.plan, session)


def _answers(task: EnrichTask, session: Session, rows: Batches, dead: DeadLetters | None) -> Batches:
    n_rows, price = 0, session.decision.price
    with dead or nullcontext():
        for batch in rows:
            last, n_rows = batch, n_rows + batch.num_rows
            yield from matched(task, session.push(batch), dead)
        yield from matched(task, session.drain(), dead)
        if dead is not None:
            dead.commit(n_rows)
    yield from matched(task, session.resplit(last, n_rows), None)  # none, as nothing waits
    report = session.report()
    if price is not None and price.rate > 0:
        report.add_ns("serving_predicted", round(n_rows / price.rate * 1e9))
    if dead is not None:
        report.add("dead_letters", dead.rows)
    task.sink.task(report)  # this attempt's; the session may be of an earlier one


def _taken(attempt: Attempt, head: list[pa.RecordBatch], rows: Batches) -> tuple[Session, list[pa.RecordBatch]]:
    """The session of this plan on the version that the task must read, and the rows that were looked at."""
    task = attempt.task
    session = SESSIONS.take(task.plan)
    try:
        version = attempt.version()
        if session is not None and session.stream.equals(head[0].schema):
            if (version or task.store.version()) == session.pages.version:
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
    """Whether the session took up the new version; if its parts no longer fit the budget, it is closed instead."""
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


def owned_rows(task: EnrichTask, owners: int, batches: Batches) -> Batches:
    """Rows with, in front, the number of the owner of their home page."""
    with closing(Owners(task, owners)) as found:
        for batch in batches:
            owner = found.of(task.stream_rows(batch))
            yield pa.RecordBatch.from_arrays([pa.array(owner), *batch.columns], names=["owner", *batch.schema.names])


class Owners:
    """The owner of each stream row: pages are dealt to owners in equal runs, keys that no page has by their hash.

    Rows with a null in their key match nothing and never wait. They go to the owner of this task's number: the same
    one when Spark runs the task again with its rows in another order. Rows may go to other owners from one version of
    the master data to the next, as any owner can answer them.
    """

    rule = ""

    def __init__(self, task: EnrichTask, count: int) -> None:
        self.task, self.count, self._attempt = task, count, Attempt(task)
        self._pages: Pages | None = None

    def of(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The owner of each row."""
        task, attempt, owners = self.task, self._attempt, self.count
        if self._pages is None:
            self._pages = attempt.open(attempt.version())
        pages = self._pages
        types = [pages.schema.field(name).type for name in pages.key]
        key = key_columns(rows, task.wiring.on, types)
        home = pages.home(key)
        found = home * owners // max(1, len(pages.starts) - 1)
        if (home < 0).any():
            codes, valid = KeyCodes(types, null_safe=task.request.null_safe).encode(key)
            found = np.where(home >= 0, found, np.where(valid, codes % owners, attempt.partition % owners))
        return found.astype(np.int32)

    def homes(self, side: int, rows: pa.RecordBatch) -> Homes:
        """The rows by owner."""
        owner = self.of(rows)
        order = np.argsort(owner, kind="stable")
        return order, owner[order].astype(np.int64), 0

    def close(self) -> None:
        """Close the master data."""
        if self._pages is not None:
            self._pages.close()
