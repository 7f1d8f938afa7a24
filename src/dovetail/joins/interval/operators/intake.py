"""An input read once from end to end, in pieces of bounded size, each row with its ordinal."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import compact, compact_bytes
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.operators.feed import ROW, Need
from dovetail.joins.interval.operators.weights import rows_within

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
        """Bytes of input that lie in memory and were not taken yet."""
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
