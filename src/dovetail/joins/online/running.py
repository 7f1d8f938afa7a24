"""The running join of one bucket, which lives on between micro-batches: events, rows taken up, rows that leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.engine.operator import OperatorError
from dovetail.engine.packing import CHUNK_ROWS, in_chunks
from dovetail.errors import BudgetExceeded
from dovetail.joins.online.bucket_join import BucketJoin
from dovetail.joins.online.event_log import Event, Piece, unpack_events
from dovetail.joins.online.operators.base import OnlineOperator

_ANSWER_BYTES = 4 << 20


class Work(NamedTuple):
    """What a turn brings: events, before which the `leaving` oldest rows leave a join that lives on.

    A join that was rebuilt never had them.
    """

    events: Sequence[Event]
    leaving: int = 0


@dataclass(slots=True)
class Units:
    """What `idle` asks: true after this many units of work. If some are `left` afterwards, all work is done."""

    left: int

    def __call__(self) -> bool:
        """Whether they are used up; one more is."""
        self.left -= 1
        return self.left <= 0


class Running:
    """The running join of one bucket."""

    def __init__(self, join: BucketJoin) -> None:
        self.operator: OnlineOperator = join.open()
        self._names = join.names
        self._schemas = [join.schemas[name] for name in join.names]
        self._rows: deque[tuple[int, int]] = deque()
        """For all events that brought rows which have not left: how many, and the tick of the last of them."""
        self.owed = True
        self.is_over = False

    def work(self, what: Work, is_new: bool) -> Generator[pa.Buffer, None, dict[str, Any]]:
        """Answers as Arrow record batches without their schema, and then what was counted.

        The join `is_over` after `finish`, and where a rebuilt one would be better.
        """
        if what.leaving and not is_new:
            self.retire(what.leaving)
            self.is_over = self.operator.would_fit
        base = self.totals()
        for event in what.events:
            self.is_over = self.is_over or event.kind == "finish"
            for batch in in_chunks(self.apply(event), CHUNK_ROWS, _ANSWER_BYTES):
                yield batch.serialize()
        counts = {key: value - base[key] for key, value in self.totals().items()}
        return {"owed": self.owed, "counts": counts, "peaks": self.peaks()}

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
            yield from self.operator.resize(event.units)
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
        waiting = iter(pieces)
        tail: list[Piece] = []
        for _ in self.operator.restore(self._settled_rows(waiting, tail)):
            pass
        self.owed = False
        for piece in chain(tail, waiting):
            for event in unpack_events(piece.data):
                for _ in self.apply(event):
                    pass

    def _settled_rows(self, pieces: Iterator[Piece], tail: list[Piece]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of the settled pieces, which come first; the first of the others goes to the tail."""
        for piece in pieces:
            if not piece.settled:
                tail.append(piece)
                return
            for event in unpack_events(piece.data):
                if event.kind == "push":
                    batch = event.batch(self._schemas[event.side])
                    yield self._names[event.side], batch
                    self._came(batch.num_rows)

    def _came(self, rows: int) -> None:
        if rows:
            self._rows.append((rows, self.operator.clock))

    def retire(self, rows: int) -> None:
        """This many of the oldest rows of all inputs leave; they came with whole events, and nothing is owed."""
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
