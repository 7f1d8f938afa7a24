"""Mode "carry": rows wait from one micro-batch to the next in the stream's checkpointed state.

Rows travel packed, as Arrow streams in binary columns: types stay exact, and state is written once an owner and batch.
The state that a batch leaves is also logged. An attempt that is repeated answers the rows that the first one answered
and leaves the state that it left, whatever memory, cores and code there are by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.options import Park
from dovetail.joins.semistream.plan.arrivals import Arrivals
from dovetail.joins.semistream.plan.columns import without_watermarks
from dovetail.joins.semistream.plan.session import Session, changed_pages
from dovetail.joins.semistream.plan.task import (
    EnrichTask,
    Where,
    holds_of,
    open_dead_letters,
    open_version,
    wanted_version,
)
from dovetail.joins.semistream.plan.worker import owners_of
from dovetail.joins.semistream.state import NEXT, Carried, Kept, StateLog, table_bytes, table_of
from dovetail.joins.semistream.versions import MARK
from dovetail.spark.arrow import Batches, map_in_arrow
from dovetail.spark.connect import plan_text
from dovetail.spark.pinned import state_partitions

_PACKED = T.StructType(
    [
        T.StructField("owner", T.IntegerType()),
        T.StructField("part", T.IntegerType()),
        T.StructField("number", T.LongType()),
        T.StructField("rows", T.BinaryType()),
    ]
)
_ANSWERS = T.StructType([T.StructField("rows", T.BinaryType())])


def carried_frame(rows: DataFrame, task: EnrichTask, max_wait_ms: int, output: T.StructType) -> DataFrame:
    """The answers of a stream whose rows may wait for later micro-batches, until it pauses or `max_wait` is over.

    The time of batches is event time of our own, so that Spark runs one batch without rows when a stream pauses, and
    ends after it where the stream is to end. A stream with a watermark cannot have another, be it of a column that was
    dropped since or of a join in this mode before: there the rows of the last batch wait for the next.
    """
    timed = "EventTimeWatermark" not in plan_text(rows)
    packed = map_in_arrow(rows, partial(pack, task), _PACKED)
    packed = packed.withColumn("at", F.current_timestamp()).withColumn("now_ms", F.unix_millis("at"))
    if timed:
        packed = packed.withWatermark("at", "0 seconds")
    packed = packed.drop("at")  # else Spark drops rows as late when a clock was set back
    answers = packed.groupBy("owner").transformWithStateInPandas(
        CarryProcessor(task, max_wait_ms, timed), _ANSWERS, "append", "eventTime" if timed else "none"
    )
    return map_in_arrow(answers, unpack, without_watermarks(output))


def pack(task: EnrichTask, batches: Batches) -> Batches:
    """The rows of each batch by the owner of their home page; an owner without rows hears of the first batch.

    There are as many owners as partitions of the state, a number that stays the same for good, and all are called in
    every micro-batch: rows that wait would not be answered in time, or never, were an owner left out.
    """
    where, owners, pages, number = Where.here(), state_partitions(), None, 0
    try:
        for batch in batches:
            rows = task.stream_rows(batch).cast(task.stream)
            if pages is None:
                pages = open_version(task, where, wanted_version(task, where))
            packets = _packets(rows, owners_of(task, pages, rows, owners, where.partition))
            if number == 0:
                packets = dict.fromkeys(range(owners), b"") | packets
            yield pa.RecordBatch.from_pydict(
                {
                    "owner": pa.array(packets.keys(), pa.int32()),
                    "part": pa.array([where.partition] * len(packets), pa.int32()),
                    "number": pa.array([number] * len(packets), pa.int64()),
                    "rows": pa.array(packets.values(), pa.binary()),
                }
            )
            number += 1
    finally:
        if pages is not None:
            pages.close()


def _packets(rows: pa.RecordBatch, owner: np.ndarray[Any, np.dtype[np.int32]]) -> dict[int, bytes]:
    """The rows of each owner, in their order."""
    order = np.argsort(owner, kind="stable")
    names, starts = np.unique(owner[order], return_index=True)
    slices = np.split(order, starts[1:])
    return {int(name): table_bytes(rows.take(pa.array(some))) for name, some in zip(names, slices, strict=True)}


def unpack(batches: Batches) -> Batches:
    """Answers as rows again."""
    for batch in batches:
        for data in batch.column(0):
            yield from table_of(data.as_buffer()).to_batches()


@dataclass(slots=True)
class OwnerCall:
    """One call for one owner: the session with the owner's state taken up, and the answers so far."""

    session: Session
    now_ms: int
    drained_ms: int
    dead: DeadLetters | None
    out: list[bytes] = field(default_factory=list)
    missed: list[pa.RecordBatch] = field(default_factory=list)

    def take(self, batches: Batches) -> None:
        """Pack the answers, and set those without a match aside."""
        task = self.session.task
        for batch in batches:
            found, missed = task.split_misses(batch)
            if self.dead is not None and missed is not None:
                self.dead.add(task.dead_letter_rows(missed))
            elif missed is not None and missed.num_rows and isinstance(task.request.on_miss, Park):
                self.missed.append(missed)
            if found.num_rows:
                self.out.append(table_bytes(task.answer_rows(found)))

    def answers(self) -> Iterator[pd.DataFrame]:
        """The packed answers since the last call, as Spark takes them."""
        if self.out:
            out, self.out = self.out, []
            yield pd.DataFrame({"rows": out})

    def push(self, batches: Batches) -> Iterator[pd.DataFrame]:
        """The answers that these rows make possible."""
        for batch in batches:
            self.take(self.session.push(batch))
            yield from self.answers()

    def report(self, arrived: Arrivals | None = None) -> None:
        """Tell the driver what was done."""
        report = self.session.report()
        if arrived is not None and arrived.spilled_bytes:
            report.add("arrivals_spilled", arrived.spilled_bytes, unit="bytes")
        if self.dead is not None:
            report.add("dead_letters", self.dead.rows)
        if self.missed:
            report.add("set_aside", sum(batch.num_rows for batch in self.missed))
        self.session.task.sink.task(report)


