"""Batches that were pushed before the join asked for them: first in, first out, in memory and then on disk."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pyarrow as pa

from dovetail.engine.columns import compact, compact_bytes
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile


class Inbox:
    """A queue of one side's batches. Once a batch went to disk, later ones follow it until the disk part is read."""

    def __init__(self, side: str, schema: pa.Schema, memory_bytes: int, budget: MemoryBudget, directory: Path | None):
        self.closed = False  # no batch will follow
        self._limit = memory_bytes
        self._memory = budget.reserve(f"{side} inbox")
        self._ready: deque[tuple[pa.RecordBatch, int]] = deque()
        self._file = SpillFile(schema, directory, f"{side}-inbox")
        self._read = 0

    @property
    def spooled_bytes(self) -> int:
        """Bytes that were written to disk."""
        return self._file.bytes_written

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
