"""Online joins on Structured Streaming: a bucket's events are its state, and its join lives on in a host process.

A micro-batch's outcome depends on the stored events, its own rows in a fixed order, and its logged time alone, so that
an attempt that is repeated gives the same answers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, DataError
from dovetail.online.event_log import Event, joined_pauses, pack_events, unpack_events
from dovetail.online.frame_batch import counts_by_side
from dovetail.online.frame_pack import ORDER, OnlineTask, answer_rows
from dovetail.online.host_client import run_turn
from dovetail.online.state_header import Header

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
        header.rows += int(arrived["n"].sum())
        self.task.sink.task(_counted(arrived, self.task.join.names, after_pause=header.pauses > 0))
        keep = self._expired(header, now_ms)
        events = self._arrivals(header, arrived)
        events, expiry = self._on_time(header, events)
        yield from self._retire(key, header, keep)
        if self.task.request.retain_ms is not None:
            header.mark(now_ms, self.task.request.retain_ms)
        yield from self._turn(key, header, events)
        header.note_expiry(expiry)
        self.task.sink.task(_measured_state(header))
        self._plan_pause(header, now_ms)
        self._save(header)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The reactive phase: some deferred work, and a later timer if there is more of it."""
        header, fired = self._load(), int(expiredTimerInfo.getExpiryTimeInMs())
        header.timer = None
        if not header.finished:
            report = yield from self._turn(key, header, [Event("idle", units=QUOTA)])
            if report["owed"]:
                header.timer = max(int(timerValues.getCurrentProcessingTimeInMs()), fired) + 1
                self._handle.registerTimer(header.timer)
        self._save(header)

    def close(self) -> None:
        """Nothing is held between calls."""

    def _load(self) -> Header:
        stored = self._pieces.getValue((_HEADER,))
        text = None if stored is None else bytes(stored[0]).decode()
        return Header.load(text, self.task.digest, len(self.task.join.names))

    def _save(self, header: Header) -> None:
        self._pieces.updateValue((_HEADER,), (header.dump().encode(),))

    def _arrivals(self, header: Header, arrived: pd.DataFrame) -> list[Event]:
        """What a micro-batch brings; the news that a side has ended comes after all its rows."""
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
        elif events and self.task.request.owed == "batch":
            events.append(Event("settle"))
        return events

    def _expired(self, header: Header, now_ms: int) -> int:
        """The piece before which rows leave: retained for long enough, or older than any row that may come."""
        lateness, retain_ms = self.task.lateness, self.task.request.retain_ms
        old = header.first if retain_ms is None else header.expired(now_ms, retain_ms)
        if lateness is None:
            return old
        return max(old, header.expired_by(lateness.watermark(header.newest)))

    def _on_time(self, header: Header, events: list[Event]) -> tuple[list[Event], int | None]:
        """Events without rows older than the watermark of earlier micro-batches, and when what they bring expires."""
        lateness = self.task.lateness
        if lateness is None:
            return events, None
        names, watermark, expiry = self.task.join.names, lateness.watermark(header.newest), None
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
                expiry = max(lateness.expiry(event.side, newest), newest if expiry is None else expiry)
        self.task.sink.task(counts_by_side("late_rows", names, late))
        return events, expiry

    def _retire(self, key: Any, header: Header, keep: int) -> Iterator[pd.DataFrame]:
        """Rows of pieces before `keep` leave, once all that they are owed is given.

        The rows that stay are joined anew without answers: the last of their events is that all is settled.
        """
        if keep > header.first:
            yield from self._turn(key, header, [Event("settle")])
            size = 0
            for number in range(header.first, keep):
                size += len(self._piece(number))
                self._pieces.removeKey((number,))
            header.forget_before(keep, size)
            header.nonce = ""

    def _turn(self, key: Any, header: Header, events: Sequence[Event]) -> Answers:
        """Give what events bring, and store them."""
        if not events:
            return {"owed": False}
        nonce, task = Header.new_nonce(), self.task
        turn = run_turn(_name(task, key), header.nonce, nonce, task.join.to_json(), events, lambda: self._log(header))
        while True:
            try:
                answer = next(turn)
            except StopIteration as end:
                report: dict[str, Any] = end.value
                break
            yield given(task, answer)
        header.nonce = nonce
        self._store(header, events)
        task.sink.task(measured(report, events))
        return report

    def _log(self, header: Header) -> Iterator[bytes]:
        for number in range(header.first, header.next):
            yield self._piece(number)

    def _store(self, header: Header, events: Sequence[Event]) -> None:
        """Append the events, to the last piece while that is small. After the end there is nothing to keep."""
        if header.finished:
            self._pieces.clear()
            header.forget_before(header.next, header.bytes)
            return
        header.pauses = header.pauses + len(events) if all(event.kind == "idle" for event in events) else 0
        if header.takes_more:
            events = joined_pauses([*unpack_events(self._piece(header.drop_tail())), *events])
        for some in _cut(events):
            data = pack_events(some)
            self._pieces.updateValue((header.add_piece(len(data)),), (data,))

    def _piece(self, number: int) -> bytes:
        found = self._pieces.getValue((number,))
        if found is None:
            raise ConfigError(f"piece {number} of the state is missing; start from an older checkpoint.")
        return bytes(found[0])

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
