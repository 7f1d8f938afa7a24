"""Buckets of online joins of streams, over micro-batches, and the task of an online join.

The state of a stream's bucket is its rows, and its join stays in a resident process. If all answers of the stored rows
were given, a restart loads these rows without joining them again. Otherwise the events since then, the tail, are
replayed after them. A micro-batch's result depends only on the stored pieces, its own rows in any order, and its logged
time, so that a repeated attempt gives the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from random import shuffle
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.packing import CHUNK_BYTES, CHUNK_ROWS, as_schema, unpack_rows
from dovetail.errors import BudgetExceeded, DataError, PlanError
from dovetail.joins.online.bucket_join import BucketJoin, Running, Work
from dovetail.joins.online.bucket_state import EPOCH, FORMAT, NEVER_MATCHES, Bounds, Header, How
from dovetail.joins.online.events import Event, Piece, in_pieces, joined_pauses, pack_events, unpack_events
from dovetail.joins.online.lateness import NO_TIME, Lateness
from dovetail.joins.online.plan.task import OnlineTask, counts_by_side, step_metrics
from dovetail.joins.online.row_pages import in_fixed_order
from dovetail.joins.online.sizes import beside_bytes
from dovetail.joins.online.unmatched import Outer, RowBits
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.resident.client import run_call
from dovetail.spark.hosts.resident.service import Answers as Packed
from dovetail.spark.hosts.resident.service import Log, ResidentCall
from dovetail.spark.hosts.stateful import Arrivals, BucketCall, BucketState
from dovetail.spark.task import TaskAttempt, commits_name_state

QUOTA = 64
"""Units of reactive work in a micro-batch without rows: a block against some others is one."""
_FIRST_CHUNK = -2
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
        if call.arrived is not None:
            return bucket.arriving(call.arrived)
        return bucket.expiring() if self.task.wakes == "by watermark" else bucket.reactive()


@dataclass(frozen=True, slots=True)
class StateChunks:
    """The bits of matched rows in the state of a bucket, at numbers below those of header and pieces."""

    state: BucketState

    def load(self, chunk: int) -> bytes | None:
        """A chunk as it was saved; None if it never was."""
        return self.state.find(_FIRST_CHUNK - chunk)

    def save(self, chunk: int, data: bytes) -> None:
        """Write a chunk."""
        self.state.put(_FIRST_CHUNK - chunk, data)

    def remove(self, chunks: range) -> None:
        """Remove chunks."""
        self.state.remove(_FIRST_CHUNK + 1 - chunks.stop, _FIRST_CHUNK + 1 - chunks.start)


class OnlineCall:
    """One call of one bucket."""

    def __init__(self, task: OnlineTask, call: BucketCall) -> None:
        self.task, self.call, self.state = task, call, call.state
        self.wanted = How(task.join.algorithm, task.join.memory, task.request.owed)
        """How this run requests rows to be joined."""
        self.header = Header.load(self.state.load(), task.join.meaning(), self.wanted, len(task.join.names))
        self.header.check_epoch()
        self.bounds = Bounds(task.request.retain_ms, task.lateness)
        self.header.check_watermarks(task.lateness)
        if not commits_name_state():
            self.header.check_unchanged(self.wanted, self.bounds)
        self.chunks, room = StateChunks(call.state), beside_bytes(task.join.memory) // 2
        self.outer = Outer(task.join, task.output, RowBits(self.chunks, room)) if task.join.what.preserved else None

    def arriving(self, arrived: Arrivals) -> Batches:
        """Pairs of new rows; all owed pairs where the micro-batch or an input ends."""
        header, task, now_ms = self.header, self.task, self.call.now_ms
        packets = arrived.packets
        header.check_spread(packets[0].rule)
        header.rows += sum(packet.n for packet in packets)
        task.sink.task(self._counted(arrived))
        retain_ms, lateness = self.header.bounded_by(self.bounds)
        watermark = self._watermark(lateness)
        keep = header.leaving(now_ms, retain_ms, None if self.outer else watermark)
        events, first, expiry = self._on_time(self._arrivals(arrived), lateness, watermark)
        if self.outer is not None:
            yield from self._numbered(events, self.outer)
            if not events and keep > header.first:
                events = [Event("settle")]
        if events:
            report = yield from self._process(events, keep, now_ms, expiry)
            header.note_first_expiry(first)
            self._plan_pause(report["owed"])
        if task.wakes == "by watermark" and not header.finished:
            yield from self._expired(retain_ms, lateness)
        task.sink.task(self._measured_state())
        self._store_header()

    def reactive(self) -> Batches:
        """Some deferred work, and a later timer if there is more of it."""
        header, fired_ms = self.header, self.call.fired_ms or 0
        if not header.finished:
            report = yield from self._process([Event("idle", units=QUOTA)], header.first, fired_ms)
            if report["owed"]:
                self.state.wake_ms = max(self.call.now_ms, fired_ms) + 1
        self._store_header()

    def expiring(self) -> Batches:
        """Unmatched rows that the watermark has passed."""
        if not self.header.finished:
            yield from self._expired(*self.header.bounded_by(self.bounds))
        self._store_header()

    def _store_header(self) -> None:
        if self.outer is not None and not self.header.finished:
            self.outer.bits.flush()
        self.state.store(self.header.as_json())

    # ------------------------------------------------------------------ rows without a partner

    def _watermark(self, lateness: Lateness | None) -> int | None:
        """The watermark behind which rows are late.

        An inner join has one of its own. Other joins have Spark's, as it was when rows last came out alone: as in
        Spark, rows of a micro-batch are joined before rows leave by its watermark.
        """
        header = self.header
        if lateness is None or self.outer:
            return None if lateness is None else header.watermark
        return header.raise_watermark(lateness.watermark(header.newest))

    def _numbered(self, events: list[Event], outer: Outer) -> Batches:
        """Numbers the rows of events; yields those that can match nothing, which are not kept."""
        header, join = self.header, self.task.join
        for at, event in ((at, event) for at, event in enumerate(events) if event.kind == "push"):
            batch = event.batch(join.schemas[join.names[event.side]])
            if event.side in outer.sides:
                batch, others = outer.split(event.side, batch)
                yield from self._alone(event.side, outer.alone(event.side, others))
            if event.side in join.what.preserved:
                batch = outer.numbered(event.side, batch, header.numbered)
                header.numbered += batch.num_rows
                events[at] = event._replace(rows=batch.serialize())

    def _expired(self, retain_ms: int | None, lateness: Lateness | None) -> Batches:
        """Yields unmatched rows behind Spark's watermark, and sets the timer for the next ones.

        They come at once if no result is pending, else when enough rows can leave to make computing those worth it.
        """
        header, now_ms, reached_ms = self.header, self.call.now_ms, self.call.watermark_ms
        watermark = header.raise_watermark(1000 * reached_ms if reached_ms > 0 else None)
        keep = header.leaving(now_ms, retain_ms, watermark)
        if keep > header.first:
            yield from self._process([Event("settle")], keep, now_ms)
        if header.settled:
            yield from self._leave(header.expired(watermark))
            if lateness is not None and watermark is not None:
                yield from self._leave_singly(lateness, watermark)
        expiry = header.next_expiry()
        self.state.wake_ms = None if expiry is None else max(reached_ms, expiry // 1000) + 1

    def _leave(self, end: int) -> Batches:
        """Yields the unmatched rows of the pieces before `end`, to which nothing is owed, and drops their bits."""
        header, before = self.header, self.header.answered_rows
        for number in range(max(header.first, header.answered), end):
            yield from self._unmatched(unpack_events(self.state.piece(number)))
        header.answered = max(header.answered, end)
        if self.outer is not None:
            self.chunks.remove(self.outer.bits.forget(before, header.answered_rows))

    def _leave_singly(self, lateness: Lateness, watermark: int) -> Batches:
        """Yields the unmatched rows behind the watermark of pieces that have others, and marks them as given."""
        header, join, outer, first = self.header, self.task.join, self.outer, self.header.first
        for at, span in enumerate(header.spans):
            pieces, first = range(max(first, header.answered), span.end), span.end
            if outer is None or span.first_expiry is None or span.first_expiry >= watermark or not pieces:
                continue
            later = list[int]()
            for event in (event for number in pieces for event in unpack_events(self.state.piece(number))):
                if event.kind == "push" and event.side in outer.sides:
                    batch = event.batch(join.stored[join.names[event.side]])
                    expiries = lateness.expiries(event.side, batch)
                    yield from self._alone(event.side, outer.give(event.side, batch, expiries < watermark))
                    if (staying := expiries[expiries >= watermark]).size:
                        later.append(int(staying.min()))
            header.spans[at] = span._replace(first_expiry=min(later, default=None))

    def _unmatched(self, events: Iterable[Event]) -> Batches:
        """Yields the unmatched rows of these events."""
        header, join, outer = self.header, self.task.join, self.outer
        for event in events:
            if event.kind == "push" and outer is not None and event.side in join.what.preserved:
                batch = event.batch(join.stored[join.names[event.side]])
                header.answered_rows += batch.num_rows
                if event.side in outer.sides:
                    yield from self._alone(event.side, outer.unmatched(event.side, batch))

    def _alone(self, side: int, rows: pa.RecordBatch) -> Batches:
        if rows.num_rows:
            counts = [rows.num_rows if at == side else 0 for at in range(len(self.task.join.names))]
            self.task.sink.task(counts_by_side("unmatched", self.task.join.names, counts))
            yield rows

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
        ends = [Event("end", side) for side, ended in enumerate(header.ended) if ended]
        for packet in packets:
            header.ended[packet.side] = header.ended[packet.side] or packet.ends
        if all(header.ended) and not header.finished:
            header.finished = True
            events.append(Event("finish"))
        elif events and (header.planned.owed == "batch" or header.is_new or header.has_long_tail):
            events.append(Event("settle"))
        else:
            events = self._in_fixed_order(events)
        return [*ends, *events] if events else []

    def _in_fixed_order(self, events: Sequence[Event]) -> list[Event]:
        """The same rows in an order that depends on the rows alone, since the order decides which pairs are owed."""
        join, inputs = self.task.join, list[list[Event]]()
        for side, name in enumerate(join.names):
            batches = [event.batch(join.schemas[name]) for event in events if event.side == side]
            ordered = in_fixed_order(batches, CHUNK_ROWS, CHUNK_BYTES) if batches else ()
            inputs.append([Event("push", side, rows=batch.serialize()) for batch in ordered])
        return [event for some in zip_longest(*inputs) for event in some if event is not None]

    def _on_time(
        self, events: list[Event], lateness: Lateness | None, watermark: int | None
    ) -> tuple[list[Event], int | None, int | None]:
        """Events without rows older than the watermark of earlier micro-batches, and when the first and all expire.

        Of the first ones, only rows count that come alone. Rows that match nothing are not kept, and do not count.
        """
        header = self.header
        if lateness is None:
            return events, None, None
        names, expiry, firsts = self.task.join.names, NEVER_MATCHES, list[int]()
        late = [0] * len(names)
        for at, event in ((at, event) for at, event in enumerate(events) if event.kind == "push"):
            batch = event.batch(self.task.join.schemas[names[event.side]])
            kept = lateness.on_time(event.side, batch, watermark)
            late[event.side] += batch.num_rows - kept.num_rows
            events[at] = event if kept is batch else event._replace(rows=kept.serialize())
            times = lateness.times(event.side, kept)
            if (times < NO_TIME).any():
                newest = int(times[times < NO_TIME].max())
                before = header.newest[event.side]
                header.newest[event.side] = newest if before is None else max(before, newest)
            alone = self.outer if self.outer is not None and event.side in self.outer.sides else None
            expiries = lateness.expiries(event.side, alone.split(event.side, kept)[0] if alone else kept)
            if (known := expiries[expiries < NO_TIME]).size:
                expiry = max(expiry, int(known.max()))
                if alone:
                    firsts.append(int(known.min()))
        self.task.sink.task(counts_by_side("late_rows", names, late))
        return events, min(firsts, default=None), expiry

    def _plan_pause(self, owed: bool) -> None:
        """Set the timer of the next pause, if results are owed: after `wait` without rows."""
        if self.task.wakes == "by clock":
            pauses = owed and not self.header.finished
            self.state.wake_ms = self.call.now_ms + self.task.request.wait_ms if pauses else None

    # ------------------------------------------------------------------ steps of the join

    def _process(self, events: list[Event], keep: int, now_ms: int, expiry: int | None = None) -> Answers:
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
        if self.outer is not None and keep > header.first:
            yield from self._leave(keep)
        if self.outer is not None and header.finished:
            yield from self._leave(header.next)
            yield from self._unmatched(events)
        if steps[-1].is_rebuilt or keep > header.first:
            self.state.remove(header.first, keep)
            header.settle()
            header.drop_before(keep)
        header.nonce = steps[-1].after
        header.goes_on_as(how, wanted)
        self._store(events, now_ms, expiry)
        return report

    def _steps(self, events: list[Event], keep: int, how: How) -> list[_Step]:
        """The steps of a micro-batch.

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
        """Whether steps end within their budgets: they are run once, and the answers are discarded.

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
        answers, task = self._run(step), self.task
        while True:
            try:
                answer = next(answers)
            except StopIteration as end:
                report: dict[str, Any] = end.value
                break
            batch = unpack_rows(answer, task.answers)
            yield as_schema(batch, task.output) if self.outer is None else self.outer.pairs(batch)
        task.sink.task(step_metrics(report, step.events))
        return report

    def _run(self, step: _Step) -> Packed:
        # Identifies the bucket on this machine; the nonce detects a wrong one.
        name = f"{TaskAttempt.here().query} {self.task.plan} {self.call.key}"
        work = Work(step.events, step.leaving)
        make, most = partial(Running, step.join), self.task.resident_bytes
        call = ResidentCall(name, step.before, step.after, make, work, most)
        return run_call(call, step.log, step.in_order)

    # ------------------------------------------------------------------ pieces of events

    def _log(self, first: int, settled: bool = False) -> Iterator[Piece]:
        """The pieces from `first` on; with `settled` all results of their rows were given."""
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
        rows = sum(e.batch(join.stored[join.names[e.side]]).num_rows for e in events if e.kind == "push")
        goes_on = header.takes_more(now_ms, self.task.request.retain_ms, settles)
        if goes_on:
            events = joined_pauses([*unpack_events(self.state.piece(header.drop_last())), *events])
        first, pieces = header.next, [pack_events(some) for some in in_pieces(events)]
        for number, data in enumerate(pieces, first):
            self.state.put(number, data)
        sizes = [len(data) for data in pieces]
        if has_rows:
            header.add_pieces(sizes, rows, now_ms, expiry, goes_on)
        else:
            header.add_pieces_without_rows(sizes, now_ms)

    # ------------------------------------------------------------------ metrics

    def _counted(self, arrived: Arrivals) -> Metrics:
        """Arrived rows and their keys; after a pause also as rows that waited for its end."""
        names = self.task.join.names
        rows, dropped = [0] * len(names), [0] * len(names)
        for packet in arrived.packets:
            rows[packet.side] += packet.n
            dropped[packet.side] += packet.dropped
        metrics = counts_by_side("rows", names, rows).merge(counts_by_side("null_keys", names, dropped))
        keys, packets = self.task.key_counter(), [packet for packet in arrived.packets if packet.rows is not None]
        shuffle(packets)  # the first ones count, and the others are those of other partitions of the inputs
        for packet in packets:
            keys.take(packet.side, packet.n, arrived.rows(packet))
        metrics.include(keys.metrics)
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
