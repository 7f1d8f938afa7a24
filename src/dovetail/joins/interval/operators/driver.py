"""The common part of all interval operators: pulled or pushed input, and output of pairs.

Pairs of row numbers are output as rows, as ordinals, or only counted; matched rows are recorded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.operator import OperatorBase
from dovetail.engine.rows.columns import compact, compact_bytes, take_columns
from dovetail.engine.storage.spill import SpillFile
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.operators.spec import (
    END,
    KEY,
    OVERHEAD_BYTES,
    ROW,
    SIDES,
    START,
    Emit,
    IntervalSpec,
    Shares,
)


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
        """Keep a batch until it is needed."""
        on_disk = self._read < self._file.blocks
        size = compact_bytes(batch)
        if on_disk or self._memory.used + size > self._limit or not self._memory.try_grow(size):
            self._file.append(batch)
            return
        self._ready.append((compact(batch), size))

    def get(self) -> pa.RecordBatch:
        """The oldest batch; the caller is charged for it from then on."""
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


class Matched:
    """A bitmap over the ordinals of one side, charged to the budget; rows never seen are unmatched.

    Bits are numbered as Arrow numbers them, lowest first.
    """

    def __init__(self, side: str, budget: MemoryBudget) -> None:
        self.side = side
        self.bits: U8 = np.zeros(0, np.uint8)
        self._memory = budget.reserve(f"{side} matched")

    def add(self, ordinals: I64) -> None:
        """Mark these rows."""
        if ordinals.size:
            self._reach(int(ordinals.max()) // 8 + 1)
            sw.set_bits(self.bits, ordinals)

    def mask(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Whether each of the `count` rows from ordinal `first` on has matched."""
        mask = np.zeros(count, np.bool_)
        known = self.bits[first // 8 : (first + count + 7) // 8]
        found = np.unpackbits(known, bitorder="little")[first % 8 :][:count]
        mask[: found.size] = found
        return mask

    def close(self) -> None:
        """Release the bitmap."""
        self.bits = np.zeros(0, np.uint8)
        self._memory.close()

    def _reach(self, size: int) -> None:
        if size > self.bits.size:
            size = max(size, self.bits.size * 3 // 2)
            self._memory.grow(size)
            grown = np.zeros(size, np.uint8)
            grown[: self.bits.size] = self.bits
            self.bits = grown
            self._memory.resize(size)


PAIR_SCHEMA = pa.schema([("left", pa.int64()), ("right", pa.int64())])
_CODES = (START, END, KEY, ROW)


def output_schema(emit: Emit, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """The schema of the answer: left's payload then right's, or pairs of ordinals, or no columns for a count."""
    if emit == "count":
        return pa.schema([])
    if emit == "pairs":
        return PAIR_SCHEMA
    fields = [field for schema in (left, right) for field in schema if field.name not in _CODES]
    if not fields:
        raise PlanError('neither input has a payload column to give out; use emit="pairs" or emit="count".')
    return pa.schema(fields)


class Window(Protocol):
    """Rows that the kernels number, with their ordinals in the input."""

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows."""
        ...

    @property
    def ordinals(self) -> I64:
        """Their positions in the input."""
        ...

    def bytes_of(self, rows: I64) -> I64:
        """The weight of each of these rows, in bytes."""
        ...


class Output:
    """Collects pairs that the kernels find and turns them into batches of bounded size.

    The kernels write row numbers of the two windows into `out_r` and `out_s`; `take` must come before a window changes.
    With `exchange` R is the right input; answers still have left first.
    """

    def __init__(
        self,
        emit: Emit,
        schema: pa.Schema,
        windows: tuple[Window, Window],
        exchange: bool,
        track: tuple[str, ...],
        shares: Shares,
        budget: MemoryBudget,
    ) -> None:
        self.schema, self.emit = schema, emit
        self.stores = emit != "count" or bool(track)
        self._exchange, self._batch_bytes = exchange, shares.output // 2
        self.show(windows)
        self.matched = {side: Matched(side, budget) for side in track}
        self._memory = budget.reserve("output")
        pairs = shares.pairs if self.stores else 0
        self._memory.grow(32 * pairs)  # the numbers, and their ordinals
        self.out_r, self.out_s = np.empty(pairs, np.int64), np.empty(pairs, np.int64)

    def show(self, windows: tuple[Window, Window]) -> None:
        """Set the windows to which R and S row numbers refer."""
        self._left, self._right = windows[::-1] if self._exchange else windows

    def take(self, n: int) -> Iterator[pa.RecordBatch]:
        """The answers of the first `n` pairs in the buffers."""
        if n == 0:
            return
        found = (self.out_s[:n], self.out_r[:n]) if self._exchange else (self.out_r[:n], self.out_s[:n])
        if self.matched or self.emit == "pairs":
            left, right = self._left.ordinals[found[0]], self._right.ordinals[found[1]]
            for side, ordinals in (("left", left), ("right", right)):
                if side in self.matched:
                    self.matched[side].add(ordinals)
            if self.emit == "pairs":
                yield pa.RecordBatch.from_arrays([pa.array(left), pa.array(right)], schema=self.schema)
        if self.emit == "rows":
            yield from self._rows(*found)

    def _rows(self, left: I64, right: I64) -> Iterator[pa.RecordBatch]:
        held = self._memory.used
        ends = np.cumsum(self._left.bytes_of(left) + self._right.bytes_of(right) - 2 * OVERHEAD_BYTES)
        first = 0
        while first < left.size:
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + self._batch_bytes, side="right")))
            self._memory.grow(int(ends[last - 1] - before))
            yield self._gathered(left[first:last], right[first:last])
            self._memory.resize(held)
            first = last

    def _gathered(self, left: I64, right: I64) -> pa.RecordBatch:
        columns = [*_payload(self._left.batch, left), *_payload(self._right.batch, right)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def close(self) -> None:
        """Give the buffers back; `matched` stays until closed by itself."""
        self._memory.close()
        for matched in self.matched.values():
            matched.close()


def _payload(batch: pa.RecordBatch, rows: I64) -> list[pa.Array]:
    wanted = batch.select([name for name in batch.schema.names if name not in _CODES])
    return list(take_columns(wanted, rows).columns)


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
    Inside, R and S are numbered 0 and 1.
    """

    output: Output

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        self.shares = spec.shares(budget, schemas)
        super().__init__(output_schema(spec.emit, schemas["left"], schemas["right"]), budget)
        self.spec, self.schemas, self.spill_dir = spec, schemas, spill_dir
        self.rule, self.names = spec.rule(), SIDES[::-1] if spec.exchange else SIDES  # of R and S
        self.state = np.zeros(sw.STATE_SIZE, np.int64)
        self._started = False
        self._pull: Pull | None = None
        self._wanted: str | None = None
        self._inboxes: dict[str, Inbox] = {}

    @abstractmethod
    def _run(self) -> Pull:
        """The algorithm: yields answers and requests for input."""

    def _open_output(self, windows: tuple[Window, Window]) -> Output:
        """The output for pairs of rows of these windows, R first."""
        spec = self.spec
        output = Output(spec.emit, self.schema, windows, spec.exchange, spec.track, self.shares, self.budget)
        self.state[sw.STORE] = output.stores
        return self.own(output)

    def _flush(self) -> Pull:
        """The answers of the pairs that the kernel has found."""
        n = int(self.state[sw.OUT])
        self.state[sw.OUT] = 0
        yield from self.output.take(n)

    def _record(self) -> None:
        """Write the counts of the run into the metrics."""
        state, metrics = self.state, self.metrics
        metrics.add("comparisons_productive", state[sw.PRODUCTIVE], unit="comparisons")
        metrics.add("comparisons_unproductive", state[sw.UNPRODUCTIVE], unit="comparisons")
        metrics.add("pairs", state[sw.PRODUCTIVE] - state[sw.SUPPRESSED], unit="pairs", per_task=True)
        metrics.add("pairs_suppressed", state[sw.SUPPRESSED], unit="pairs")

    def _record_files(
        self, side: str, rows: tuple[int, int], size: tuple[int, int], frames: tuple[int, int] | None = None
    ) -> None:
        """Write the rows, bytes and frames that a side wrote to disk and read again; by default rows fill frames."""
        for number, what in enumerate(("written", "read")):
            self.metrics.add(f"rows_{what}", rows[number], side)
            self.metrics.add(f"bytes_{what}", size[number], side, unit="bytes")
            if self.spec.frames:
                filled = -(-rows[number] // self.spec.frames.tuples_per_frame)
                self.metrics.add(f"frames_{what}", frames[number] if frames else filled, side, unit="frames")

    @property
    def matched(self) -> Mapping[str, Matched]:
        """Of each tracked side, which rows have found a partner; complete after the last answer, until `close`."""
        return self.output.matched

    def join(self, left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All answers for two inputs, which are read batch by batch and only as far as answers need."""
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
        """Take one batch of a side; yields the answers that are now possible."""
        if side not in SIDES:
            raise PlanError(f"there is no input {side!r}; this join takes {list(SIDES)}.")
        self._open_inboxes()
        if batch.num_rows:
            self._inboxes[side].put(batch)
        return self._advance()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields the remaining answers; all inputs have ended."""
        self._open_inboxes()
        for inbox in self._inboxes.values():
            inbox.closed = True
        yield from self._advance()
        self._record()

    def _advance(self) -> Iterator[pa.RecordBatch]:
        """Run until an input is needed that has no batch yet."""
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
