"""Keys with very many rows, as users name them: text that travels with the join, and the codes of its rows."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.layout import Key
from dovetail.errors import PlanError
from dovetail.joins.online.keys import RowKeys
from dovetail.joins.online.predicate import Predicate


def hot_as_text(hot: Sequence[Any] | None, on: Sequence[Key], left: pa.Schema) -> str:
    """Values of the equal columns (tuples where there are several) as text; empty if there are none."""
    if not hot:
        return ""
    schema = _columns(on, left)
    if not len(schema):
        raise PlanError(
            f"hot={hot!r} names keys of equal columns, and there are none; give on=, or leave hot out.", argument="hot"
        )
    if isinstance(hot, (str, bytes)) or not all(_fits(value, len(schema)) for value in hot):
        raise PlanError(
            f"hot={hot!r}: give a list of keys of {schema.names}, none of them null; tuples if several.", argument="hot"
        )
    lines = [value if len(schema) > 1 else (value,) for value in hot]
    try:
        columns = [pa.array([line[at] for line in lines], field.type) for at, field in enumerate(schema)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise PlanError(f"hot={hot!r} are no values of {schema.names}: {error}.", argument="hot") from error
    return base64.b64encode(pa.RecordBatch.from_arrays(columns, schema=schema).serialize()).decode()


def hot_codes(text: str, on: Sequence[Key], schemas: dict[str, pa.Schema]) -> I64:
    """The codes of hot keys, as both sides have them, in order."""
    if not text:
        return np.empty(0, np.int64)
    batch = pa.ipc.read_record_batch(pa.py_buffer(base64.b64decode(text)), _columns(on, schemas["left"]))
    return np.unique(RowKeys(Predicate(tuple(on)), schemas).encode(0, batch).code)


def _columns(on: Sequence[Key], left: pa.Schema) -> pa.Schema:
    return pa.schema([left.field(key if isinstance(key, str) else key[0]) for key in on])


def _fits(value: Any, columns: int) -> bool:
    parts = value if columns > 1 else (value,)
    return isinstance(parts, (tuple, list)) and len(parts) == columns and all(part is not None for part in parts)
