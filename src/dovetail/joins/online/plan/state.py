"""Online joins on Structured Streaming: a bucket's rows are its state, and its join lives on in a host process.

Where all answers of the stored rows were given, they are all of the state: a restart loads them without joining them
again. Else the events since that was so, the tail, are replayed after them. A micro-batch's outcome depends on the
stored pieces, its own rows in whatever order, and its logged time alone, so that an attempt that is repeated gives the
same answers.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, ConfigError, DataError, PlanError
from dovetail.joins.online.event_log import EPOCH, Event, Piece, joined_pauses, pack_events, unpack_events
from dovetail.joins.online.lateness import Lateness
from dovetail.joins.online.plan.batch import counts_by_side
from dovetail.joins.online.plan.pack import CHUNK_BYTES, CHUNK_ROWS, ORDER, OnlineTask, answer_rows
from dovetail.joins.online.resident.client import Turn, run_turn
from dovetail.joins.online.resident.pool import Log
from dovetail.joins.online.row_order import in_fixed_order
from dovetail.joins.online.state_header import NEVER_MATCHES, Bounds, Header, How

QUOTA = 64
"""Units of reactive work in a micro-batch without rows: a block against some others is one."""
_HEADER = -1  # among the numbers of pieces
_PIECE = 32 << 20  # bytes of one stored value, apart from a single message that is larger
Answers = Generator[pd.DataFrame, None, dict[str, Any]]


class Buckets(StatefulProcessor):
    """Spark's face of the joins of buckets: state is written once a bucket and micro-batch."""

    def __init__(self, task: OnlineTask) -> None:
        self.task = task

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        # The header is among the pieces: each variable of the state costs every task some milliseconds.
        piece = T.StructType([T.StructField("number", T.LongType())])
        self._pieces = handle.getMapState("events", piece, T.StructType([T.StructField("data", T.BinaryType())]))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The arriving phase: pairs that new rows make; what is owed, where the micro-batch or a side ends."""
        arrived = pd.concat(list(rows)).sort_values(ORDER)
        header, now_ms = self._load(), int(arrived["now_ms"].max())
        header.check_spread(str(arrived["spread"].iloc[0]))
        header.rows += int(arrived["n"].sum())
        self.task.sink.task(_counted(arrived, self.task.join.names, after_pause=header.pauses > 0))
        retain_ms, lateness = header.bounded_by(Bounds(self.task.request.retain_ms, self.task.lateness))
        watermark = None if lateness is None else header.raise_watermark(lateness.watermark(header.newest))
        keep = header.leaving(now_ms, retain_ms, watermark)
        events, expiry = self._on_time(header, self._arrivals(header, arrived), lateness, watermark)
        if events:
            yield from self._turns(key, header, events, keep, now_ms, expiry)
            self._plan_pause(header, now_ms)
        self.task.sink.task(_measured_state(header))
        self._save(header)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The reactive phase: some deferred work, and a later timer if there is more of it."""
        header, fired = self._load(), int(expiredTimerInfo.getExpiryTimeInMs())
        header.timer = None
        if not header.finished:
            report = yield from self._turns(key, header, [Event("idle", units=QUOTA)], header.first, fired)
            if report["owed"]:
                header.timer = max(int(timerValues.getCurrentProcessingTimeInMs()), fired) + 1
                self._handle.registerTimer(header.timer)
        self._save(header)

    def close(self) -> None:
        """Nothing is held between calls."""

    def _load(self) -> Header:
        stored = self._pieces.getValue((_HEADER,))
        text, join = None if stored is None else bytes(stored[0]).decode(), self.task.join
        header = Header.load(text, join.meaning(), self._wanted, len(join.names))
        header.check_epoch()
        return header

    @property
    def _wanted(self) -> How:
        """How this run wants rows to be joined."""
        return How(self.task.join.algorithm, self.task.join.memory, self.task.request.owed)

    def _save(self, header: Header) -> None:
        self._pieces.updateValue((_HEADER,), (header.dump().encode(),))

    # ------------------------------------------------------------------ what comes

    def _arrivals(self, header: Header, arrived: pd.DataFrame) -> list[Event]:
        """What a micro-batch brings; that a side has ended comes after all its rows.

        Where pairs may be owed, rows are put in an order of their own. A bucket's first micro-batch always ends with
        nothing owed: if it is repeated, then perhaps by a run with another budget, of which no state could tell. So
        does one after a long tail.
        """
        pushed = arrived[arrived["rows"].notna()]
        events = [Event("push", int(s), rows=data) for s, data in zip(pushed["side"], pushed["rows"], strict=True)]
        late = sorted({self.task.join.names[event.side] for event in events if header.ended[event.side]})
        if late:
            raise DataError(
                f"rows of {' and '.join(late)} came after the row that end_of_input marked as the last one of that "
                f"side; mark only the last row, and read no more after it."
            )
        for side in arrived["side"][arrived["ends"].astype(bool)].unique():
            header.ended[int(side)] = True
        if all(header.ended) and not header.finished:
            header.finished = True
            events.append(Event("finish"))
        elif events and (header.planned.owed == "batch" or header.is_new or header.has_long_tail):
            events.append(Event("settle"))
        else:
            events = self._in_fixed_order(events)
        return events

    def _in_fixed_order(self, events: Sequence[Event]) -> list[Event]:
        """The same rows in an order that follows from them alone: which pairs are owed depends on the order."""
        join, turns = self.task.join, list[list[Event]]()
        for side, name in enumerate(join.names):
            batches = [event.batch(join.schemas[name]) for event in events if event.side == side]
            ordered = in_fixed_order(batches, CHUNK_ROWS, CHUNK_BYTES) if batches else ()
            turns.append([Event("push", side, rows=batch.serialize()) for batch in ordered])
        return [event for some in zip_longest(*turns) for event in some if event is not None]

    def _on_time(
        self, header: Header, events: list[Event], lateness: Lateness | None, watermark: int | None
    ) -> tuple[list[Event], int | None]:
        """Events without rows older than the watermark of earlier micro-batches, and when what they bring expires."""
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

    # ------------------------------------------------------------------ turns of the join

    def _turns(
        self, key: Any, header: Header, events: list[Event], keep: int, now_ms: int, expiry: int | None = None
    ) -> Answers:
        """Give what events bring to the rows from piece `keep` on, and store them.

        The join is the one that was planned for this micro-batch when the one before it was stored, so that attempts of
        one run and of the next give the same answers, of which the sink may have those of either. Only a budget that
        was too small, with which no attempt can have come to its end, makes way for another one at once; then the
        micro-batch ends with nothing owed, as that does not depend on the budget.
        """
        how, wanted = header.planned, self._wanted
        if header.free_to_change:
            how = wanted._replace(owed=how.owed)
        steps = self._steps(header, events, keep, how)
        if not how.joins_as(wanted) and not self._fits(key, steps):
            events = events if events[-1].kind in ("settle", "finish") else [*events, Event("settle")]
            how = wanted._replace(owed=how.owed)
            steps = self._steps(header, events, keep, how)
        for step in steps:
            report = yield from self._step(key, step)
        if steps[-1].is_anew or keep > header.first:
            self._remove(header.first, keep)
            header.settle()
            header.drop_before(keep)
        header.nonce = steps[-1].after
        header.goes_on_as(how, wanted)
        self._store(header, events, now_ms, expiry)
        return report

    def _steps(self, header: Header, events: list[Event], keep: int, how: How) -> list[_Step]:
        """The turns of a micro-batch.

        With `owed="batch"`, where a micro-batch ends with nothing owed, the join lives on and rows leave it. With
        `owed="idle"` what is owed depends on all that the join went through, so that it lives on only as the one that a
        restart would make: where rows leave, or all was settled, it is made anew from the rows that stay. So it is
        where the join is to be another one. All that is owed is given before.
        """
        settles = events[-1].kind == "settle"
        after = "" if settles and how.owed != "batch" else Header.new_nonce()
        leaves = keep > header.first
        if how == header.how and header.epoch == EPOCH and (how.owed == "batch" or not leaves):
            in_order = how.owed != "batch" or not header.nonce
            join, leaving = self._joined(how), header.rows_before(keep)
            return [_Step(join, header.nonce, after, events, lambda: self._log(header, keep), leaving, in_order)]
        rest = _Step(self._joined(how), "", after, events, lambda: self._log(header, keep, settled=True), is_anew=True)
        if header.settled:
            return [rest]
        before, settling = self._joined(header.how), [Event("budget", units=how.memory), Event("settle")]
        return [_Step(before, header.nonce, "", settling, lambda: self._log(header, header.first)), rest]

    def _joined(self, how: How) -> str:
        return replace(self.task.join, algorithm=how.algorithm, memory=how.memory).to_json()

    def _fits(self, key: Any, steps: Sequence[_Step]) -> bool:
        """Whether turns end inside their budgets: they are made once without anyone who takes the answers.

        `PlanError` comes where rows leave and the first of those that stay are too wide for the budget.
        """
        try:
            for step in steps:
                for _ in self._run(key, step._replace(after="")):
                    pass
        except (BudgetExceeded, PlanError):
            return False
        return True

    def _step(self, key: Any, step: _Step) -> Answers:
        turn = self._run(key, step)
        while True:
            try:
                answer = next(turn)
            except StopIteration as end:
                report: dict[str, Any] = end.value
                break
            yield given(self.task, answer)
        self.task.sink.task(measured(report, step.events))
        return report

    def _run(self, key: Any, step: _Step) -> Turn:
        name = _name(self.task, key)
        return run_turn(
            name, step.before, step.after, step.join, step.events, step.log, step.leaving, in_order=step.in_order
        )

    # ------------------------------------------------------------------ pieces of events

    def _log(self, header: Header, first: int, settled: bool = False) -> Iterator[Piece]:
        """The pieces from `first` on; with `settled` nothing is owed to any of them by now."""
        for number in range(first, header.next):
            yield Piece(self._piece(number), settled or number < header.base)

    def _store(self, header: Header, events: Sequence[Event], now_ms: int, expiry: int | None) -> None:
        """Append the events, to the last piece while that is small. After the end there is nothing to keep.

        Of events that end with nothing owed the rows are enough.
        """
        if header.finished:
            self._pieces.clear()
            header.clear()
            return
        header.pauses = header.pauses + len(events) if all(event.kind == "idle" for event in events) else 0
        settles, pushed = events[-1].kind == "settle", [event for event in events if event.kind == "push"]
        kept = pushed if settles else list(events)
        if kept:
            self._append(header, kept, settles, now_ms, expiry)
        if settles:
            header.settle()
        elif pushed:
            header.settled = False

    def _append(self, header: Header, events: list[Event], settles: bool, now_ms: int, expiry: int | None) -> None:
        join, has_rows = self.task.join, any(event.kind == "push" for event in events)
        rows = sum(e.batch(join.schemas[join.names[e.side]]).num_rows for e in events if e.kind == "push")
        goes_on = header.takes_more(now_ms, self.task.request.retain_ms, settles)
        if goes_on:
            events = joined_pauses([*unpack_events(self._piece(header.drop_last())), *events])
        first, pieces = header.next, [pack_events(some) for some in _cut(events)]
        for number, data in enumerate(pieces, first):
            self._pieces.updateValue((number,), (data,))
        sizes = [len(data) for data in pieces]
        if has_rows:
            header.add_pieces(sizes, rows, now_ms, expiry, goes_on)
        else:
            header.add_pieces_without_rows(sizes, now_ms)

    def _piece(self, number: int) -> bytes:
        found = self._pieces.getValue((number,))
        if found is None:
            raise ConfigError(f"piece {number} of the state is missing; start from an older checkpoint.")
        return bytes(found[0])

    def _remove(self, first: int, end: int) -> None:
        for number in range(first, end):
            self._pieces.removeKey((number,))

    def _plan_pause(self, header: Header, now_ms: int) -> None:
        """One pending timer: the next pause begins when nothing has come for as long as asked."""
        request = self.task.request
        if not request.reacts:
            return
        if header.timer is not None:
            self._handle.deleteTimer(header.timer)
        header.timer = None if header.finished else now_ms + request.wait_ms
        if header.timer is not None:
            self._handle.registerTimer(header.timer)


