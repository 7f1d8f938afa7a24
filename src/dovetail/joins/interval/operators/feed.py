"""One sorted input of a sweep: a window over its rows, which can be read again from a mark.

Rows that pass by while memory is full are written to a file, once, and read from there after a rewind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import compact, compact_bytes, empty_batch, held_bytes, nbytes, take_columns
from dovetail.engine.storage.spill import SpillFile
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.sweep import Rows
from dovetail.joins.interval.operators.driver import Need, Pull
from dovetail.joins.interval.operators.spec import END, KEY, OVERHEAD_BYTES, START, RowBytes, rows_within

NO_ROWS: I64 = int64s([])


Position = tuple[int, int]
"""A row of the replay file: block, row in the block."""


class Feed:
    """Rows of one side in their order, which can be read again from a mark.

    The window is the rows that stay active, then one segment that came whole from the stream or whole from one block of
    the replay file. Rows of the stream consumed while spilling are appended to the file, once; `rewind` makes the file
    the source again, and stream rows left in the window wait in memory until the file is read.
    """

    def __init__(
        self,
        side: str,
        schema: pa.Schema,
        keyed: bool,
        segment_bytes: int,
        by_tuples: bool,
        budget: MemoryBudget,
        spill_dir: Path | None,
    ) -> None:
        self.side, self.schema, self.keyed = side, schema, keyed
        self.segment_bytes, self._by_tuples = segment_bytes, by_tuples
        self.row_bytes = RowBytes(schema)
        self.file = SpillFile(schema, spill_dir, f"{side}-replay")
        self.ended = False
        self.rows_in = self.rows_written = self.rows_read = 0
        self._window = budget.reserve(f"{side} window")
        self._input = budget.reserve(f"{side} input")
        self._waiting: deque[tuple[pa.RecordBatch, int]] = deque()
        self._blocks: list[tuple[int, int]] = []  # of the file: first ordinal, rows
        self._cursor: Position = (0, 0)
        self._origin: Position | None = None
        self._segment_start = self._saved_to = 0
        self._empty = empty_batch(schema)
        self.batch: pa.RecordBatch = self._empty
        self.ordinals: I64 = NO_ROWS
        self.rows = self._no_rows = Rows(NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS, 1)
        self._bytes: I64 = NO_ROWS

    @property
    def waiting_bytes(self) -> int:
        """Bytes of stream batches that are not in the window yet."""
        return self._input.used

    @property
    def exhausted(self) -> bool:
        """Whether the window is the last one."""
        return self.ended and not self._waiting and not self._in_file()

    def refill(self, live: I64, position: int) -> Pull:
        """Replace the window by its rows `live` and the next segment; the old one was consumed to `position`."""
        self._count_read(position)
        wanted = int(self.bytes_of(live).sum())
        pieces, ordinals = yield from self._next_segment(max(1, min(self.segment_bytes, wanted)))
        kept, kept_ordinals = self._kept(live, wanted), self.ordinals[live]
        self.batch, self.rows = self._empty, self._no_rows  # frees the old window
        self._window.resize(nbytes(kept) + OVERHEAD_BYTES * kept.num_rows)
        parts = [part for part in (kept, *pieces) if part.num_rows]
        self._window.grow(sum(nbytes(piece) + OVERHEAD_BYTES * piece.num_rows for piece in pieces))
        whole = pa.concat_batches(parts) if len(parts) > 1 else compact(parts[0]) if parts else kept
        self._release_input()
        self._segment_start = self._saved_to = kept.num_rows
        self._show(whole, np.concatenate([kept_ordinals, ordinals]))
        self._window.resize(held_bytes(whole) + OVERHEAD_BYTES * whole.num_rows)

    def _kept(self, live: I64, wanted: int) -> pa.RecordBatch:
        if live.size == 0:
            return self._empty
        self._window.grow(wanted)
        return take_columns(self.batch, live)

    def start_spill(self, row: int) -> Position:
        """Mark the window's row `row`, from which on consumed stream rows go to the file."""
        self._saved_to = row
        if self._origin is None:
            return len(self._blocks), 0
        block, first = self._origin
        return block, first + row - self._segment_start

    def save(self, row: int) -> None:
        """Write the stream rows before `row` that were consumed since the spill started."""
        if self._origin is None and row > self._saved_to:
            self.file.append(self.batch.slice(self._saved_to, row - self._saved_to))
            self._blocks.append((int(self.ordinals[self._saved_to]), row - self._saved_to))
            self.rows_written += row - self._saved_to
            self._saved_to = row
            self._cursor = len(self._blocks), 0  # written rows are read again only after a rewind

    def rewind(self, to: Position, row: int, end: int) -> None:
        """Continue from `to` after the window's row `end`; stream rows from `row` on wait behind the file."""
        self._count_read(row)
        if self._origin is None and row < self.batch.num_rows:
            rest = compact(self.batch.slice(row))
            self._input.grow(held_bytes(rest))
            self._waiting.appendleft((rest, int(self.ordinals[row])))
        self._origin = self._cursor = to
        self._segment_start = end

    def close(self) -> None:
        """Free the memory and remove the file."""
        self._waiting.clear()
        self._window.close()
        self._input.close()
        self.file.close()

    def _count_read(self, row: int) -> None:
        if self._origin is not None:
            self.rows_read += max(0, row - self._segment_start)

    def _in_file(self) -> bool:
        block, row = self._cursor
        while block < len(self._blocks) and row >= self._blocks[block][1]:
            block, row = block + 1, 0
        self._cursor = block, row
        return block < len(self._blocks)

    def _next_segment(self, wanted: int) -> Generator[Need, pa.RecordBatch | None, tuple[list[pa.RecordBatch], I64]]:
        if self._in_file():
            block, row = self._cursor
            self._origin, self._cursor = (block, row), (block + 1, 0)
            first, count = self._blocks[block]
            return [self.file.read(block).slice(row)], np.arange(first + row, first + count)
        self._origin = None
        pieces: list[pa.RecordBatch] = []
        ordinals: list[I64] = [NO_ROWS]
        while wanted > 0 and (yield from self._has_input()):
            piece, first = self._cut_piece()
            pieces.append(piece)
            ordinals.append(np.arange(first, first + piece.num_rows))
            wanted -= nbytes(piece) + OVERHEAD_BYTES * piece.num_rows
        return pieces, np.concatenate(ordinals)

    def _has_input(self) -> Generator[Need, pa.RecordBatch | None, bool]:
        while not self._waiting and not self.ended:
            batch = yield Need(self.side)
            if batch is None:
                self.ended = True
            elif batch.num_rows:
                self._check(batch)
                self._input.grow(compact_bytes(batch))
                self._waiting.append((compact(batch), self.rows_in))
                self.rows_in += batch.num_rows
        return bool(self._waiting)

    def _check(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(self.schema):
            raise PlanError(f"a batch of the {self.side} input has schema {batch.schema}; announced was {self.schema}.")

    def _cut_piece(self) -> tuple[pa.RecordBatch, int]:
        batch, first = self._waiting.popleft()
        rows = rows_within(batch, self.segment_bytes)
        if rows == batch.num_rows:
            return batch, first
        self._waiting.appendleft((batch.slice(rows), first + rows))
        return batch.slice(0, rows), first

    def _release_input(self) -> None:
        # A slice keeps all of its batch alive, so a batch that was cut stays charged until its last piece is taken.
        self._input.resize(sum(held_bytes(batch) for batch, _ in self._waiting))

    def _show(self, batch: pa.RecordBatch, ordinals: I64) -> None:
        self.batch, self.ordinals = batch, ordinals
        self._bytes = self.row_bytes.of(batch)
        key = _codes(batch, KEY) if self.keyed else NO_ROWS
        weight, each = (NO_ROWS, 1) if self._by_tuples else (_summed(self._bytes), self.row_bytes.fixed)
        self.rows = Rows(_codes(batch, START), _codes(batch, END), key, weight, each)

    def bytes_of(self, rows: I64) -> I64:
        """The weight of each of these rows of the window, in bytes."""
        return self._bytes[rows] if self._bytes.size else np.full(rows.size, self.row_bytes.fixed)


def _summed(weights: I64) -> I64:
    return int64s(np.concatenate([[0], np.cumsum(weights)])) if weights.size else NO_ROWS


def _codes(batch: pa.RecordBatch, name: str) -> I64:
    return int64s(batch.column(name).to_numpy(zero_copy_only=True))
