"""Orders rows that a join cannot tell apart, so that equal inputs give equal answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, AnyArray
from dovetail.engine.rows.columns import NARROW_TEXT, WIDE_TEXT, take_columns, valid_rows
from dovetail.engine.rows.keys import bound_codes


def tie_order(groups: AnyArray, rows: pa.RecordBatch, at: I64, first: Sequence[str] = ()) -> npt.NDArray[np.intp]:
    """The order of the rows at these places by group, by the columns `first`, then by all columns that have an order.

    Nulls come first, NaN is the largest number, as in Spark.
    """
    columns = [pa.array(groups), *_orders(rows, at, first)]
    table = pa.table(columns, names=[str(number) for number in range(len(columns))])
    keys = [(name, "ascending") for name in table.column_names]
    ranked: npt.NDArray[np.intp] = pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.intp)
    return ranked


def _orders(rows: pa.RecordBatch, at: I64, first: Sequence[str]) -> list[pa.Array]:
    columns: list[pa.Array] = []
    for name in [*first, *(name for name in rows.schema.names if name not in first)]:
        column = _ordered(rows[name], at)
        if column is not None:  # nulls come first
            columns += [pa.array(valid_rows(column).view(np.int8)), column] if column.null_count else [column]
    return columns


def _ordered(column: pa.Array, at: I64) -> pa.Array | None:
    """The rows of a column in a form that Arrow sorts as Spark does, NaN last; None if it has no order here."""
    kind = column.type
    taken = take_columns(pa.RecordBatch.from_arrays([column], ["x"]), at)["x"]
    if pa.types.is_floating(kind):
        return pa.array(bound_codes(taken), mask=~valid_rows(taken))
    if pa.types.is_boolean(kind):
        return taken.cast(pa.int8())
    if pa.types.is_duration(kind):
        return taken.view(pa.int64())
    plain = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind)
    return taken if plain or kind in NARROW_TEXT or kind in WIDE_TEXT else None
