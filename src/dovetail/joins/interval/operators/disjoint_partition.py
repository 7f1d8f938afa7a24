"""Disjoint interval partitioning join (DIP): partitions without overlap inside, merged pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import compact, empty_batch, take_columns
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.partitions import LIMIT, NEXT, OPEN, assign_disjoint, merge_disjoint
from dovetail.joins.interval.operators.driver import Pull
from dovetail.joins.interval.operators.partitioned import (
    Intake,
    Loaded,
    PartitionedOperator,
    RowQueue,
    RowStore,
    Storage,
    pieces_of,
)
from dovetail.joins.interval.operators.spec import END, KEY, START, IntervalSpec, RowBytes

_FRAMES = 256
_ROWS_PER_FRAME = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition inside one block of the file."""

    part: int
    block: int
    first: int
    rows: int


class DisjointStore(RowStore):
    """Rows with their partition numbers; `flush` moves them to one file with a list of pieces per partition.

    On disk a partition is written in whole frames of `frame_rows`, and what is left of it when it is complete.
    Partitions that are complete and smaller than a frame share blocks.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.frame_rows, self.keyed = storage.frame_rows, storage.keyed
        self.on_disk = False
        self.file = storage.file("partitions")
        self.keys: list[int] = []
        self.frames_written = self.frames_read = 0
        self._pending: list[tuple[pa.RecordBatch, I64]] = []
        self._pieces: list[Piece] = []
        self._block: tuple[int, pa.RecordBatch] = (-1, empty_batch(storage.schema))

    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.keys)

    def moved_bytes(self) -> tuple[int, int]:
        """Bytes written to disk and read again so far."""
        return self.file.bytes_written, self.file.bytes_read

    def moved_frames(self) -> tuple[int, int] | None:
        """Frames written to disk and read again; the last one of a partition may not be full."""
        return self.frames_written, self.frames_read

    def add(self, batch: pa.RecordBatch, parts: I64) -> None:
        """Keep rows of these partitions in memory, for now."""
        if batch.num_rows:
            self._pending.append((self._charged(batch), parts))

    def flush(self, open_parts: I64) -> None:
        """Write complete data: all rows of closed partitions, and whole frames of the open ones.

        If that is little, because open partitions have few but large rows, everything is written. Rows are gathered
        block by block, so that only a few blocks and a copy of the remaining rows need extra memory.
        """
        self.on_disk = True
        if not self._pending:
            return
        parts = np.concatenate([parts for _, parts in self._pending])
        weights = np.concatenate([self.row_bytes.each(batch) for batch, _ in self._pending])
        order = np.argsort(parts, kind="stable")
        counts = np.bincount(parts)
        wanted = np.where(np.isin(np.arange(counts.size), open_parts), counts - counts % self.frame_rows, counts)
        chosen = _first_of_each(counts, wanted)
        if not self.storage.by_tuples and weights[order[chosen]].sum() * 4 < weights.sum():
            wanted, chosen = counts, np.ones(parts.size, np.bool_)
        self._write(order[chosen], wanted, weights)
        self._keep(np.sort(order[~chosen]), parts, weights)

    def _keep(self, numbers: I64, parts: I64, weights: I64) -> None:
        """Keep only these rows in memory."""
        self._reading.grow(int(weights[numbers].sum()))
        rest = self._picked(numbers)
        self._pending = []
        self.weight = 0
        self._memory.close()
        self._reading.close()
        self.add(rest, parts[numbers])

    def _picked(self, numbers: I64) -> pa.RecordBatch:
        """Rows in memory by their numbers among all of them, in this order."""
        starts = np.cumsum([0, *(batch.num_rows for batch, _ in self._pending)])
        at = np.searchsorted(starts, numbers, side="right") - 1
        used = np.unique(at)
        taken = [take_columns(self._pending[i][0], int64s(numbers[at == i] - starts[i])) for i in used]
        if len(taken) < 2:
            return taken[0] if taken else empty_batch(self.schema)
        place = np.empty(numbers.size, np.int64)
        place[np.argsort(at, kind="stable")] = np.arange(numbers.size)
        return take_columns(pa.concat_batches(taken), int64s(place))

    def _gathered(self, rank: I64) -> tuple[pa.RecordBatch, I64]:
        """All rows in memory, ordered by their partition's rank and then by arrival; none are pending afterwards."""
        if not self._pending:
            return empty_batch(self.schema), int64s([])
        parts = np.concatenate([parts for _, parts in self._pending])
        whole = pa.concat_batches([batch for batch, _ in self._pending])
        self._pending = []
        order = np.argsort(rank[parts], kind="stable")
        return take_columns(whole, int64s(order)), parts[order]

    def _write(self, numbers: I64, wanted: I64, weights: I64) -> None:
        """Write rows, `wanted` of each partition in turn, as blocks that a partition shares only if it is small."""
        group: list[tuple[int, int]] = []
        first = grouped = held = begin = 0
        for part in np.flatnonzero(wanted):
            own = weights[numbers[begin : begin + wanted[part]]]
            begin += int(wanted[part])
            for start, stop in self.storage.stretches(own):
                rows, size = stop - start, int(own[start:stop].sum())
                full = rows >= self.frame_rows or grouped >= self.frame_rows or held + size > self.storage.block_bytes
                if group and full:
                    first, group, grouped, held = self._write_block(numbers, first, group, held), [], 0, 0
                group.append((int(part), rows))
                grouped, held = grouped + rows, held + size
        if group:
            self._write_block(numbers, first, group, held)

    def _write_block(self, numbers: I64, first: int, group: list[tuple[int, int]], size: int) -> int:
        last = first + sum(rows for _, rows in group)
        self._reading.grow(3 * size)  # the rows of each batch, all of them in order, and serialised
        block = self.file.append(self._picked(numbers[first:last]))
        self._reading.close()
        offset = 0
        for part, rows in group:
            self._pieces.append(Piece(part, block, offset, rows))
            self.frames_written += -(-rows // self.frame_rows)
            offset += rows
        self.rows_written += last - first
        return last

    def finish(self) -> None:
        """End the input: order the pieces by key and partition, and free the memory if rows are on disk."""
        if self.on_disk:
            self.flush(int64s([]))
            self._pieces.sort(key=lambda piece: (self.keys[piece.part], piece.part, piece.block))

    def loads(self, capacity: int) -> Iterator[Loaded]:
        """All rows by key and partition, as much at a time as `capacity` allows; from memory everything at once."""
        if not self.on_disk:
            yield self._from_memory()
            return
        for taken in self._loads(((piece.part, self._read(piece)) for piece in self._pieces), capacity):
            batch = pa.concat_batches([rows for _, rows in taken]) if len(taken) > 1 else taken[0][1]
            parts = np.repeat([part for part, _ in taken], [rows.num_rows for _, rows in taken])
            yield self._with_pieces(batch, parts)

    def _from_memory(self) -> Loaded:
        self._reading.grow(2 * self._memory.used)
        rank = np.empty(self.partitions(), np.int64)
        rank[np.argsort(self.keys, kind="stable")] = np.arange(self.partitions())
        batch, parts = self._gathered(rank)
        self._reading.close()
        self._pending = [(batch, parts)] if parts.size else []
        return self._with_pieces(batch, parts)

    def _with_pieces(self, batch: pa.RecordBatch, parts: I64) -> Loaded:
        part, first, _ = pieces_of(parts, int64s([]))
        keys = np.array(self.keys, np.int64)[part] if self.keyed else np.empty(0, np.int64)
        return Loaded(batch, part, first, int64s(keys), self.row_bytes)

    def _read(self, piece: Piece) -> pa.RecordBatch:
        if self._block[0] != piece.block:
            self._block = piece.block, self.file.read(piece.block)
        self.rows_read += piece.rows
        self.frames_read += -(-piece.rows // self.frame_rows)
        block = self._block[1]
        return block if piece.rows == block.num_rows else compact(block.slice(piece.first, piece.rows))

    def close(self) -> None:
        """Free the memory and remove the file."""
        self._pending = []
        self._memory.close()
        self._reading.close()
        self.file.close()


def _first_of_each(counts: I64, wanted: I64) -> Bool:
    """Of rows in the order of their partitions, `counts` of each, the first `wanted` ones of each."""
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(place < np.repeat(wanted, counts), np.bool_)


class DisjointPartitionOperator(PartitionedOperator):
    """A disjoint-partition interval join in progress."""

    outer_frames = 1

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
        self.overflow_passes, self.overflow_rows = [0, 0], [0, 0]

    def _store(self, intake: Intake) -> DisjointStore:
        frames, row = self.spec.frames, RowBytes(intake.schema).fixed
        frame_rows = frames.tuples_per_frame if frames else max(_ROWS_PER_FRAME, self.capacity // _FRAMES // row)
        return DisjointStore(self._storage(intake, frame_rows, self.shares.segment))

    def _open_limit(self, store: DisjointStore) -> int:
        """How many partitions may be open at a time: one frame each, and one frame for the input."""
        if self.spec.frames:
            return max(1, self.spec.frames.count - self.spec.frames.reserved - 1)
        return max(1, self.capacity // (store.frame_rows * store.row_bytes.fixed) - 1)

    def _partition(self) -> Pull:
        for side in (0, 1):
            yield from self._fill(side)
            self.intakes[side].close()

    def _fill(self, side: int) -> Pull:
        """Passes over the input, then over the overflow, until every row has a partition."""
        store, intake = self.stores[side], self.intakes[side]
        source: Intake | RowQueue = intake
        state = np.zeros(4, np.int64)
        while True:
            overflow = self.own(RowQueue("overflow", store.storage))
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
        """Free memory: spill the outer input's partitions first, then this one's, then its overflow."""
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
        frames = self.spec.frames
        for outer in self.stores[0].loads(frames.tuples if frames else self.shares.segment):
            yield from self._meet(outer, inner, partial(self._merge, outer, inner, cursor))

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
        for side, store in enumerate(self.stores):
            self.metrics.add("overflow_passes", self.overflow_passes[side], store.side, unit="passes")
            self.metrics.add("overflow_rows", self.overflow_rows[side], store.side)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisjointPartitionJoin(IntervalSpec):
    """Each input becomes partitions in which no two rows overlap; pairs of partitions are merged without backtracking.

    Blocking: both inputs are read to the end before the first answer. The relation affects only the test of a pair.
    When memory is short the outer input goes to disk first, then the inner one, which is then joined in batches that
    fill memory, the outer input read once per batch.
    Reference: Carman 2020, 3.3.5, 4.4.5 and equations 4.63 and 4.64; docs/algorithms/interval.md, 2.5.
    """

    operator: ClassVar[type[Any]] = DisjointPartitionOperator


def _picked(batch: pa.RecordBatch, rows: I64) -> pa.RecordBatch:
    return batch if rows.size == batch.num_rows else take_columns(batch, int64s(rows))


def _codes(batch: pa.RecordBatch, name: str) -> I64:
    return int64s(batch.column(name).to_numpy())