class CarryProcessor(StatefulProcessor):
    """Spark's face of the operator of one owner: its state is read and written once in a micro-batch."""

    def __init__(self, task: EnrichTask, max_wait_ms: int, timed: bool) -> None:
        self.task, self.max_wait_ms, self.timed = task, max_wait_ms, timed

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        self._state = handle.getValueState("carried", T.StructType([T.StructField("data", T.BinaryType())]))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The answers that the new rows of a batch and what waited make possible."""
        with Arrivals(self.task.request.arrival_memory) as arrived:
            for frame in rows:
                for row in frame.itertuples(index=False):
                    arrived.add(row.part, row.number, row.now_ms, row.rows)
            yield from self._call(int(key[0]), arrived, arrived.latest_ms)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The answers of rows that have waited long enough, or are to be tried again."""
        if self._state.exists():
            yield from self._call(int(key[0]), None, timerValues.getCurrentProcessingTimeInMs())

    def close(self) -> None:
        """Nothing is held between calls."""

    def _call(self, number: int, arrived: Arrivals | None, now_ms: int) -> Iterator[Any]:
        """One call: with rows, or, where None, because none have come."""
        task, where = self.task, Where.here()
        before = Carried.from_bytes(self._state.get()[0]) if self._state.exists() else None  # type: ignore[index]  # it exists
        if not (arrived is None or not arrived.is_empty or (before is not None and before.keeps_rows)):
            return
        _check_log(task, before)
        dead = open_dead_letters(task, where, f"{number}{'-idle' if arrived is None else ''}")
        log = _log(task, where, before, arrived)
        left = None if log is None else log.read()
        with dead or nullcontext():
            if before is None or log is None or left is None:
                after = yield from self._answer(where, before, arrived, now_ms, dead)
            else:
                after = yield from _repeat(task, where, (before, left), arrived, now_ms, dead, log)
            if dead is not None:
                dead.commit()
        data = after.to_bytes()
        if log is not None and left is None:
            log.write(data)
        holds = holds_of(task, where)
        if holds is not None:
            holds.wait(after.name, [state.version for state in (before, after) if state is not None and state.waiting])
        self._store(after, data, now_ms)

    def _answer(
        self, where: Where, before: Carried | None, arrived: Arrivals | None, now_ms: int, dead: DeadLetters | None
    ) -> Generator[pd.DataFrame, None, Carried]:
        """Give what can be answered; the state after it comes back."""
        first = arrived.head() if arrived is not None and before is None else []
        call = _begun(self.task, where, before, first, now_ms, dead)
        try:
            return (yield from self._run(call, before, arrived))
        finally:
            call.session.close()

    def _run(
        self, call: OwnerCall, before: Carried | None, arrived: Arrivals | None
    ) -> Generator[pd.DataFrame, None, Carried]:
        """Give what can be answered, batch by batch; the state after it comes back."""
        session, task, last = call.session, self.task, None
        due, parked = _due(before.parked if before else None, call.now_ms)
        yield from call.push(iter(due))
        for last in arrived.batches() if arrived else ():
            yield from call.push(iter([_born(task, last, call.now_ms)]))
        name = before.name if before else ""
        if arrived is None or call.now_ms - call.drained_ms >= self.max_wait_ms or not name:
            call.take(session.drain())  # a state without a name has no log that tells what was answered
        if last is not None:
            call.take(session.resplit(last, None))
        yield from call.answers()
        operator = session.operator
        if not operator.waiting_rows:
            call.drained_ms = call.now_ms
        snapshot, decision = {}, session.decision
        if not session.is_spent:
            snapshot, decision = operator.snapshot(), replace(decision, sizes=operator.sizes)
        parked = _parked(task, parked, call.missed, call.now_ms)
        call.report(arrived)
        name = name or uuid.uuid4().hex
        version, mark = session.pages.version, task.log.mark or ""
        return Carried(version, decision, call.drained_ms, snapshot, parked, session.turns, name, mark)

    def _store(self, after: Carried, data: bytes, now_ms: int) -> None:
        """Keep the state, and ask to be called if the next batch brings no rows, or when parked rows are due."""
        if self.timed:
            for timer in list(self._handle.listTimers()):
                self._handle.deleteTimer(timer)
            if after.waiting:
                self._handle.registerTimer(now_ms)
            elif after.parked is not None and after.parked.num_rows:
                self._handle.registerTimer(max(now_ms, int(pc.min(after.parked[NEXT]).as_py())))
        self._state.update((data,))


