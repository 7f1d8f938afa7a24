"""The partitions of one input of DIP: rows in memory as long as they may stay there, then frames in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import compact, held_bytes, nbytes, take_columns
from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile
from dovetail.joins.interval.operators.memory import OVERHEAD_BYTES, RowBytes, stretches
from dovetail.joins.interval.operators.partitioned import Loaded, empty_batch, pieces_of

_LARGEST = 2**62  # bytes of a block that is cut by its rows alone


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition inside one block of the file."""

    part: int
    block: int
    first: int
    rows: int


class DisjointStore:
    """Rows with their partition numbers; `flush` moves them to one file with a list of pieces per partition.

    On disk a partition is written in whole frames of `frame_rows`, and what is left of it when it is complete.
    Partitions that are complete and smaller than a frame share blocks.
    """

    def __init__(
        self,
        side: str,
        schema: pa.Schema,
        keyed: bool,
        frame_rows: int,
        block_rows: int,
        block_bytes: int,
        by_tuples: bool,
        budget: MemoryBudget,
        spill_dir: Path | None,
    ) -> None:
        self.side, self.schema, self.keyed, self.row_bytes = side, schema, keyed, RowBytes(schema)
        self.frame_rows, self.block_rows, self._by_tuples = frame_rows, max(frame_rows, block_rows), by_tuples
        self._block_bytes = _LARGEST if by_tuples else block_bytes
        self.on_disk = False
        self.file = SpillFile(schema, spill_dir, f"{side}-partitions")
        self.keys: list[int] = []
        self.weight = self.rows_written = self.rows_read = self.frames_written = self.frames_read = 0
        self._pending: list[tuple[pa.RecordBatch, I64]] = []
        self._pieces: list[Piece] = []
        self._memory = budget.reserve(f"{side} partitions")
        self._reading = budget.reserve(f"{side} partitions read")
        self._block: tuple[int, pa.RecordBatch] = (-1, empty_batch(schema))

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.keys)

    def weigh(self, batch: pa.RecordBatch) -> int:
        """What these rows count against the memory of the join."""
        return int(batch.num_rows) if self._by_tuples else self.row_bytes.total(batch)

    def add(self, batch: pa.RecordBatch, parts: I64) -> None:
        """Keep rows of these partitions in memory, for now."""
        if batch.num_rows:
            batch = compact(batch)
            self._memory.grow(held_bytes(batch) + OVERHEAD_BYTES * batch.num_rows)
            self._pending.append((batch, parts))
            self.weight += self.weigh(batch)

    def flush(self, open_parts: I64) -> None:
        """Write what is complete: all rows of partitions that are closed, and whole frames of the open ones.

        If that is little, because open partitions have few but large rows, everything is written. Rows are gathered
        block by block, so that beside those in memory there are a few blocks, and a copy of the rows that stay.
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
        if not self._by_tuples and weights[order[chosen]].sum() * 4 < weights.sum():
            wanted, chosen = counts, np.ones(parts.size, np.bool_)
        self._write(order[chosen], wanted, weights)
        self._keep(np.sort(order[~chosen]), parts, weights)

    def _keep(self, numbers: I64, parts: I64, weights: I64) -> None:
        """Of the rows in memory keep these."""
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
        """All rows in memory, ordered by their partition's rank and then as they came; none are pending then."""
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
            for start, stop in stretches(own, self.block_rows, self._block_bytes):
                rows, size = stop - start, int(own[start:stop].sum())
                full = rows >= self.frame_rows or grouped >= self.frame_rows or held + size > self._block_bytes
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
        """No row follows: order the pieces by key and partition, and free the memory if rows are on disk."""
        if self.on_disk:
            self.flush(int64s([]))
            self._pieces.sort(key=lambda piece: (self.keys[piece.part], piece.part, piece.block))

    def loads(self, capacity: int) -> Iterator[Loaded]:
        """All rows by key and partition, as much at a time as `capacity` allows; from memory everything at once."""
        if not self.on_disk:
            yield self._from_memory()
            return
        pieces: list[pa.RecordBatch] = []
        parts: list[int] = []
        room = capacity
        for piece in self._pieces:
            rest = self._read(piece)
            while rest.num_rows:
                fits = self._fitting(rest, room)
                if fits or not pieces:  # a single row is taken whatever it weighs
                    rows, rest = rest.slice(0, max(1, fits)), rest.slice(max(1, fits))
                    self._reading.grow(2 * nbytes(rows) + OVERHEAD_BYTES * rows.num_rows)
                    pieces.append(rows)
                    parts.append(piece.part)
                    room -= self._occupied(rows)
                if rest.num_rows:
                    yield self._loaded(pieces, parts)
                    pieces, parts, room = [], [], capacity
                    self._reading.close()
        if pieces:
            yield self._loaded(pieces, parts)
        self._reading.close()

    def _fitting(self, rows: pa.RecordBatch, room: int) -> int:
        """How many of these rows fit, in whole frames if memory is counted in tuples."""
        if self._by_tuples:
            return min(int(rows.num_rows), max(0, room - room % self.frame_rows))
        return self.row_bytes.fitting(rows, room)

    def _occupied(self, rows: pa.RecordBatch) -> int:
        frames = -(-rows.num_rows // self.frame_rows)
        return frames * self.frame_rows if self._by_tuples else self.weigh(rows)

    def _from_memory(self) -> Loaded:
        self._reading.grow(2 * self._memory.used)
        rank = np.empty(self.partitions, np.int64)
        rank[np.argsort(self.keys, kind="stable")] = np.arange(self.partitions)
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

    def _loaded(self, pieces: list[pa.RecordBatch], parts: list[int]) -> Loaded:
        batch = pa.concat_batches(pieces) if len(pieces) > 1 else pieces[0]
        numbers = np.repeat(np.array(parts, np.int64), [piece.num_rows for piece in pieces])
        return self._with_pieces(batch, numbers)

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
