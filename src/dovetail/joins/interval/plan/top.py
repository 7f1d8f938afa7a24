"""The pairs that overlap longest, without forming the others."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.columns import take_columns
from dovetail.joins.interval.codes import bound_numbers, encode_sides
from dovetail.joins.interval.index.count import Side as Coded
from dovetail.joins.interval.index.top import top_overlap_pairs, top_overlap_threshold
from dovetail.joins.interval.plan.count import POINT_BYTES, read_both, row_counts, shared_encoder
from dovetail.joins.interval.plan.plan import IntervalPlan, make_plan, project
from dovetail.joins.interval.plan.sides import Side, spark_only, unquoted
from dovetail.joins.interval.request import Request


def longest_overlaps(left: DataFrame, right: DataFrame, k: int, request: Request) -> DataFrame:
    """The k pairs that overlap longest, longest first.

    The k-th longest overlap is found from the bounds alone; only rows at least that long are then read.
    """
    plan = make_plan(left, right, request)
    small = sum(s.rows for s in plan.statistics) * POINT_BYTES <= request.memory
    kind = plan.left.bound_type
    coded = not isinstance(kind, T.DecimalType) or kind.precision <= 18
    coded = coded and spark_only(plan.left, plan.right) is None
    simple = request.condition is None and request.relation.only == "overlapping" and coded
    if small and simple:
        found = _top_on_driver(plan, k)
        if found is not None:
            return found
    overlap = _overlap_length(plan.left, plan.right)
    left_side, right_side = plan.checked_sides()
    whole = plan.whole(left_side, right_side).orderBy(F.expr(overlap).desc()).limit(k)
    return project(whole, left_side, right_side, request)


def _overlap_length(left: Side, right: Side) -> str:
    end = f"least({left.measure(left.end)}, {right.measure(right.end)})"
    return f"{end} - greatest({left.measure(left.start)}, {right.measure(right.start)})"


def _top_on_driver(plan: IntervalPlan, k: int) -> DataFrame | None:
    """The answer as a local DataFrame, or None if the rows that could be in it do not fit the budget."""
    left, right = plan.checked_sides()
    tables = read_both(
        *(side.frame.select(*dict.fromkeys((side.start, side.end, *side.keys))) for side in (left, right))
    )
    threshold = top_overlap_threshold(*_coded(tables, (left, right)), k, *_lengths(tables, (left, right)))
    frames = [left.frame, right.frame]
    if threshold is not None:
        shortest = _measured(left, threshold.length)
        frames = [
            side.frame.where(f"{side.measure(side.end)} - {side.measure(side.start)} >= {shortest}")
            for side in (left, right)
        ]
    width = sum(s.row_bytes for s in plan.statistics)
    limit = int(plan.request.memory / max(1.0, width))
    counts = row_counts((replace(left, frame=frames[0]), replace(right, frame=frames[1])))
    if sum(counts) > limit:
        return None
    whole = read_both(*frames)
    top = top_overlap_pairs(*_coded(whole, (left, right)), k, *_lengths(whole, (left, right)))
    rows = [take_columns(table, at) for table, at in zip(whole, (top.left, top.right), strict=True)]
    columns = [*rows[0].columns, *rows[1].columns]
    names = [*whole[0].schema.names, *whole[1].schema.names]
    table = pa.Table.from_arrays(columns, names=names)
    schema = left.frame.schema.fields + right.frame.schema.fields
    local = left.frame.sparkSession.createDataFrame(table, T.StructType(schema))
    return project(local.coalesce(1), left, right, plan.request)


def _measured(side: Side, length: Any) -> str:
    """SQL: a length of the kernels as a difference of measures; of floats a little shorter, as both round."""
    kind = side.bound_type
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return f"double('{float(length) * (1 - 1e-6)!r}')"
    digits = 6 if isinstance(kind, (T.TimestampNTZType, T.DayTimeIntervalType)) else 0
    digits = kind.scale if isinstance(kind, T.DecimalType) else digits
    return f"cast('{Decimal(int(length)).scaleb(-digits):f}' as decimal(38, {digits}))"


def _coded(tables: tuple[pa.Table, pa.Table], sides: tuple[Side, Side]) -> tuple[Coded, Coded]:
    bounds = [(t[unquoted(s.start)], t[unquoted(s.end)]) for t, s in zip(tables, sides, strict=True)]
    both = encode_sides(bounds[0], bounds[1], sides[0].closed, sides[1].closed)
    encoder = shared_encoder(tables[0], sides[0])
    keys = [
        None if encoder is None else encoder.encode([t[unquoted(key)].combine_chunks() for key in s.keys])[0]
        for t, s in zip(tables, sides, strict=True)
    ]
    return Coded(keys[0], both.left_start, both.left_end), Coded(keys[1], both.right_start, both.right_end)


def _lengths(tables: tuple[pa.Table, pa.Table], sides: tuple[Side, Side]) -> list[Any]:
    """The bounds as numbers whose differences are lengths."""
    return [
        (bound_numbers(table[unquoted(side.start)]), bound_numbers(table[unquoted(side.end)]))
        for table, side in zip(tables, sides, strict=True)
    ]
