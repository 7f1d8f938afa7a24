"""Mode "carry": rows wait from one micro-batch to the next in the stream's checkpointed state.

A bucket of the stateful host answers the rows of a run of pages. The state that a batch leaves is also logged. A
repeated attempt answers the same rows and leaves the same state as the first one, even if memory, cores or code have
changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.packing import unpack_rows
from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.plan.attempt import Attempt
from dovetail.joins.semistream.plan.buckets import PageBuckets
from dovetail.joins.semistream.plan.columns import without_watermarks
from dovetail.joins.semistream.plan.task import EnrichTask, Session, changed_pages, matched
from dovetail.joins.semistream.request import Park
from dovetail.joins.semistream.state import FORMAT, NEXT, Carried, StateLog, WaitingRows
from dovetail.joins.semistream.versions import MARK
from dovetail.spark.frames import Batches, plan_text
from dovetail.spark.hosts.exchange import Exchange
from dovetail.spark.hosts.stateful import Arrivals, BucketCall, stateful_frame
from dovetail.spark.task import state_partitions


def carried_frame(rows: DataFrame, task: EnrichTask, max_wait_ms: int, output: T.StructType) -> DataFrame:
    """The answers of a stream whose rows may wait for later micro-batches, until it pauses or `max_wait` is over.

    A stream with a watermark, of a dropped column or of an earlier join in this mode, cannot have another one: there
    the rows of the last batch wait for the next.
    """
    timed = "EventTimeWatermark" not in plan_text(rows)
    join = CarriedJoin(task, max_wait_ms, timed)
    return stateful_frame([rows], join, join, without_watermarks(output), "without input" if timed else "never")


@dataclass(frozen=True, slots=True)
class CarriedJoin:
    """An enrichment whose rows may wait, for the stateful host.

    There are as many buckets as partitions of the state, a number that never changes. All are called in every
    micro-batch, since waiting rows would otherwise be answered late or never.
    """

    task: EnrichTask
    max_wait_ms: int
    timed: bool

    marked: ClassVar[bool] = False
    calls_all: ClassVar[bool] = True
    state_name: ClassVar[str] = "carried"
    state_format: ClassVar[int] = FORMAT

    @property
    def arrival_bytes(self) -> int:
        """Bytes that packets of a micro-batch may take in memory."""
        return self.task.request.arrival_memory

    chunk_bytes = arrival_bytes

    def exchange(self) -> AbstractContextManager[Exchange]:
        """Rows go to the bucket of their home page."""
        return closing(PageBuckets(self.task, state_partitions()))

    def take_rows(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows under our names."""
        return self.task.stream_rows(batch).cast(self.task.stream)

    def answer(self, call: BucketCall) -> Batches:
        """The answers of new, waiting and parked rows that are now possible."""
        stored = call.state.load()
        before = None if stored is None else Carried.from_bytes(call.state.piece(0))
        arrived = call.arrived
        if (arrived is not None and not arrived.is_empty) or (before is not None and before.keeps_rows):
            yield from CarriedCall(self, call, before, Attempt(self.task)).answers()


