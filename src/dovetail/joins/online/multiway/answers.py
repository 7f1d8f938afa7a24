"""Combinations of rows of many inputs as batches of the answer, and the names of their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dovetail.engine.memory import Reservation
from dovetail.errors import PlanError
from dovetail.joins.online.answers import AnswerBatches
from dovetail.joins.online.multiway.keys import MultiKeys
from dovetail.joins.online.phases import PHASE_COLUMN
from dovetail.joins.online.progress import Progress
from dovetail.joins.online.row_pages import picked


def multi_schema(names: Sequence[str], schemas: Mapping[str, pa.Schema], with_phase: bool) -> pa.Schema:
    """The columns of all inputs in order; a name that several inputs have is preceded by its input's: orders_id.

    `PlanError` if that makes a name that another column has.
    """
    fields = [(name, field) for name in names for field in schemas[name]]
    often = Counter(field.name for _, field in fields)
    out = [field.with_name(f"{name}_{field.name}") if often[field.name] > 1 else field for name, field in fields]
    if with_phase:
        out.append(pa.field(PHASE_COLUMN, pa.string(), nullable=False))
    twice = sorted(name for name, n in Counter(field.name for field in out).items() if n > 1)
    if twice:
        raise PlanError(
            f"the answer would have columns {twice} twice; rename them in an input, or the input itself.",
            argument="inputs",
        )
    return pa.schema(out)


class MultiAnswers(AnswerBatches):
    """The answers of a multiway join."""

    def __init__(
        self, schema: pa.Schema, keys: MultiKeys, room: Reservation, row_bytes: int, progress: Progress, phased: bool
    ) -> None:
        super().__init__(schema, room, row_bytes, progress, phased)
        self._keys = keys

    def put_together(self, rows: Sequence[pa.RecordBatch]) -> list[pa.Array]:
        """The columns of all inputs, side by side."""
        if not self._keys.exact:
            same = self._keys.same(rows)
            if not same.all():
                rows = [picked(batch, np.flatnonzero(same)) for batch in rows]
        return [column for batch in rows for column in batch.columns]
