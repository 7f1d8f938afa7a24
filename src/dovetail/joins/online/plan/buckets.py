"""Buckets of online joins in tasks: of batch DataFrames, in the order of reading, and of streams, over micro-batches.

The state of a stream's bucket is its rows, and its join stays in a resident process. If all answers of the stored rows
were given, a restart loads these rows without joining them again. Otherwise the events since then, the tail, are
replayed after them. A micro-batch's result depends only on the stored pieces, its own rows in any order, and its logged
time, so that a repeated attempt gives the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.metrics import Metrics
from dovetail.engine.packing import CHUNK_BYTES, CHUNK_ROWS, as_schema, unpack_rows
from dovetail.errors import BudgetExceeded, DataError, PlanError
from dovetail.joins.online.bucket_join import BucketJoin, Running, Work
from dovetail.joins.online.bucket_rule import BucketRule, MultiBucketRule
from dovetail.joins.online.bucket_state import (
    EPOCH,
    FORMAT,
    NEVER_MATCHES,
    Bounds,
    Event,
    Header,
    How,
    Lateness,
    Piece,
    joined_pauses,
    pack_events,
    unpack_events,
)
from dovetail.joins.online.request import Terms
from dovetail.joins.online.row_pages import in_fixed_order
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.batch import Bucketed
from dovetail.spark.hosts.exchange import Exchange
from dovetail.spark.hosts.resident import Answers as Turned
from dovetail.spark.hosts.resident import Log, ResidentCall, run_call
from dovetail.spark.hosts.stateful import Arrivals, BucketCall
from dovetail.spark.task import MetricsSink, TaskAttempt, state_partitions

CHANGE_COLUMN = "_change_type"
"""Names of the column by which change feeds mark inserted rows; other rows cannot be joined."""


@dataclass(frozen=True, slots=True)
class OnlineTask:
    """One planned online join as its tasks see it.

    Without `buckets`, a stream has as many as its checkpoint has partitions. With `marked` the last column of each
    input says where it ends. `answers` are the columns of the join's result, `output` those that Spark gets.
    """

    plan: str
    join: BucketJoin
    request: Terms
    buckets: int | None
    marked: bool
    answers: pa.Schema
    output: pa.Schema
    sink: MetricsSink
    lateness: Lateness | None = None

    calls_all: ClassVar[bool] = False
    chunk_bytes: ClassVar[int] = CHUNK_BYTES

    def spread(self) -> BucketRule | MultiBucketRule:
        """Which buckets rows belong to, the same in every micro-batch and after every restart."""
        return self.join.spread(self.buckets or state_partitions())

    def exchange(self) -> AbstractContextManager[Exchange]:
        """The buckets of rows; rows without a key are in none."""
        return nullcontext(self.spread())

    def take_rows(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the types of the join; `DataError` for updates and deletions."""
        name = self.join.names[side]
        rows = as_schema(batch, self.join.schemas[name])
        _check_appended(name, rows)
        return rows


def _check_appended(name: str, rows: pa.RecordBatch) -> None:
    """`DataError` for updated or deleted rows: results cannot be retracted."""
    if CHANGE_COLUMN not in rows.schema.names:
        return
    kinds = set(pc.unique(rows.column(CHANGE_COLUMN)).to_pylist()) - {"insert", None}
    if kinds:
        raise DataError(
            f"{name} has rows with {CHANGE_COLUMN} {sorted(map(str, kinds))}; online joins take rows that are only "
            f"added: filter the input by {CHANGE_COLUMN} = 'insert', or drop that column to join each row as a new one."
        )


def join_buckets(task: OnlineTask, packets: Bucketed) -> Batches:
    """The answers of a partition: the rows of each of its buckets, one bucket after the other."""
    running: Running | None = None
    current, dropped = -1, [0] * len(task.join.names)
    try:
        for bucket, packet in packets:
            dropped[packet.side] += packet.dropped
            if packet.rows is None:
                continue
            if running is None or bucket != current:
                yield from _finished(task, running)
                running, current = Running(task.join), bucket
            yield from _answers(task, running.apply(Event("push", packet.side, rows=packet.rows)))
        yield from _finished(task, running)
        task.sink.task(counts_by_side("null_keys", task.join.names, dropped))
    finally:
        if running is not None:
            running.close()


def counts_by_side(name: str, sides: Sequence[str], counts: Sequence[int]) -> Metrics:
    """Rows of each side under one name."""
    metrics = Metrics()
    for side, n in zip(sides, counts, strict=True):
        metrics.add(name, int(n), side)
    return metrics


