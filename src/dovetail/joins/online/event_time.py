"""The age of rows: event times as whole numbers, so that old blocks can be told from young ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.keys import KeyEncoder
from dovetail.engine.layout import check_columns
from dovetail.errors import PlanError

_OLDEST = -(2**63)


def check_event_time(schema: pa.Schema, name: str, side: str) -> None:
    """`PlanError` unless the column is there and of whole numbers, dates or times."""
    check_columns(schema, [name], side)
    kind = schema.field(name).type
    timed = pa.types.is_temporal(kind) or (pa.types.is_integer(kind) and kind != pa.uint64())
    if not timed:
        raise PlanError(f"event time {name!r} of {side} is {kind}; it must be a time, a date, or a whole number.")


class EventTime:
    """One side's event times as int64 in their order; a row without one counts as older than all others."""

    def __init__(self, schema: pa.Schema, name: str) -> None:
        self._name, self._kind = name, schema.field(name).type
        self._encoder = KeyEncoder([self._kind])

    def numbers(self, batch: pa.RecordBatch) -> I64:
        """The event time of each row."""
        times, valid = self._encoder.encode([batch.column(self._name)])
        return np.where(valid, times, _OLDEST)

    def newest(self, batch: pa.RecordBatch) -> int:
        """The largest event time of rows."""
        return int(self.numbers(batch).max(initial=_OLDEST))

    def number(self, value: Any) -> int:
        """A moment as such a number."""
        return int(self._encoder.encode([pa.array([value], self._kind)])[0][0])