class _Step(NamedTuple):
    """A turn of a join that was stored as `before`, to be found again as `after`; see `run_turn`.

    One that is made anew has only settled pieces behind it.
    """

    join: str
    before: str
    after: str
    events: list[Event]
    log: Log
    leaving: int = 0
    in_order: bool = True
    is_anew: bool = False


def _counted(arrived: pd.DataFrame, names: Sequence[str], after_pause: bool) -> Metrics:
    """Rows that came; after a pause they are what had to wait for its end."""
    sums = arrived.groupby("side")[["n", "dropped"]].sum().reindex(range(len(names)), fill_value=0)
    metrics = counts_by_side("rows", names, sums["n"].tolist())
    metrics.merge(counts_by_side("null_keys", names, sums["dropped"].tolist()))
    if after_pause:
        metrics.peak("input_buffer", int(sums["n"].sum()), unit="rows")
    return metrics


def _measured_state(header: Header) -> Metrics:
    """The size of a bucket: of all, the largest one is kept."""
    metrics = Metrics()
    metrics.peak("bucket_state", header.bytes, unit="bytes")
    metrics.peak("bucket_rows", header.rows, unit="rows")
    metrics.peak("buckets", json.loads(header.spread or "{}").get("buckets", 0), unit="buckets")
    return metrics


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


def given(task: OnlineTask, answer: pa.Buffer) -> pd.DataFrame:
    """An answer as Spark takes it: its columns as they are, or packed."""
    if not task.flat:
        return pd.DataFrame({"rows": [answer.to_pybytes()]})
    columns = answer_rows(task, answer).columns
    named = {f"c{at}": pd.Series(pd.arrays.ArrowExtensionArray(column)) for at, column in enumerate(columns)}
    return pd.DataFrame(named, copy=False)


def _name(task: OnlineTask, key: Any) -> str:
    """The bucket among all of the machine; a wrong one is found out by its nonce."""
    context = TaskContext.get()
    query = "" if context is None else context.getLocalProperty("sql.streaming.queryId") or ""
    return f"{query} {task.plan} {int(key[0])}"


def measured(report: dict[str, Any], events: Sequence[Event]) -> Metrics:
    """What a turn counted."""
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
