"""Joins of buckets that live on between micro-batches, found again only if they are in the very state that was stored.

Every state that is stored has a number of its own (`nonce`). A join that is not here, or is in a state that was never
stored, is made anew from the pieces of the state.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.engine.operator import OperatorError
from dovetail.errors import BudgetExceeded
from dovetail.joins.online.event_log import Event, Piece, unpack_events
from dovetail.joins.online.joining import JoiningOperator
from dovetail.joins.online.resident.joins import ResidentJoin, join_from_json

Log = Callable[[], Iterable[Piece]]
_ANSWER_ROWS = 1 << 16
_ANSWER_BYTES = 4 << 20
IDLE_S = 600.0


@dataclass(slots=True)
class Units:
    """What `idle` asks: true after so many units of work. Where some are `left` afterwards, nothing is left to do."""

    left: int

    def __call__(self) -> bool:
        """Whether they are used up; one more is."""
        self.left -= 1
        return self.left <= 0


class Running:
    """The running join of one bucket."""

    def __init__(self, join: ResidentJoin) -> None:
        self.operator: JoiningOperator = join.open()
        self._names = join.names
        self._schemas = [join.schemas[name] for name in join.names]
        self._rows: deque[tuple[int, int]] = deque()
        """For all events that brought rows which have not left: how many, and the tick of the last of them."""
        self.owed = True

    def apply(self, event: Event) -> Iterator[pa.RecordBatch]:
        """The answers that an event brings."""
        if event.kind == "push":
            self.owed = True
            batch = event.batch(self._schemas[event.side])
            yield from self.operator.push(self._names[event.side], batch)
            self._came(batch.num_rows)
        elif event.kind == "settle":
            yield from self._settled()
        elif event.kind == "finish":
            yield from self.operator.finish()
        elif event.kind == "budget":
            self.operator.budget.raise_limit(event.units)
        else:
            for _ in range(event.times):
                units = Units(event.units)
                yield from self.operator.idle(units)
                self.owed = units.left <= 0

    def _settled(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.operator.drain()
        except BudgetExceeded as error:
            limit = format_bytes(self.operator.budget.limit)
            raise BudgetExceeded(
                f"what is owed cannot be settled inside {limit}; start again from the same checkpoint with more "
                f"memory=. {error}"
            ) from error
        self.owed = False

    def take_up(self, pieces: Iterable[Piece]) -> None:
        """Be the join that has these pieces behind it: rows of settled ones are loaded, other events are replayed.

        What those give was given before.
        """
        is_loading = True
        for piece in pieces:
            if is_loading and not piece.settled:
                self._loaded()
            is_loading = is_loading and piece.settled
            for event in unpack_events(piece.data):
                if not is_loading:
                    for _ in self.apply(event):
                        pass
                elif event.kind == "push":
                    self._load(event)
        if is_loading:
            self._loaded()

    def _load(self, event: Event) -> None:
        batch = event.batch(self._schemas[event.side])
        self.operator.load(self._names[event.side], batch)
        self._came(batch.num_rows)

    def _loaded(self) -> None:
        self.operator.loaded()
        self.owed = False

    def _came(self, rows: int) -> None:
        if rows:
            self._rows.append((rows, self.operator.clock))

    def retire(self, rows: int) -> None:
        """The oldest rows, so many of all inputs, leave; they came with whole events, and nothing is owed."""
        until = 0
        while rows > 0:
            n, until = self._rows.popleft()
            rows -= n
        if rows < 0:
            raise OperatorError(f"rows that leave end {-rows} rows before the end of an event.")
        self.operator.retire(until)

    def close(self) -> None:
        """Free memory and files."""
        self.operator.begin({})  # what was never begun cannot be counted
        self.operator.close()

    def totals(self) -> dict[str, int]:
        """What was counted since the join began."""
        operator, found = self.operator, {"comparisons": self.operator.metrics.value("comparisons")}
        for phase, n in operator.progress.results.items():
            found[f"results_{phase}"] = n
        for side, store in zip(self._names, operator.blocks, strict=True):
            found[f"blocks_flushed {side}"] = store.blocks_written
            found[f"blocks_read {side}"] = store.blocks_read
            found[f"bytes_flushed {side}"] = store.bytes_written
        return found

    def peaks(self) -> dict[str, int]:
        """Largest values so far."""
        names = {entry.name for entry in self.operator.metrics.entries()}
        found = {"memory_peak": self.operator.budget.peak}
        if "handover_delay" in names:
            found["handover_delay"] = self.operator.metrics.value("handover_delay")
        return found


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    nonce: str | None = None
    running: Running | None = None
    used: float = 0.0

    def drop(self) -> None:
        if self.running is not None:
            self.running.close()
        self.running, self.nonce = None, None


class Pool:
    """The running joins of one process, by name; any thread may ask."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def turn(
        self, name: str, before: str, after: str, join: str, events: Iterable[Event], log: Log, leaving: int = 0
    ) -> Generator[pa.Buffer, None, dict[str, Any]]:
        """Answers that these events bring to the join that was stored as `before`, and then what was counted.

        Answers are Arrow record batches without their schema. `log` gives the pieces of the state, if they are needed;
        they are without the `leaving` oldest rows, which leave a join that lives on first. The join stays here as
        `after`. It is dropped if that is empty, after `finish`, on any error, and where one made anew would be better.
        """
        with self._lock:
            entry = self._entries.setdefault(name, _Entry())
        with entry.lock:
            running, is_over = self._found(entry, before, join, log), False
            try:
                replayed = running is not entry.running
                entry.running, entry.nonce = running, None
                if leaving and not replayed:
                    running.retire(leaving)
                    is_over = running.operator.would_fit
                base = running.totals()
                for event in events:
                    is_over = is_over or event.kind == "finish"
                    yield from _answers(running.apply(event))
                counts = {key: value - base[key] for key, value in running.totals().items()}
                report = {"owed": running.owed, "counts": counts, "peaks": running.peaks(), "replayed": replayed}
                entry.nonce, entry.used = after, time.monotonic()
            finally:
                if not entry.nonce or is_over:
                    entry.drop()
            return report

    def _found(self, entry: _Entry, before: str, join: str, log: Log) -> Running:
        if entry.running is not None and entry.nonce == before and before:
            return entry.running
        entry.drop()
        running = Running(join_from_json(join))
        try:
            running.take_up(log())
        except BaseException:
            running.close()
            raise
        return running

    def forget_idle(self, idle_s: float = IDLE_S) -> int:
        """Drop joins that nobody asked for in so long; how many are left. They come again from their state."""
        with self._lock:
            entries = list(self._entries.items())
        for name, entry in entries:
            if time.monotonic() - entry.used > idle_s and entry.lock.acquire(blocking=False):
                try:
                    entry.drop()
                finally:
                    entry.lock.release()
                with self._lock:
                    self._entries.pop(name, None)
        return len(self._entries)

    def close(self) -> None:
        """Drop every join that is not in use."""
        self.forget_idle(-1.0)


def _answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Buffer]:
    """Batches as bytes, small ones together."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ANSWER_ROWS or size >= _ANSWER_BYTES:
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.Buffer:
    return (batches[0] if len(batches) == 1 else pa.concat_batches(batches)).serialize()
