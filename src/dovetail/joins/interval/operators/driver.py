"""The driver of every interval operator: it pulls either input, or is pushed and keeps what comes too early."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dovetail.engine.columns import compact, compact_bytes
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorBase
from dovetail.engine.spill import SpillFile
from dovetail.errors import PlanError
from dovetail.joins.interval.operators.output import Matched, output_schema
from dovetail.joins.interval.operators.spec import SIDES, IntervalSpec


class Inbox:
    """A queue of one side's batches. Once a batch went to disk, later ones follow it until the disk part is read."""

    def __init__(self, side: str, schema: pa.Schema, memory_bytes: int, budget: MemoryBudget, directory: Path | None):
        self.closed = False  # no batch will follow
        self._limit = memory_bytes
        self._memory = budget.reserve(f"{side} inbox")
        self._ready: deque[tuple[pa.RecordBatch, int]] = deque()
        self._file = SpillFile(schema, directory, f"{side}-inbox")
        self._read = 0

    def __bool__(self) -> bool:
        return bool(self._ready) or self._read < self._file.blocks

    def put(self, batch: pa.RecordBatch) -> None:
        """Keep a batch until it is asked for."""
        on_disk = self._read < self._file.blocks
        size = compact_bytes(batch)
        if on_disk or self._memory.used + size > self._limit or not self._memory.try_grow(size):
            self._file.append(batch)
            return
        self._ready.append((compact(batch), size))

    def get(self) -> pa.RecordBatch:
        """The oldest batch, which is then the taker's to charge."""
        if not self._ready:
            self._read += 1
            return self._file.read(self._read - 1)
        batch, size = self._ready.popleft()
        self._memory.shrink(size)
        return batch

    def close(self) -> None:
        """Free the memory and remove the file."""
        self._ready.clear()
        self._memory.close()
        self._file.close()


@dataclass(frozen=True, slots=True)
class Need:
    """A request for the next batch of a side; None answers that there is none."""

    side: str


Pull = Generator["Need | pa.RecordBatch", "pa.RecordBatch | None", None]
"""A running join: it yields answers, and requests that are answered by `send`."""


class IntervalOperator(OperatorBase):
    """An interval join in progress, usable in two ways, once.

    `join` pulls: it asks either input for its next batch when the algorithm needs it, so no input is buffered beyond
    what the algorithm holds. `push` and `finish` serve hosts that decide which side comes next: a batch that the
    algorithm does not need yet waits in memory (an eighth of the budget a side), then on disk.
    """

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        self.shares = spec.shares(budget, schemas)
        super().__init__(output_schema(spec.emit, schemas["left"], schemas["right"]), budget)
        self.spec, self.schemas, self.spill_dir = spec, schemas, spill_dir
        self._started = False
        self._pull: Pull | None = None
        self._wanted: str | None = None
        self._inboxes: dict[str, Inbox] = {}

    @abstractmethod
    def _run(self) -> Pull:
        """The algorithm: yields answers and requests for input."""

    @abstractmethod
    def _record(self) -> None:
        """Write the counts of the run into the metrics."""

    @property
    @abstractmethod
    def matched(self) -> Mapping[str, Matched]:
        """Of each tracked side, which rows have found a partner; complete after the last answer, until `close`."""

    def join(self, left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All answers for two inputs, asked for batch by batch; what is not needed for an answer is not asked for."""
        sources = {"left": iter(left), "right": iter(right)}
        pull = self._start()
        sent: pa.RecordBatch | None = None
        while True:
            try:
                item = pull.send(sent)
            except StopIteration:
                self._record()
                return
            sent = None
            if isinstance(item, Need):
                sent = next(sources[item.side], None)
            else:
                yield item

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take one batch of a side and give the answers it makes possible now."""
        if side not in SIDES:
            raise PlanError(f"there is no input {side!r}; this join takes {list(SIDES)}.")
        self._open_inboxes()
        if batch.num_rows:
            self._inboxes[side].put(batch)
        return self._advance()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give the remaining answers; all inputs have ended."""
        self._open_inboxes()
        for inbox in self._inboxes.values():
            inbox.closed = True
        yield from self._advance()
        self._record()

    def _advance(self) -> Iterator[pa.RecordBatch]:
        """Go on until an input is wanted that has nothing yet."""
        while self._pull is not None:
            sent: pa.RecordBatch | None = None
            if self._wanted is not None:
                inbox = self._inboxes[self._wanted]
                if not inbox and not inbox.closed:
                    return
                sent, self._wanted = inbox.get() if inbox else None, None
            try:
                item = self._pull.send(sent)
            except StopIteration:
                self._pull = None
                return
            if isinstance(item, Need):
                self._wanted = item.side
            else:
                yield item

    def _open_inboxes(self) -> None:
        if not self._inboxes:
            room = self.shares.limit // 8
            for side in SIDES:
                inbox = Inbox(side, self.schemas[side], room, self.budget, self.spill_dir)
                self._inboxes[side] = self.own(inbox)
            self._pull = self._start(2 * room)

    def _start(self, elsewhere: int = 0) -> Pull:
        if self._started:
            raise PlanError("this operator has run already; open another one.")
        self._started = True
        self.shares = self.shares.without(elsewhere)
        return self._run()
