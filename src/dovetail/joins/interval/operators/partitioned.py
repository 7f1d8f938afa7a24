"""The common part of the two blocking joins: reads inputs to the end, loads rows by partition, buffers pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import compact, compact_bytes, empty_batch, held_bytes, nbytes
from dovetail.engine.storage.spill import SpillFile
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows
from dovetail.joins.interval.operators.driver import IntervalOperator, Need, Pull
from dovetail.joins.interval.operators.spec import (
    END,
    OVERHEAD_BYTES,
    ROW,
    START,
    IntervalSpec,
    RowBytes,
    rows_within,
    stretches,
)

_NONE: I64 = int64s([])
_LARGEST = 2**62  # bytes of a block that is cut by its rows alone


@dataclass(frozen=True)
class Loaded:
    """A batch of rows in pieces: piece i is rows first[i] to first[i + 1], of partition part[i] and key[i].

    `key` is empty if the join has no key.
    """

    batch: pa.RecordBatch
    part: I64
    first: I64
    key: I64
    row_bytes: RowBytes

    @cached_property
    def ordinals(self) -> I64:
        """Positions of the rows in their input."""
        return int64s(self.batch.column(ROW).to_numpy())

    @cached_property
    def _weights(self) -> I64:
        return self.row_bytes.of(self.batch)

    def rows(self) -> Rows:
        """The rows as kernels see them, without keys and weights, which belong to the partitions."""
        start, end = (int64s(self.batch.column(name).to_numpy()) for name in (START, END))
        return Rows(start, end, _NONE, _NONE, 1)

    def bytes_of(self, rows: I64) -> I64:
        """The weight of each of these rows, in bytes."""
        return self._weights[rows] if self._weights.size else np.full(rows.size, self.row_bytes.fixed)


def nothing_loaded(schema: pa.Schema) -> Loaded:
    """No rows of this schema."""
    return Loaded(empty_batch(schema), int64s([]), int64s([0]), int64s([]), RowBytes(schema))


def pieces_of(parts: I64, keys: I64) -> tuple[I64, I64, I64]:
    """Of rows in which equal partitions and keys stand together: each partition once, the edges between, and the keys.

    Without keys (an empty array) there are none in the answer either.
    """
    if parts.size == 0:
        return int64s([]), int64s([0]), int64s([])
    changes = parts[1:] != parts[:-1]
    if keys.size:
        changes |= keys[1:] != keys[:-1]
    first = np.concatenate([[0], np.flatnonzero(changes) + 1])
    return int64s(parts[first]), int64s(np.append(first, parts.size)), int64s(keys[first] if keys.size else keys)


Pieces = Generator[Need, "pa.RecordBatch | None", "pa.RecordBatch | None"]


class Intake:
    """Pieces of one side's batches, of at most `segment_bytes` where rows allow, with the column `_row` added."""

    def __init__(self, side: str, schema: pa.Schema, segment_bytes: int, budget: MemoryBudget) -> None:
        self.side, self._given = side, schema
        self.schema = schema.append(pa.field(ROW, pa.int64()))
        self.rows_in = 0
        self._segment_bytes = segment_bytes
        self._memory = budget.reserve(f"{side} input")
        self._waiting: pa.RecordBatch | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of input that are in memory and were not taken yet."""
        return self._memory.used

    def next(self) -> Pieces:
        """The next piece, or None at the end."""
        while self._waiting is None:
            batch = yield Need(self.side)
            if batch is None:
                return None
            if not batch.schema.equals(self._given):
                raise PlanError(
                    f"a batch of the {self.side} input has schema {batch.schema}; announced: {self._given}."
                )
            if batch.num_rows:
                self._memory.resize(compact_bytes(batch))
                self._waiting = compact(batch)
        return self._cut()

    def _cut(self) -> pa.RecordBatch:
        batch = self._waiting
        assert batch is not None  # noqa: S101  (next() has just made sure)
        rows = rows_within(batch, self._segment_bytes)
        self._waiting = batch.slice(rows) if rows < batch.num_rows else None
        piece = batch.slice(0, rows)
        ordinals = pa.array(np.arange(self.rows_in, self.rows_in + piece.num_rows))
        self.rows_in += piece.num_rows
        return pa.RecordBatch.from_arrays([*piece.columns, ordinals], schema=self.schema)

    def close(self) -> None:
        """Release the memory."""
        self._waiting = None
        self._memory.close()


@dataclass(frozen=True, slots=True)
class Storage:
    """How the rows of one side are stored: its columns, the unit of memory, the sizes of frames and blocks, the files.

    Memory counts tuples, in frames of `frame_rows`, or bytes. On disk rows come in blocks of at most `block_rows` and
    `block_bytes`.
    """

    side: str
    schema: pa.Schema
    keyed: bool
    by_tuples: bool
    frame_rows: int
    block_rows: int
    block_bytes: int
    budget: MemoryBudget
    spill_dir: Path | None

    def file(self, name: str) -> SpillFile:
        """A new file for rows of this side."""
        return SpillFile(self.schema, self.spill_dir, f"{self.side}-{name}")

    def stretches(self, weights: I64) -> Iterator[tuple[int, int]]:
        """Rows of these weights in blocks, first and last row."""
        return stretches(weights, self.block_rows, self.block_bytes)


class RowQueue:
    """A queue of pieces in input order. Once spilled, later pieces go to the file as well."""

    def __init__(self, name: str, storage: Storage) -> None:
        self.rows = self.weight = 0
        self.file = storage.file(name)
        self._row_bytes, self._by_tuples = RowBytes(storage.schema), storage.by_tuples
        self._kept: deque[pa.RecordBatch] = deque()
        self._memory = storage.budget.reserve(f"{storage.side}-{name}")
        self._read = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append these rows."""
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        if self.file.blocks:
            self.file.append(batch)
            return
        batch = compact(batch)
        self._memory.grow(held_bytes(batch))
        self._kept.append(batch)
        self.weight += self._weigh(batch)

    def spill(self) -> None:
        """Move everything to disk."""
        for batch in self._kept:
            self.file.append(batch)
        self._kept.clear()
        self._memory.close()
        self.weight = 0

    def next(self) -> Pieces:
        """The next piece, or None at the end; asks for no input."""
        yield from ()
        if self._read < self.file.blocks:
            self._read += 1
            return self.file.read(self._read - 1)
        if not self._kept:
            return None
        batch = self._kept.popleft()
        self._memory.shrink(held_bytes(batch))
        self.weight -= self._weigh(batch)
        return batch

    def _weigh(self, batch: pa.RecordBatch) -> int:
        return int(batch.num_rows) if self._by_tuples else self._row_bytes.total(batch)

    def close(self) -> None:
        """Free the memory and remove the file; counts stay."""
        self._kept.clear()
        self._memory.close()
        self.file.close()


