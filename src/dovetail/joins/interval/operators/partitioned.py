"""The two blocking joins' common part: inputs read to the end, rows loaded by partition, a pair buffer, and counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import compact, compact_bytes, held_bytes, nbytes
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.sweep import Rows
from dovetail.joins.interval.operators.driver import IntervalOperator, Need
from dovetail.joins.interval.operators.spec import END, OVERHEAD_BYTES, ROW, START, IntervalSpec, RowBytes, rows_within

_NONE: I64 = int64s([])


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
        """What each of these rows weighs, in bytes."""
        return self._weights[rows] if self._weights.size else np.full(rows.size, self.row_bytes.fixed)


def nothing_loaded(schema: pa.Schema) -> Loaded:
    """No rows of this schema."""
    return Loaded(empty_batch(schema), int64s([]), int64s([0]), int64s([]), RowBytes(schema))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


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
        """Give the memory back."""
        self._waiting = None
        self._memory.close()


class RowQueue:
    """A queue of pieces in input order. Once spilled, later pieces go to the file as well."""

    def __init__(
        self, name: str, schema: pa.Schema, by_tuples: bool, budget: MemoryBudget, spill_dir: Path | None
    ) -> None:
        self.rows = self.weight = 0
        self.file = SpillFile(schema, spill_dir, name)
        self._row_bytes, self._by_tuples = RowBytes(schema), by_tuples
        self._kept: deque[pa.RecordBatch] = deque()
        self._memory = budget.reserve(name)
        self._read = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep these rows behind those already here."""
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


class RowStore:
    """The partitions of one input: what its rows weigh, and how they come back from disk.

    On disk rows come in frames of `frame_rows` where memory is counted in tuples.
    """

    def __init__(
        self, side: str, schema: pa.Schema, keyed: bool, frame_rows: int, by_tuples: bool, budget: MemoryBudget
    ) -> None:
        self.side, self.schema, self.keyed, self.frame_rows = side, schema, keyed, frame_rows
        self.row_bytes, self._by_tuples = RowBytes(schema), by_tuples
        self.weight = self.rows_written = self.rows_read = 0
        self._memory = budget.reserve(f"{side} partitions")
        self._reading = budget.reserve(f"{side} partitions read")

    def _charged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, to be kept in memory for now, without what is not theirs."""
        batch = compact(batch)
        self._memory.grow(held_bytes(batch) + OVERHEAD_BYTES * batch.num_rows)
        self.weight += int(batch.num_rows) if self._by_tuples else self.row_bytes.total(batch)
        return batch

    def _loads(
        self, blocks: Iterable[tuple[int, pa.RecordBatch]], capacity: int
    ) -> Iterator[list[tuple[int, pa.RecordBatch]]]:
        """Numbered blocks of rows, as much at a time as `capacity` allows, charged until the next are asked for."""
        taken: list[tuple[int, pa.RecordBatch]] = []
        room = capacity
        for number, rest in blocks:
            while rest.num_rows:
                fits = self._fitting(rest, room)
                if fits or not taken:  # a single row is taken whatever it weighs
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
        if self._by_tuples:
            return min(int(rows.num_rows), max(0, room - room % self.frame_rows))
        return self.row_bytes.fitting(rows, room)

    def _occupied(self, rows: pa.RecordBatch) -> int:
        frames = -(-rows.num_rows // self.frame_rows)
        return frames * self.frame_rows if self._by_tuples else self.row_bytes.total(rows)


class PartitionedOperator(IntervalOperator):
    """A join that partitions R, then S, and joins pairs of partitions."""

    def __init__(
        self, spec: IntervalSpec, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        r, s = (self.own(Intake(name, schemas[name], self.shares.segment, budget)) for name in self.names)
        self.intakes: tuple[Intake, Intake] = (r, s)
        self.output = self._open_output((nothing_loaded(r.schema), nothing_loaded(s.schema)))

    @property
    def capacity(self) -> int:
        """What rows in memory may weigh: tuples if frames are given, else bytes."""
        frames = self.spec.frames
        return frames.tuples if frames else self.shares.blocking(sum(intake.waiting_bytes for intake in self.intakes))

    def _record(self) -> None:
        super()._record()
        for intake in self.intakes:
            self.metrics.add("rows_in", intake.rows_in, intake.side)
