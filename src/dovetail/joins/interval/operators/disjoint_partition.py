"""Disjoint interval partitioning join (DIP): partitions without overlap inside, merged pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import take_columns
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.disjoint import LIMIT, NEXT, OPEN, assign_disjoint, merge_disjoint
from dovetail.joins.interval.operators.disjoint_store import DisjointStore
from dovetail.joins.interval.operators.driver import Pull
from dovetail.joins.interval.operators.memory import RowBytes
from dovetail.joins.interval.operators.partitioned import Intake, Loaded, PartitionedOperator, RowQueue
from dovetail.joins.interval.operators.spec import END, KEY, START, IntervalSpec

_FRAMES = 256
_ROWS_PER_FRAME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DisjointPartitionJoin(IntervalSpec):
    """Each input becomes partitions in which no two rows overlap; pairs of partitions are merged without backtracking.

    Blocking: both inputs are read to the end before the first answer. The relation changes nothing but the test of a
    pair. When memory is short the outer input goes to disk first, then the inner one, which is then joined in batches
    that fill memory, the outer input read once per batch.
    Reference: Carman 2020, 3.3.5, 4.4.5 and equations 4.63 and 4.64; docs/algorithms/interval.md, 2.5.
    """

    def open(
        self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None
    ) -> DisjointPartitionOperator:
        """The running join."""
        return DisjointPartitionOperator(self, budget, schemas, spill_dir)


class DisjointPartitionOperator(PartitionedOperator):
    """A disjoint-partition interval join in progress."""

    def __init__(
        self,
        spec: DisjointPartitionJoin,
        budget: MemoryBudget,
        schemas: Mapping[str, pa.Schema],
        spill_dir: Path | None,
    ) -> None:
        super().__init__(spec, budget, schemas, spill_dir)
        r, s = (self.own(self._store(intake)) for intake in self.intakes)
        self.stores: tuple[DisjointStore, DisjointStore] = (r, s)
        self.overflow_passes, self.overflow_rows, self.batches = [0, 0], [0, 0], 0

    def _store(self, intake: Intake) -> DisjointStore:
        frames, row = self.spec.frames, RowBytes(intake.schema).fixed
        frame_rows = frames.tuples_per_frame if frames else max(_ROWS_PER_FRAME, self.capacity // _FRAMES // row)
        block_rows = self.shares.segment // row
        by_tuples = frames is not None
        return DisjointStore(
            intake.side,
            intake.schema,
            self.spec.keyed,
            frame_rows,
            block_rows,
            self.shares.segment,
            by_tuples,
            self.budget,
            self.spill_dir,
        )

    def _queue(self, store: DisjointStore) -> RowQueue:
        by_tuples = self.spec.frames is not None
        return RowQueue(f"{store.side}-overflow", store.schema, by_tuples, self.budget, self.spill_dir)

    def _open_limit(self, store: DisjointStore) -> int:
        """How many partitions may be open at a time: one frame each, and one frame for the input."""
        if self.spec.frames:
            return max(1, self.spec.frames.count - self.spec.frames.reserved - 1)
        return max(1, self.capacity // (store.frame_rows * store.row_bytes.fixed) - 1)

    def _run(self) -> Pull:
        for side in (0, 1):
            yield from self._partition(side)
            self.intakes[side].close()
        for inner in self.stores[1].loads(self._inner_capacity()):
            self.batches += 1
            yield from self._join(inner)

    def _inner_capacity(self) -> int:
        """What a batch of the inner input may weigh: all of memory but one frame for the outer input."""
        frames = self.spec.frames
        if frames is None:
            return self.capacity
        return max(1, frames.tuples - frames.tuples_per_frame)

    def _partition(self, side: int) -> Pull:
        """Passes over the input, then over what overflowed, until every row has a partition."""
        store, intake = self.stores[side], self.intakes[side]
        source: Intake | RowQueue = intake
        state = np.zeros(4, np.int64)
        while True:
            overflow = self.own(self._queue(store))
            yield from self._pass(side, source, overflow, state)
            if isinstance(source, RowQueue):
                source.close()
            if not overflow.rows:
                break
            self.overflow_passes[side] += 1
            self.overflow_rows[side] += overflow.rows
            source = overflow
        store.finish()

    def _pass(self, side: int, source: Intake | RowQueue, overflow: RowQueue, state: I64) -> Pull:
        store = self.stores[side]
        state[OPEN], state[LIMIT] = 0, self._open_limit(store)
        ends, refs = np.empty(state[LIMIT], np.int64), np.empty(state[LIMIT], np.int64)
        while (piece := (yield from source.next())) is not None:
            parts = self._assign(piece, store, state, ends, refs)
            kept, lost = np.flatnonzero(parts >= 0), np.flatnonzero(parts < 0)
            store.add(_picked(piece, kept), parts[kept])
            overflow.add(_picked(piece, lost))
            self._relieve(side, overflow, refs[: state[OPEN]])
        if store.on_disk:
            store.flush(int64s([]))

    def _assign(self, piece: pa.RecordBatch, store: DisjointStore, state: I64, ends: I64, refs: I64) -> I64:
        start, end = _codes(piece, START), _codes(piece, END)
        key = _codes(piece, KEY) if self.spec.keyed else int64s([])
        parts, known = np.empty(piece.num_rows, np.int64), int(state[NEXT])
        assign_disjoint(state, start, end, key, ends, refs, parts)
        new, where = np.unique(parts, return_index=True)
        where = where[new >= known]
        store.keys += key[where].tolist() if self.spec.keyed else [0] * where.size
        return parts

    def _relieve(self, side: int, overflow: RowQueue, open_parts: I64) -> None:
        """Make room: the outer input's partitions go to disk first, then this one's, then its overflow."""
        store, outer = self.stores[side], self.stores[0]
        if side == 1 and store.weight + outer.weight + overflow.weight > self.capacity and not outer.on_disk:
            outer.flush(int64s([]))
            outer.finish()
        if store.weight + overflow.weight + (outer.weight if side else 0) > self.capacity:
            overflow.spill()
        if store.weight + (outer.weight if side else 0) > self.capacity:
            store.flush(open_parts)

    def _join(self, inner: Loaded) -> Pull:
        """One batch of the inner input with all of the outer one."""
        cursor = np.zeros(inner.part.size, np.int64)
        self.state[sw.KEEP] = -1
        for outer in self._outer():
            self.output.show((outer, inner))
            self.state[sw.R_POS] = self.state[sw.PHASE] = 0
            while self._merge(outer, inner, cursor) != sw.DONE:
                yield from self._flush()
            yield from self._flush()

    def _outer(self) -> Iterator[Loaded]:
        frames = self.spec.frames
        return self.stores[0].loads(frames.tuples if frames else self.shares.segment)

    def _merge(self, outer: Loaded, inner: Loaded, cursor: I64) -> int:
        return merge_disjoint(
            self.state,
            outer.rows(),
            inner.rows(),
            self.rule,
            outer.part,
            outer.first,
            outer.key,
            inner.first,
            inner.key,
            cursor,
            self.output.out_r,
            self.output.out_s,
        )

    def _record(self) -> None:
        super()._record()
        self.metrics.add("inner_batches", self.batches, unit="batches")
        for side, store in enumerate(self.stores):
            name, add = store.side, self.metrics.add
            add("partitions", store.partitions, name, unit="partitions")
            add("overflow_passes", self.overflow_passes[side], name, unit="passes")
            add("overflow_rows", self.overflow_rows[side], name)
            add("rows_written", store.rows_written, name)
            add("rows_read", store.rows_read, name)
            add("bytes_written", store.file.bytes_written, name, unit="bytes")
            add("bytes_read", store.file.bytes_read, name, unit="bytes")
            if self.spec.frames:
                add("frames_written", store.frames_written, name, unit="frames")
                add("frames_read", store.frames_read, name, unit="frames")


def _picked(batch: pa.RecordBatch, rows: I64) -> pa.RecordBatch:
    return batch if rows.size == batch.num_rows else take_columns(batch, int64s(rows))


def _codes(batch: pa.RecordBatch, name: str) -> I64:
    return int64s(batch.column(name).to_numpy())