def _log(task: EnrichTask, where: Where, before: Carried | None, arrived: Arrivals | None) -> StateLog | None:
    """Where the state after this batch is logged; None for the first one, which is answered in full."""
    if where.batch is None or before is None or not before.name:
        return None
    directory = Path(task.log.path) / where.batch.query
    return StateLog(directory, before.name, where.batch.number, arrived is None)


def _check_log(task: EnrichTask, before: Carried | None) -> None:
    """`ConfigError` if the state was logged elsewhere: what a first attempt at this micro-batch answered is there."""
    if before is not None and before.log not in ("", task.log.mark):
        raise ConfigError(
            f"rows of this checkpoint wait in mode='carry', and what its last micro-batch answered is not in "
            f"{task.log.path}: master data or versions= were elsewhere in the last run. Put both back, or copy the "
            f"directory with all its files, {MARK} among them; if it is lost, use a new checkpoint."
        )


def _repeat(
    task: EnrichTask,
    where: Where,
    states: tuple[Carried, Carried],
    arrived: Arrivals | None,
    now_ms: int,
    dead: DeadLetters | None,
    log: StateLog,
) -> Generator[pd.DataFrame, None, Carried]:
    """Answer the rows of the state before and of the batch that are not in the state that the first attempt left."""
    before, left = states
    for state in states:
        _check_columns(task, state)
    kept, version = Kept(left, task.stream), wanted_version(task, where)
    new = (_born(task, batch, now_ms) for batch in (arrived.batches() if arrived else ()))
    parked = [] if before.parked is None else before.parked.drop_columns([NEXT]).to_batches()
    missed = yield from _answered(
        task, open_version(task, where, version), kept.others(chain(new, parked)), now_ms, dead
    )
    admitted = task.request.as_of == "admitted" and before.waiting and version != before.version
    pages = _awaited(task, before) if admitted else open_version(task, where, version)
    missed += yield from _answered(task, pages, kept.others(iter(before.unanswered)), now_ms, dead)
    if len(kept):
        raise ConfigError(
            f"micro-batch {log.batch} left {len(kept)} rows waiting when it first ran and is now given rows without "
            f"them; restore its source and its version of the master data, or remove {log.place} to answer it as if it "
            f"had not run, which may give rows twice that a sink has."
        )
    return replace(left, parked=_parked(task, left.parked, missed, now_ms))


def _answered(
    task: EnrichTask, pages: Pages, batches: Batches, now_ms: int, dead: DeadLetters | None
) -> Generator[pd.DataFrame, None, list[pa.RecordBatch]]:
    """Answer all these rows; those set aside come back."""
    call = OwnerCall(Session.first(task, pages, task.stream, []), now_ms, now_ms, dead)
    try:
        yield from call.push(batches)
        call.take(call.session.drain())
        yield from call.answers()
        call.report()
        return call.missed
    finally:
        call.session.close()