@dataclass(slots=True)
class CarriedCall:
    """One call of one bucket: with rows, or because none have come."""

    join: CarriedJoin
    call: BucketCall
    before: Carried | None
    attempt: Attempt
    dead: DeadLetters | None = None
    drained_ms: int = 0
    missed: list[pa.RecordBatch] = field(default_factory=list)
    report: Metrics = field(default_factory=Metrics)

    @property
    def task(self) -> EnrichTask:
        """The task's input."""
        return self.join.task

    @property
    def arrived(self) -> Arrivals | None:
        """New rows; None if the call is because none came."""
        return self.call.arrived

    def answers(self) -> Batches:
        """The answers of the call; after them the state is logged and stored."""
        task, attempt, before, is_idle = self.task, self.attempt, self.before, self.arrived is None
        self.drained_ms = self.call.now_ms if before is None else before.drained_ms
        _check_log(task, before)
        self.dead = attempt.dead_letters(f"{attempt.partition}{'-idle' if is_idle else ''}")
        log = None
        if attempt.batch is not None and before is not None:  # the first micro-batch is answered in full
            log = StateLog(task.log.home / attempt.batch.query, before.name, attempt.batch.number, is_idle)
        left = None if log is None else log.read()
        with self.dead or nullcontext():
            if before is None or log is None or left is None:
                after = yield from self._answered()
            else:
                after = yield from self._repeated(before, left, log)
            if self.dead is not None:
                self.dead.commit()
        data = after.to_bytes()
        if log is not None and left is None:
            log.write(data)
        holds = attempt.holds()
        if holds is not None:
            holds.wait(after.name, [state.version for state in (before, after) if state is not None and state.waiting])
        self._report()
        self._store(after, data)

    def _store(self, after: Carried, data: bytes) -> None:
        """Keep the state, and ask to be called if the next batch brings no rows, or when parked rows are due."""
        state, now_ms = self.call.state, self.call.now_ms
        if self.join.timed:
            state.wake_ms = now_ms if after.waiting else None
            if not after.waiting and after.parked is not None and after.parked.num_rows:
                state.wake_ms = max(now_ms, int(pc.min(after.parked[NEXT]).as_py()))
        state.put(0, data)
        state.store({})

    def _matched(self, batches: Batches) -> Batches:
        return matched(self.task, batches, self.dead, self.missed)

    # ------------------------------------------------------------------ a first attempt

    def _answered(self) -> Generator[pa.RecordBatch, None, Carried]:
        """Yields what can be answered; returns the state after it."""
        session = yield from self._begun()
        with closing(session):
            before, now_ms, last = self.before, self.call.now_ms, None
            due, parked = _due(before.parked if before else None, now_ms)
            for batch in due:
                yield from self._matched(session.push(batch))
            for last in self.arrived.batches(self.task.stream) if self.arrived else ():
                yield from self._matched(session.push(self._born(last)))
            if self.arrived is None or now_ms - self.drained_ms >= self.join.max_wait_ms or before is None:
                yield from self._matched(session.drain())  # the first state has no log of the answered rows
            if last is not None:
                yield from self._matched(session.resplit(last, None))
            return self._state_after(session, parked)

    def _state_after(self, session: Session, parked: pa.Table | None) -> Carried:
        operator, task = session.operator, self.task
        drained_ms = self.drained_ms if operator.waiting_rows else self.call.now_ms
        snapshot, decision = {}, session.decision
        if not session.is_spent:
            snapshot, decision = operator.snapshot(), replace(decision, sizes=operator.sizes)
        session.report(self.report)
        parked = self._parked(parked)
        name = self.before.name if self.before else uuid.uuid4().hex
        version, mark = session.pages.version, task.log.mark or ""
        return Carried(
            version, decision, drained_ms, snapshot, parked, session.micro_batches, name, mark, _columns(task)
        )

    def _begun(self) -> Generator[pa.RecordBatch, None, Session]:
        """The session on the version of this batch, with the former state restored."""
        task, attempt, before = self.task, self.attempt, self.before
        version = attempt.version()
        if before is None:
            return Session.first(task, attempt.open(version), task.stream, self._head())
        _check_columns(task, before)
        waits_for_old = task.request.as_of == "admitted" and before.waiting
        if version in (None, before.version) or not waits_for_old:
            return (yield from self._resumed(before, attempt.open(version)))
        session = yield from self._resumed(before, _awaited(task, before))
        yield from self._matched(session.adopt(attempt.open(version)))
        return session

    def _head(self) -> list[pa.RecordBatch]:
        """The first rows of the input, which are read again later."""
        for packet in self.arrived.packets if self.arrived else ():
            if self.arrived and packet.rows is not None:
                return [unpack_rows(self.arrived.rows(packet), self.task.stream)]
        return []

    def _resumed(self, before: Carried, pages: Pages) -> Generator[pa.RecordBatch, None, Session]:
        """A session that continues from the state: unchanged, or, on a newer version, with its waiting rows.

        If memory was changed so that the state no longer fits, another session answers what waited.
        """
        try:
            session = Session(self.task, pages, self.task.stream, before.decision, before.micro_batches)
        except (PlanError, BudgetExceeded):
            return (yield from self._restarted(before, pages))
        if before.snapshot and pages.version == before.version:
            yield from self._matched(session.timed(iter(session.operator.restore(before.snapshot))))
        elif before.snapshot:
            changed = changed_pages(self.task, before.version, pages.version)
            yield from self._matched(session.timed(session.operator.readmit(before.snapshot, changed)))
        return session

    def _restarted(self, before: Carried, pages: Pages) -> Generator[pa.RecordBatch, None, Session]:
        """A new session that has answered the waiting rows."""
        session = Session.first(self.task, pages, self.task.stream, before.unanswered)
        session.micro_batches, self.drained_ms = before.micro_batches, self.call.now_ms
        for batch in before.unanswered:
            yield from self._matched(session.push(batch))
        yield from self._matched(session.drain())
        return session

    # ------------------------------------------------------------------ a repeated attempt

    def _repeated(self, before: Carried, left: Carried, log: StateLog) -> Generator[pa.RecordBatch, None, Carried]:
        """Answer the rows of the state before and of the batch that the first attempt did not leave in its state."""
        task, attempt = self.task, self.attempt
        for state in (before, left):
            _check_columns(task, state)
        kept, version = WaitingRows(left, task.stream), attempt.version()
        new = (self._born(batch) for batch in (self.arrived.batches(task.stream) if self.arrived else ()))
        parked = [] if before.parked is None else before.parked.drop_columns([NEXT]).to_batches()
        yield from self._all_answered(attempt.open(version), kept.others(chain(new, parked)))
        admitted = task.request.as_of == "admitted" and before.waiting and version != before.version
        pages = _awaited(task, before) if admitted else attempt.open(version)
        yield from self._all_answered(pages, kept.others(iter(before.unanswered)))
        if len(kept):
            raise ConfigError(
                f"micro-batch {log.batch} left {len(kept)} rows waiting when it first ran and is now given rows "
                f"without them; restore its source and its version of the master data, or remove {log.place} to answer "
                f"it as if it had not run, which may give rows twice that a sink has."
            )
        return replace(left, parked=self._parked(left.parked))

    def _all_answered(self, pages: Pages, batches: Batches) -> Batches:
        """Answer all these rows."""
        with closing(Session.first(self.task, pages, self.task.stream, [])) as session:
            for batch in batches:
                yield from self._matched(session.push(batch))
            yield from self._matched(session.drain())
            session.report(self.report)

    # ------------------------------------------------------------------ rows that are parked

    def _born(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """New rows, with their arrival time if they may be parked."""
        if not isinstance(self.task.request.on_miss, Park):
            return batch
        last, came = self.task.n_stream - 1, pa.array(np.full(batch.num_rows, self.call.now_ms, np.int64))
        return batch.set_column(last, batch.schema.field(last), came)

    def _parked(self, others: pa.Table | None) -> pa.Table | None:
        """Rows to be tried again: those not due yet, and those without a match unless too old or unable to match."""
        task, misses, now_ms = self.task, self.task.request.on_miss, self.call.now_ms
        if not isinstance(misses, Park) or not self.missed:
            return others
        rows = pa.Table.from_batches(self.missed)
        came = rows.column(task.n_stream - 1).to_numpy()
        young = now_ms - came < misses.deadline_s * 1000
        check = task.wiring.check
        timed = [] if check is None else [within.value for within in check.within]
        for name in (*timed, *(() if task.request.null_safe else task.wiring.on)):
            young &= rows[name].is_valid().to_numpy()
        again = np.minimum(now_ms + int(misses.retry_s * 1000), came + int(misses.deadline_s * 1000))
        kept = rows.append_column(NEXT, pa.array(again)).filter(pa.array(young))
        return kept if others is None else pa.concat_tables([others, kept])

    def _report(self) -> None:
        """Report to the driver the counts of sessions, and of rows outside of them."""
        report = self.report
        if self.arrived is not None and self.arrived.spilled_bytes:
            report.add("arrivals_spilled", self.arrived.spilled_bytes, unit="bytes")
        if self.dead is not None:
            report.add("dead_letters", self.dead.rows)
        if self.missed:
            report.add("set_aside", sum(batch.num_rows for batch in self.missed))
        self.task.sink.task(report)


def _check_log(task: EnrichTask, before: Carried | None) -> None:
    """`ConfigError` if the state was logged elsewhere, where the answers of a first attempt are recorded."""
    if before is not None and before.log not in ("", task.log.mark):
        raise ConfigError(
            f"rows of this checkpoint wait in mode='carry', and what its last micro-batch answered is not in "
            f"{task.log.path}: master data or versions= were elsewhere in the last run. Put both back, or copy the "
            f"directory with all its files, {MARK} among them; if it is lost, use a new checkpoint."
        )


def _columns(task: EnrichTask) -> str:
    """The names of the stream's columns, which rows that wait have by position, and those that are joined by."""
    on = " and ".join([*(f"{key.left} = {key.right}" for key in task.request.on), *map(str, task.request.withins)])
    return f"{task.dead_letter_columns.names} on {on}"


def _check_columns(task: EnrichTask, before: Carried) -> None:
    parked = None if before.parked is None else before.parked.drop_columns([NEXT])
    for what, rows in (("wait", before.snapshot.get("rows")), ("are parked", parked)):
        if rows is not None and rows.num_rows and not rows.schema.equals(task.stream):
            raise ConfigError(
                f"rows that {what} in the checkpoint have columns of types {rows.schema.types}, those of the stream "
                f"are now {task.stream.types}; put the stream's columns and on_miss back, or use a new checkpoint."
            )
        if rows is not None and rows.num_rows and before.columns != _columns(task):
            raise ConfigError(
                f"rows that {what} in the checkpoint have columns {before.columns}, the stream's are now "
                f"{_columns(task)}; put names, order and on= back, or use a new checkpoint."
            )


def _awaited(task: EnrichTask, before: Carried) -> Pages:
    """The version with which waiting rows were admitted."""
    try:
        return task.store.at(before.version)
    except ConfigError as error:
        raise ConfigError(
            f"{before.waiting} rows wait to be answered from version {before.version}, with which they were admitted: "
            f"{error} Restore it; or use as_of='answered' to answer them from the newest."
        ) from error


def _due(parked: pa.Table | None, now_ms: int) -> tuple[list[pa.RecordBatch], pa.Table | None]:
    """Parked rows that are to be tried now, and the others."""
    if parked is None:
        return [], None
    due = pc.less_equal(parked[NEXT], now_ms)
    tried = parked.filter(due).drop_columns([NEXT]).combine_chunks()
    return [batch for batch in tried.to_batches() if batch.num_rows], parked.filter(pc.invert(due))