class RowStore(ABC):
    """The partitions of one input: the weight of its rows, and how they are read from disk."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.side, self.schema = storage, storage.side, storage.schema
        self.row_bytes = RowBytes(storage.schema)
        self.weight = self.rows_written = self.rows_read = 0
        self._memory = storage.budget.reserve(f"{storage.side} partitions")
        self._reading = storage.budget.reserve(f"{storage.side} partitions read")

    @abstractmethod
    def partitions(self) -> int:
        """How many partitions hold rows."""

    @abstractmethod
    def loads(self, capacity: int) -> Iterator[Loaded]:
        """All rows by key and partition, as much at a time as `capacity` allows; from memory everything at once."""

    @abstractmethod
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes written to disk and read again so far."""

    def moved_frames(self) -> tuple[int, int] | None:
        """Frames written to disk and read again; None if rows fill them."""
        return None

    def _charged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A copy of the rows in memory, without the rest of their buffers, charged to the budget."""
        batch = compact(batch)
        self._memory.grow(held_bytes(batch) + OVERHEAD_BYTES * batch.num_rows)
        self.weight += int(batch.num_rows) if self.storage.by_tuples else self.row_bytes.total(batch)
        return batch

    def _loads(
        self, blocks: Iterable[tuple[int, pa.RecordBatch]], capacity: int
    ) -> Iterator[list[tuple[int, pa.RecordBatch]]]:
        """Numbered blocks of rows, as much at a time as `capacity` allows, charged until the next are requested."""
        taken: list[tuple[int, pa.RecordBatch]] = []
        room = capacity
        for number, rest in blocks:
            while rest.num_rows:
                fits = self._fitting(rest, room)
                if fits or not taken:  # a single row is taken at any weight
                    rows, rest = rest.slice(0, max(1, fits)), rest.slice(max(1, fits))
                    self._reading.grow(2 * nbytes(rows) + OVERHEAD_BYTES * rows.num_rows)
                    taken.append((number, rows))
                    room -= self._occupied(rows)
                if rest.num_rows:
                    yield taken
                    taken, room = [], capacity
                    self._reading.close()
        if taken:
            yield taken
        self._reading.close()

    def _fitting(self, rows: pa.RecordBatch, room: int) -> int:
        """How many of these rows fit, in whole frames if memory is counted in tuples."""
        if self.storage.by_tuples:
            return min(int(rows.num_rows), max(0, room - room % self.storage.frame_rows))
        return self.row_bytes.fitting(rows, room)

    def _occupied(self, rows: pa.RecordBatch) -> int:
        each = self.storage.frame_rows
        return -(-rows.num_rows // each) * each if self.storage.by_tuples else self.row_bytes.total(rows)


class PartitionedOperator(IntervalOperator):
    """A join that partitions R, then S, and joins pairs of partitions.

    If S does not fit, it is joined in batches that fill memory, except for `outer_frames` frames.
    """

    stores: Sequence[RowStore]
    outer_frames: ClassVar[int]

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        r, s = (self.own(Intake(name, schemas[name], self.shares.segment, budget)) for name in self.names)
        self.intakes: tuple[Intake, Intake] = (r, s)
        self.output = self._open_output((nothing_loaded(r.schema), nothing_loaded(s.schema)))
        self.batches = 0

    def _storage(self, intake: Intake, frame_rows: int, block_bytes: int) -> Storage:
        rows = max(1, block_bytes // RowBytes(intake.schema).fixed)
        by_tuples = self.spec.frames is not None
        sizes = frame_rows, max(frame_rows, rows), _LARGEST if by_tuples else block_bytes
        return Storage(intake.side, intake.schema, self.spec.keyed, by_tuples, *sizes, self.budget, self.spill_dir)

    @property
    def capacity(self) -> int:
        """The capacity for rows in memory: tuples if frames are given, else bytes."""
        frames = self.spec.frames
        return frames.tuples if frames else self.shares.blocking(sum(intake.waiting_bytes for intake in self.intakes))

    @abstractmethod
    def _partition(self) -> Pull:
        """Read both inputs to the end, into `stores`."""

    @abstractmethod
    def _join(self, inner: Loaded) -> Pull:
        """One batch of the inner input with the outer one."""

    def _run(self) -> Pull:
        yield from self._partition()
        frames = self.spec.frames
        fitting = max(1, frames.tuples - self.outer_frames * frames.tuples_per_frame) if frames else self.capacity
        for inner in self.stores[1].loads(fitting):
            self.batches += 1
            yield from self._join(inner)

    def _meet(self, outer: Loaded, inner: Loaded, step: Callable[[], int]) -> Pull:
        """The answers of some rows of both sides, by a kernel that is called until it is done."""
        self.output.show((outer, inner))
        self.state[sw.R_POS] = self.state[sw.PHASE] = 0
        while step() != sw.DONE:
            yield from self._flush()
        yield from self._flush()

    def _record(self) -> None:
        super()._record()
        self.metrics.add("inner_batches", self.batches, unit="batches")
        for intake, store in zip(self.intakes, self.stores, strict=True):
            self.metrics.add("rows_in", intake.rows_in, intake.side)
            self.metrics.add("partitions", store.partitions(), intake.side, unit="partitions")
            self._record_files(
                store.side, (store.rows_written, store.rows_read), store.moved_bytes(), store.moved_frames()
            )