def _begun(
    task: EnrichTask,
    where: Where,
    before: Carried | None,
    head: list[pa.RecordBatch],
    now_ms: int,
    dead: DeadLetters | None,
) -> OwnerCall:
    """The session on the version of this batch, with the state before it taken up."""
    version = wanted_version(task, where)
    if before is None:
        session = Session.first(task, open_version(task, where, version), task.stream, head)
        return OwnerCall(session, now_ms, now_ms, dead)
    _check_columns(task, before)
    if version in (None, before.version):
        return _resumed(task, before, open_version(task, where, version), now_ms, dead)
    if task.request.as_of == "admitted" and before.waiting:
        call = _resumed(task, before, _awaited(task, before), now_ms, dead)
        call.take(call.session.adopt(open_version(task, where, version)))
        return call
    return _resumed(task, before, open_version(task, where, version), now_ms, dead)


def _check_columns(task: EnrichTask, before: Carried) -> None:
    parked = None if before.parked is None else before.parked.drop_columns([NEXT])
    for what, rows in (("wait", before.snapshot.get("rows")), ("are parked", parked)):
        if rows is not None and rows.num_rows and not rows.schema.equals(task.stream):
            raise ConfigError(
                f"rows that {what} in the checkpoint have columns of types {rows.schema.types}, those of the stream "
                f"are now {task.stream.types}; put the stream's columns and on_miss back, or use a new checkpoint."
            )


def _awaited(task: EnrichTask, before: Carried) -> Pages:
    """The version that rows which wait were admitted with."""
    try:
        return task.store.at(before.version)
    except ConfigError as error:
        raise ConfigError(
            f"{before.waiting} rows wait to be answered from version {before.version}, with which they were admitted: "
            f"{error} Restore it; or use as_of='answered' to answer them from the newest."
        ) from error


def _resumed(task: EnrichTask, before: Carried, pages: Pages, now_ms: int, dead: DeadLetters | None) -> OwnerCall:
    """A session that goes on with the state: as it was, or, on a newer version, with rows that wait for that one.

    If memory was changed so that the state no longer fits, another session answers what waited.
    """
    try:
        session = Session(task, pages, task.stream, before.decision, before.turns)
    except (PlanError, BudgetExceeded):
        return _restarted(task, before, pages, now_ms, dead)
    call = OwnerCall(session, now_ms, before.drained_ms, dead)
    if before.snapshot and pages.version == before.version:
        call.take(session.timed(iter(session.operator.restore(before.snapshot))))
    elif before.snapshot:
        changed = changed_pages(task, before.version, pages.version)
        call.take(session.timed(session.operator.readmit(before.snapshot, changed)))
    return call


def _restarted(task: EnrichTask, before: Carried, pages: Pages, now_ms: int, dead: DeadLetters | None) -> OwnerCall:
    """Another session that has answered what waited."""
    session = Session.first(task, pages, task.stream, before.unanswered)
    session.turns = before.turns
    call = OwnerCall(session, now_ms, now_ms, dead)
    for batch in before.unanswered:
        call.take(session.push(batch))
    call.take(session.drain())
    return call


def _born(task: EnrichTask, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """New rows; where they may be parked, with the time they came."""
    if not isinstance(task.request.on_miss, Park):
        return batch
    came = pa.array(np.full(batch.num_rows, now_ms, np.int64))
    return batch.set_column(task.n_stream - 1, batch.schema.field(task.n_stream - 1), came)


def _due(parked: pa.Table | None, now_ms: int) -> tuple[list[pa.RecordBatch], pa.Table | None]:
    """Parked rows that are to be tried now, and the others."""
    if parked is None:
        return [], None
    due = pc.less_equal(parked[NEXT], now_ms)
    tried = parked.filter(due).drop_columns([NEXT]).combine_chunks()
    return [batch for batch in tried.to_batches() if batch.num_rows], parked.filter(pc.invert(due))


def _parked(task: EnrichTask, others: pa.Table | None, missed: list[pa.RecordBatch], now_ms: int) -> pa.Table | None:
    """Rows to be tried again: those not due yet, and those that missed, unless they are too old or can never match."""
    misses = task.request.on_miss
    if not isinstance(misses, Park) or not missed:
        return others
    rows = pa.Table.from_batches(missed)
    came = rows.column(task.n_stream - 1).to_numpy()
    young = now_ms - came < misses.deadline_s * 1000
    for name in () if task.request.null_safe else task.wiring.on:
        young &= rows[name].is_valid().to_numpy()
    again = np.minimum(now_ms + int(misses.retry_s * 1000), came + int(misses.deadline_s * 1000))
    kept = rows.append_column(NEXT, pa.array(again)).filter(pa.array(young))
    return kept if others is None else pa.concat_tables([others, kept])
