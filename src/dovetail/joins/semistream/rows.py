"""Rows kept in chunks and named by one number each, gathered once for many answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import held_bytes, nbytes, take_columns
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import Reservation

SHIFT = 32
ROW = (1 << SHIFT) - 1
MISSING = -1
COPIED_WHOLE = 128 << 10  # chunks of fewer bytes are copied whole, which is faster than picking rows from each


def refs_of(chunk: int, rows: I64) -> I64:
    """The names of rows of one chunk."""
    return rows + (chunk << SHIFT)


class RowStore:
    """Chunks of rows; a row's name is its chunk and its place in it. Our own chunks are charged, borrowed ones not."""

    def __init__(self, schema: pa.Schema, reservation: Reservation, floor: int = 0) -> None:
        self.schema, self.reservation, self.floor = schema, reservation, floor
        self._chunks: dict[int, pa.RecordBatch] = {}
        self._bytes: dict[int, int] = {}
        self._payers: dict[int, Reservation] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, chunk: object) -> bool:
        return chunk in self._chunks

    @property
    def rows(self) -> int:
        """Rows in all chunks, wanted or not."""
        return sum(batch.num_rows for batch in self._chunks.values())

    @property
    def charged(self) -> int:
        """Bytes of the chunks that are our own and that nobody else pays for."""
        return self.reservation.used

    def chunk(self, chunk: int) -> pa.RecordBatch:
        """The rows of one chunk."""
        return self._chunks[chunk]

    def chunk_rows(self, chunk: int) -> int:
        """Rows of one chunk, wanted or not."""
        return int(self._chunks[chunk].num_rows)

    def chunks(self) -> list[int]:
        """The numbers of all chunks, oldest first."""
        return list(self._chunks)

    def lend(self, batch: pa.RecordBatch) -> int:
        """The number of a chunk that somebody else holds and pays for, until it is dropped here."""
        return self._keep(batch, 0)

    def try_reserve(self, n: int) -> bool:
        """Whether `n` more bytes are ours, with `floor` bytes of the budget still left for others."""
        return self.reservation.budget.available >= n + self.floor and self.reservation.try_grow(n)

    def add(self, batch: pa.RecordBatch) -> int | None:
        """The number of a chunk of our own; None if there is no room."""
        size = held_bytes(batch)
        return self._keep(batch, size) if self.try_reserve(size) else None

    def add_charged(self, batch: pa.RecordBatch, size: int, reservation: Reservation | None = None) -> int:
        """The number of a chunk of our own that holds `size` bytes; `BudgetExceeded` if there is no room."""
        (reservation or self.reservation).grow(size)
        number = self._keep(batch, size)
        if reservation is not None:
            self._payers[number] = reservation
        return number

    def _keep(self, batch: pa.RecordBatch, size: int) -> int:
        number = self._next
        self._next += 1
        self._chunks[number] = batch
        self._bytes[number] = size
        return number

    def charge_to(self, chunk: int, reservation: Reservation) -> None:
        """Somebody else pays for this chunk from now on; `BudgetExceeded` leaves it as it was."""
        size = self._bytes[chunk]
        self._payers.get(chunk, self.reservation).shrink(size)
        reservation.grow(size)
        self._payers[chunk] = reservation

    def drop(self, chunks: Iterable[int]) -> None:
        """Forget these chunks."""
        for chunk in chunks:
            del self._chunks[chunk]
            self._payers.pop(chunk, self.reservation).shrink(self._bytes.pop(chunk))

    def row_bytes(self) -> float:
        """Bytes of an average row in here."""
        rows = self.rows
        borrowed = sum(nbytes(self._chunks[number]) for number, size in self._bytes.items() if not size)
        return (sum(self._bytes.values()) + borrowed) / rows if rows else 0.0

    def gather(self, refs: I64, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of these names, in this order; a row of nulls for each -1."""
        chunks = refs >> SHIFT
        used = np.unique(chunks)
        if len(used) == 1 and used[0] >= 0:
            return take_columns(self._chunk(int(used[0]), columns), refs & ROW)
        return self._gather_many(refs, chunks, used[used >= 0], columns)

    def _chunk(self, number: int, columns: Sequence[str] | None) -> pa.RecordBatch:
        batch = self._chunks[number]
        return batch if columns is None else batch.select(list(columns))

    def _gather_many(self, refs: I64, chunks: I64, used: I64, columns: Sequence[str] | None) -> pa.RecordBatch:
        order = np.argsort(chunks, kind="stable")
        starts = np.searchsorted(chunks[order], used)
        stops = np.append(starts, len(refs))[1:]
        parts, places, before = [], np.full(len(refs), MISSING, np.int64), 0
        for number, start, stop in zip(used.tolist(), starts.tolist(), stops.tolist(), strict=True):
            batch, at = self._chunk(number, columns), order[start:stop]
            rows = refs[at] & ROW
            if 2 * (stop - start) < batch.num_rows and not 0 < self._bytes[number] < COPIED_WHOLE:
                batch, rows = take_columns(batch, rows), np.arange(stop - start)
            parts.append(batch)
            places[at] = rows + before
            before += batch.num_rows
        if not parts:
            parts = [pa.RecordBatch.from_pylist([], self.schema if columns is None else _only(self.schema, columns))]
        return take_columns(pa.concat_batches(parts) if len(parts) > 1 else parts[0], places)

    def close(self) -> None:
        """Forget every chunk."""
        self.drop(list(self._chunks))
        self.reservation.close()


def _only(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])