def _finished(task: OnlineTask, running: Running | None) -> Batches:
    if running is None:
        return
    with closing(running.operator) as operator:
        yield from _answers(task, running.apply(Event("finish")))
        peak = operator.budget.peak
    operator.metrics.peak("memory_peak", peak)
    rows = sum(operator.metrics.value("rows", name) for name in task.join.names)
    operator.metrics.peak("bucket_rows", rows, unit="rows")
    task.sink.task(operator.metrics)


def _answers(task: OnlineTask, batches: Iterator[pa.RecordBatch]) -> Batches:
    for batch in batches:
        if batch.num_rows:
            yield as_schema(batch, task.output)


QUOTA = 64
"""Units of reactive work in a micro-batch without rows: a block against some others is one."""
_PIECE = 32 << 20  # bytes of one stored value, apart from a single message that is larger
Answers = Generator[pa.RecordBatch, None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OnlineBuckets:
    """An online join for the stateful host."""

    task: OnlineTask

    state_name: ClassVar[str] = "events"
    state_format: ClassVar[int] = FORMAT
    arrival_bytes: ClassVar[int | None] = None  # the join decides what goes to disk

    def answer(self, call: BucketCall) -> Batches:
        """The arriving phase where rows came, the reactive phase where a timer fired."""
        bucket = OnlineCall(self.task, call)
        return bucket.arriving(call.arrived) if call.arrived is not None else bucket.reactive()


class OnlineCall:
    """One call of one bucket."""

    def __init__(self, task: OnlineTask, call: BucketCall) -> None:
        self.task, self.call, self.state = task, call, call.state
        self.wanted = How(task.join.algorithm, task.join.memory, task.request.owed)
        """How this run requests rows to be joined."""
        self.header = Header.load(self.state.load(), task.join.meaning(), self.wanted, len(task.join.names))
        self.header.check_epoch()

    def arriving(self, arrived: Arrivals) -> Batches:
        """Pairs of new rows; all owed pairs where the micro-batch or an input ends."""
        header, task, now_ms = self.header, self.task, self.call.now_ms
        packets = arrived.packets
        header.check_spread(packets[0].rule)
        header.rows += sum(packet.n for packet in packets)
        task.sink.task(self._counted(arrived))
        retain_ms, lateness = header.bounded_by(Bounds(task.request.retain_ms, task.lateness))
        watermark = None if lateness is None else header.raise_watermark(lateness.watermark(header.newest))
        keep = header.leaving(now_ms, retain_ms, watermark)
        events, expiry = self._on_time(self._arrivals(arrived), lateness, watermark)
        if events:
            report = yield from self._turns(events, keep, now_ms, expiry)
            self._plan_pause(report["owed"])
        task.sink.task(self._measured_state())
        self.state.store(header.as_json())

    def reactive(self) -> Batches:
        """Some deferred work, and a later timer if there is more of it."""
        header, fired_ms = self.header, self.call.fired_ms or 0
        if not header.finished:
            report = yield from self._turns([Event("idle", units=QUOTA)], header.first, fired_ms)
            if report["owed"]:
                self.state.wake_ms = max(self.call.now_ms, fired_ms) + 1
        self.state.store(header.as_json())

    # ------------------------------------------------------------------ arriving rows

    def _arrivals(self, arrived: Arrivals) -> list[Event]:
        """The events of a micro-batch; the end of an input comes after all its rows.

        If pairs may be owed, rows are put in a fixed order. A bucket's first micro-batch always ends with nothing owed:
        a run with another budget may repeat it, and there is no state yet. So does one after a long tail.
        """
        header, packets = self.header, arrived.packets
        events = [
            Event("push", packet.side, rows=arrived.rows(packet)) for packet in packets if packet.rows is not None
        ]
        late = sorted({self.task.join.names[event.side] for event in events if header.ended[event.side]})
        if late:
            raise DataError(
                f"rows of {' and '.join(late)} came after the row that end_of_input marked as the last one of that "
                f"side; mark only the last row, and read no more after it."
            )
        for packet in packets:
            header.ended[packet.side] = header.ended[packet.side] or packet.ends
        if all(header.ended) and not header.finished:
            header.finished = True
            events.append(Event("finish"))
        elif events and (header.planned.owed == "batch" or header.is_new or header.has_long_tail):
            events.append(Event("settle"))
        else:
            events = self._in_fixed_order(events)
        return events

    def _in_fixed_order(self, events: Sequence[Event]) -> list[Event]:
        """The same rows in an order that depends on the rows alone, since the order decides which pairs are owed."""
        join, turns = self.task.join, list[list[Event]]()
        for side, name in enumerate(join.names):
            batches = [event.batch(join.schemas[name]) for event in events if event.side == side]
            ordered = in_fixed_order(batches, CHUNK_ROWS, CHUNK_BYTES) if batches else ()
            turns.append([Event("push", side, rows=batch.serialize()) for batch in ordered])
        return [event for some in zip_longest(*turns) for event in some if event is not None]

    def _on_time(
        self, events: list[Event], lateness: Lateness | None, watermark: int | None
    ) -> tuple[list[Event], int | None]:
        """Events without rows older than the watermark of earlier micro-batches, and when their rows expire."""
        header = self.header
        if lateness is None:
            return events, None
        names, expiry = self.task.join.names, NEVER_MATCHES
        late = [0] * len(names)
        for at, event in ((at, event) for at, event in enumerate(events) if event.kind == "push"):
            batch = event.batch(self.task.join.schemas[names[event.side]])
            kept = lateness.on_time(event.side, batch, watermark)
            late[event.side] += batch.num_rows - kept.num_rows
            events[at] = event if kept is batch else event._replace(rows=kept.serialize())
            if kept.num_rows:
                newest = int(lateness.times(event.side, kept).max())
                before = header.newest[event.side]
                header.newest[event.side] = newest if before is None else max(before, newest)
                expiry = max(expiry, lateness.expiry(event.side, newest))
        self.task.sink.task(counts_by_side("late_rows", names, late))
        return events, expiry

    def _plan_pause(self, owed: bool) -> None:
        """Set the timer of the next pause, if results are owed: after `wait` without rows."""
        if self.task.request.reacts:
            pauses = owed and not self.header.finished
            self.state.wake_ms = self.call.now_ms + self.task.request.wait_ms if pauses else None

    # ------------------------------------------------------------------ turns of the join

    def _turns(self, events: list[Event], keep: int, now_ms: int, expiry: int | None = None) -> Answers:
        """Yields the answers of events with the rows from piece `keep` on, and stores the events.

        The join was planned for this micro-batch when the previous one was stored, so that attempts of this run and of
        the next give the same answers. Only a budget that was too small, with which no attempt can have succeeded, is
        replaced at once; then the micro-batch ends with nothing owed, which does not depend on the budget.
        """
        header, how, wanted = self.header, self.header.planned, self.wanted
        if header.free_to_change:
            how = wanted._replace(owed=how.owed)
        steps = self._steps(events, keep, how)
        if not how.joins_as(wanted) and not self._fits(steps):
            events = events if events[-1].kind in ("settle", "finish") else [*events, Event("settle")]
            how = wanted._replace(owed=how.owed)
            steps = self._steps(events, keep, how)
        for step in steps:
            report = yield from self._step(step)
        if steps[-1].is_rebuilt or keep > header.first:
            self.state.remove(header.first, keep)
            header.settle()
            header.drop_before(keep)
        header.nonce = steps[-1].after
        header.goes_on_as(how, wanted)
        self._store(events, now_ms, expiry)
        return report

    def _steps(self, events: list[Event], keep: int, how: How) -> list[_Step]:
        """The turns of a micro-batch.

        With `owed="batch"`, where a micro-batch ends with nothing owed, the join stays resident and rows leave it.
        With `owed="idle"` owed results depend on the join's whole history, so that the resident join must equal the one
        that a restart would restore: when rows leave, or all was settled, it is rebuilt from the rows that stay. It is
        also rebuilt for another algorithm or budget. All owed results are given before.
        """
        header, settles = self.header, events[-1].kind == "settle"
        after = "" if settles and how.owed != "batch" else Header.new_nonce()
        leaves = keep > header.first
        if how == header.how and header.epoch == EPOCH and (how.owed == "batch" or not leaves):
            in_order = how.owed != "batch" or not header.nonce
            join, leaving = self._joined(how), header.rows_before(keep)
            return [_Step(join, header.nonce, after, events, lambda: self._log(keep), leaving, in_order)]
        rest = _Step(self._joined(how), "", after, events, lambda: self._log(keep, settled=True), is_rebuilt=True)
        if header.settled:
            return [rest]
        before, settling = self._joined(header.how), [Event("budget", units=how.memory), Event("settle")]
        return [_Step(before, header.nonce, "", settling, lambda: self._log(header.first)), rest]

    def _joined(self, how: How) -> BucketJoin:
        return replace(self.task.join, algorithm=how.algorithm, memory=how.memory)

    def _fits(self, steps: Sequence[_Step]) -> bool:
        """Whether turns end within their budgets: they are run once, and the answers are discarded.

        `PlanError` if rows leave and the first of those that stay are too wide for the budget.
        """
        try:
            for step in steps:
                for _ in self._run(step._replace(after="")):
                    pass
        except (BudgetExceeded, PlanError):
            return False
        return True

    def _step(self, step: _Step) -> Answers:
        turn, task = self._run(step), self.task
        while True:
            try:
                answer = next(turn)
            except StopIteration as end:
                report: dict[str, Any] = end.value
                break
            yield as_schema(unpack_rows(answer, task.answers), task.output)
        task.sink.task(_measured(report, step.events))
        return report

    def _run(self, step: _Step) -> Turned:
        # Identifies the bucket on this machine; the nonce detects a wrong one.
        name = f"{TaskAttempt.here().query} {self.task.plan} {self.call.key}"
        work = Work(step.events, step.leaving)
        call = ResidentCall(name, step.before, step.after, partial(Running, step.join), work)
        return run_call(call, step.log, step.in_order)

    # ------------------------------------------------------------------ pieces of events

    def _log(self, first: int, settled: bool = False) -> Iterator[Piece]:
        """The pieces from `first` on; with `settled` nothing is owed to any of them."""
        for number in range(first, self.header.next):
            yield Piece(self.state.piece(number), settled or number < self.header.base)

    def _store(self, events: Sequence[Event], now_ms: int, expiry: int | None) -> None:
        """Append the events, to the last piece while that is small; nothing is kept after the end of input.

        If the events end with nothing owed, only their rows are stored.
        """
        header = self.header
        if header.finished:
            self.state.clear()
            header.clear()
            return
        header.pauses = header.pauses + len(events) if all(event.kind == "idle" for event in events) else 0
        settles, pushed = events[-1].kind == "settle", [event for event in events if event.kind == "push"]
        kept = pushed if settles else list(events)
        if kept:
            self._append(kept, settles, now_ms, expiry)
        if settles:
            header.settle()
        elif pushed:
            header.settled = False

    def _append(self, events: list[Event], settles: bool, now_ms: int, expiry: int | None) -> None:
        header, join, has_rows = self.header, self.task.join, any(event.kind == "push" for event in events)
        rows = sum(e.batch(join.schemas[join.names[e.side]]).num_rows for e in events if e.kind == "push")
        goes_on = header.takes_more(now_ms, self.task.request.retain_ms, settles)
        if goes_on:
            events = joined_pauses([*unpack_events(self.state.piece(header.drop_last())), *events])
        first, pieces = header.next, [pack_events(some) for some in _cut(events)]
        for number, data in enumerate(pieces, first):
            self.state.put(number, data)
        sizes = [len(data) for data in pieces]
        if has_rows:
            header.add_pieces(sizes, rows, now_ms, expiry, goes_on)
        else:
            header.add_pieces_without_rows(sizes, now_ms)

    # ------------------------------------------------------------------ metrics

    def _counted(self, arrived: Arrivals) -> Metrics:
        """Arrived rows; after a pause also as rows that waited for its end."""
        names = self.task.join.names
        rows, dropped = [0] * len(names), [0] * len(names)
        for packet in arrived.packets:
            rows[packet.side] += packet.n
            dropped[packet.side] += packet.dropped
        metrics = counts_by_side("rows", names, rows).merge(counts_by_side("null_keys", names, dropped))
        if self.header.pauses:
            metrics.peak("input_buffer", sum(rows), unit="rows")
        return metrics

    def _measured_state(self) -> Metrics:
        """The size of a bucket: of all, the largest one is kept."""
        metrics = Metrics()
        metrics.peak("bucket_state", self.header.bytes, unit="bytes")
        metrics.peak("bucket_rows", self.header.rows, unit="rows")
        metrics.peak("buckets", json.loads(self.header.spread or "{}").get("buckets", 0), unit="buckets")
        return metrics


class _Step(NamedTuple):
    """A call of a join that is stored as `before`, and afterwards as `after`; see `run_call`.

    A rebuilt one has only settled pieces.
    """

    join: BucketJoin
    before: str
    after: str
    events: list[Event]
    log: Log
    leaving: int = 0
    in_order: bool = True
    is_rebuilt: bool = False


def _cut(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Events in pieces of bounded size."""
    some: list[Event] = []
    size = 0
    for event in events:
        if some and size + len(memoryview(event.rows)) > _PIECE:
            yield some
            some, size = [], 0
        some.append(event)
        size += len(memoryview(event.rows))
    if some:
        yield some


def _measured(report: dict[str, Any], events: Sequence[Event]) -> Metrics:
    """The counters of a turn."""
    metrics = Metrics()
    for name, n in report["counts"].items():
        what, _, side = name.partition(" ")
        unit = "rows" if what.startswith("results") else what.partition("_")[0]
        metrics.add(what, n, side or None, unit=unit)
    for name, n in report["peaks"].items():
        metrics.peak(name, n, unit="ns" if name == "handover_delay" else "bytes")
    if report["replayed"]:
        metrics.add("joins_rebuilt", 1, unit="joins")
    metrics.add("units_of_pause", sum(e.units * e.times for e in events if e.kind == "idle"), unit="units")
    return metrics
