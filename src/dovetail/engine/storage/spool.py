"""Keeps batches and byte strings in memory up to a limit, and spills the rest."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import compact, compact_bytes, held_bytes, nbytes
from dovetail.engine.storage.spill import SpillFile

_ROWS_AT_ONCE = 65_536
_BYTES = pa.schema([("bytes", pa.large_binary())])


class Spool:
    """The rows of one side as blocks of about `block_bytes` (or of one row), which can be read any number of times.

    Small batches are put together until they make a block. Rows stay in memory until `memory` is exhausted; then all
    of them, and all later ones, go to a spill file. The block being made, and a block from disk while it is in use, are
    charged to `reading`; a row that it cannot hold is a `BudgetExceeded`.
    """

    def __init__(
        self,
        schema: pa.Schema,
        memory: MemoryBudget,
        reading: MemoryBudget,
        block_bytes: int,
        name: str = "spool",
        directory: Path | None = None,
    ) -> None:
        self.schema, self.name, self.block_bytes = schema, name, max(1, block_bytes)
        self.spill = SpillFile(schema, directory, name)
        self.rows = 0
        self._kept: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []
        self._memory = memory.reserve(name)
        self._block = reading.reserve(f"{name} block")

    @property
    def spilled(self) -> bool:
        """Whether rows are on disk."""
        return self.spill.blocks > 0

    def append(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of one batch."""
        for part in _cut(batch, self.block_bytes):
            self.rows += part.num_rows
            if nbytes(part) * 2 > self.block_bytes:
                self._store_small()
                self._store(part)
            else:
                self._add_small(part)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Every block in order; a block from disk may be used until the next one is asked for."""
        self._store_small()
        if not self.spilled:
            yield from self._kept
            return
        for number in range(self.spill.blocks):
            with self._block as charged:
                charged.grow(self.spill.size_of(number))
                yield self.spill.read(number)

    def close(self) -> None:
        """Free the memory and remove the file."""
        self._kept.clear()
        self._small.clear()
        self._memory.close()
        self._block.close()
        self.spill.close()

    def _add_small(self, part: pa.RecordBatch) -> None:
        self._block.grow(compact_bytes(part))
        self._small.append(compact(part))
        if self._block.used >= self.block_bytes:
            self._store_small()

    def _store_small(self) -> None:
        if self._small:
            self._block.grow(sum(compact_bytes(part) for part in self._small))  # both copies exist for a moment
            self._store(pa.concat_batches(self._small))
            self._small.clear()
            self._block.close()

    def _store(self, block: pa.RecordBatch) -> None:
        before = self._memory.used
        if not self.spilled and self._memory.try_grow(compact_bytes(block)):
            self._kept.append(compact(block))
            self._memory.resize(before + held_bytes(self._kept[-1]))
            return
        for earlier in self._kept:
            self.spill.append(earlier)
        self._kept.clear()
        self._memory.close()
        self.spill.append(block)


class HeldBytes:
    """Byte strings; at most `limit` bytes stay in memory (all if None), later ones go to a spill file."""

    def __init__(self, limit: int | None, directory: Path | None = None, name: str = "bytes") -> None:
        self._limit, self.held = limit, 0
        self._file = SpillFile(_BYTES, directory, name)

    @property
    def spilled(self) -> int:
        """Bytes on disk."""
        return self._file.bytes_written

    def keep(self, data: bytes | pa.Buffer) -> pa.Buffer | int:
        """A ticket for the value: itself, or the number of its block."""
        buffer = pa.py_buffer(data)
        if self._limit is None or self.held + buffer.size <= self._limit:
            self.held += buffer.size
            return buffer
        ends = pa.py_buffer(struct.pack("<qq", 0, buffer.size))
        block = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, buffer])
        return self._file.append(pa.RecordBatch.from_arrays([block], schema=_BYTES))

    def read(self, ticket: pa.Buffer | int) -> pa.Buffer:
        """The value of a ticket."""
        return self._file.read(ticket).column(0)[0].as_buffer() if isinstance(ticket, int) else ticket

    def let_go(self, ticket: pa.Buffer | int) -> None:
        """Release the value of a ticket."""
        self.held -= 0 if isinstance(ticket, int) else ticket.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


def _cut(batch: pa.RecordBatch, block_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `block_bytes`, halved until they fit; a single row is never cut."""
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        waiting = [batch.slice(start, _ROWS_AT_ONCE)]
        while waiting:
            block = waiting.pop()
            if block.num_rows <= 1 or block.nbytes <= block_bytes:
                yield block
            else:
                half = block.num_rows // 2
                waiting += [block.slice(half), block.slice(0, half)]
