"""Rows that wait, in their order, for another pass: in memory, or on disk once told so."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pyarrow as pa

from dovetail.engine.columns import compact, held_bytes
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.spill import SpillFile
from dovetail.joins.interval.operators.intake import Pieces
from dovetail.joins.interval.operators.weights import RowBytes


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
