"""Intervals over windows of equal width: a row for each window that an interval meets, with their overlap.

Windows are [origin + n width, origin + (n + 1) width). A row needs no other row, so that nothing is exchanged.
Reference: docs/algorithms/sets.md, 6.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.joins.interval.index.answers import COUNT
from dovetail.joins.sets.plan.rows import Rows, check_free, check_value
from dovetail.joins.sets.request import Request
from dovetail.spark.frames import RESERVED, quoted, unquoted

WINDOW_START, WINDOW_END, OVERLAP = "window_start", "window_end", "overlap"
_FROM, _NUMBER, _ORIGIN = f"{RESERVED}from", f"{RESERVED}number", f"{RESERVED}origin"


def windowed(rows: Rows, request: Request) -> DataFrame:
    """Usable rows with each of their windows, and the length of what they share."""
    check_free(rows, (WINDOW_START, WINDOW_END, OVERLAP))
    found = _in_windows(rows, request)
    low, high = f"greatest({rows.start}, {_FROM})", f"least({rows.end}, {_FROM} + {_width(rows, request)})"
    shared = f"{rows.scale.length(f'{high} - {low}')} as {OVERLAP}"
    return found.selectExpr(*map(quoted, rows.columns), *_bounds(rows, request), shared)


def pivoted(rows: Rows, request: Request) -> DataFrame:
    """Of each key and window the number of rows that meet it, and the total of what they share with it."""
    taken = {unquoted(key).lower() for key in rows.keys} & {WINDOW_START, WINDOW_END, COUNT, OVERLAP}
    if taken:
        raise PlanError(f"on has columns {sorted(taken)}, as the result; rename them first.", argument="on")
    found = _in_windows(rows, request)
    low, high = f"greatest({rows.start}, {_FROM})", f"least({rows.end}, {_FROM} + {_width(rows, request)})"
    each = found.groupBy(*rows.keys, _FROM).agg(
        F.count("*").alias(COUNT), F.expr(f"sum({high} - {low})").alias(OVERLAP)
    )
    total = f"{rows.scale.length(OVERLAP)} as {OVERLAP}"
    return each.selectExpr(*rows.keys, *_bounds(rows, request), COUNT, total)


def _in_windows(rows: Rows, request: Request) -> DataFrame:
    """Usable rows with the start of each of their windows, as a number."""
    frame, origin, width = rows.usable(), "0", _width(rows, request)
    if request.origin is not None:
        frame = frame.withColumn(_ORIGIN, rows.scale.literal(request.origin))
        check_value(rows, frame.schema[_ORIGIN].dataType, "origin")
        origin = rows.scale.number(_ORIGIN)
    first = _floor(rows, f"({rows.start} - {origin})", width)
    last = f"if({rows.end} > {rows.start}, -{_floor(rows, f'({origin} - {rows.end})', width)} - 1, {first})"
    placed = frame.selectExpr("*", f"explode(sequence({first}, {last})) as {_NUMBER}")
    start = f"cast({origin} + {_NUMBER} * {width} as {rows.scale.number_type})"
    return placed.selectExpr("*", f"{start} as {_FROM}").where(
        f"{_FROM} < {rows.end} and {_FROM} + {width} > {rows.start} or {rows.start} = {rows.end}"
    )


def _floor(rows: Rows, number: str, width: str) -> str:
    """SQL: how many whole widths a number has, rounded down."""
    if rows.scale.floating:
        return f"cast(floor({number} / {width}) as bigint)"
    rest = f"({number} - pmod({number}, {width}))"
    if isinstance(rows.scale.kind, T.DecimalType):
        return f"cast(round({rest} / {width}) as bigint)"
    return f"({rest} div {width})"


def _width(rows: Rows, request: Request) -> str:
    width = rows.scale.distance("width", request.width)
    if rows.scale.distance("width", -request.width).replace("-", "", 1) != width:
        raise PlanError(
            f"width={request.width!r} is not a whole number of what bounds of type {rows.scale.kind.simpleString()} "
            "can tell apart; use such a width, or cast the bounds to a finer type.",
            argument="width",
        )
    return width


def _bounds(rows: Rows, request: Request) -> list[str]:
    end = f"{_FROM} + {_width(rows, request)}"
    return [f"{rows.scale.bound(_FROM)} as {WINDOW_START}", f"{rows.scale.bound(end)} as {WINDOW_END}"]
