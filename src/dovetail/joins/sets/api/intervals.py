"""Helpers that give the columns of changed intervals: expand, trim, shift, flank and tile.

Each takes the start and end columns, by name or as Columns, and gives a pair of Columns; `tile` gives one array.
Amounts are numbers, and for times a timedelta or text such as "10 min"; or Columns. Null bounds stay null; an interval
may become empty or inverted.

>>> from pyspark.sql import functions as F
>>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
>>> start, end = dovetail.intervals.expand("start", "end", 3)
>>> calls.select(start.alias("start"), end.alias("end")).collect()
[Row(start=7, end=17)]
>>> calls.select(F.inline(dovetail.intervals.tile("start", "end", 3))).collect()
[Row(start=10, end=13), Row(start=13, end=14)]
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.request import one_of, parse_seconds
from dovetail.spark.task_errors import MARK, translate_task_errors

Bounds = tuple[Column, Column]


def expand(start: str | Column, end: str | Column, by: Any, after: Any = None) -> Bounds:
    """The interval made longer by `by` on both sides, or by `after` at its end if that is given; below zero shorter."""
    low, high = _column(start), _column(end)
    return low - _amount("by", by), high + _amount("after", by if after is None else after)


def shift(start: str | Column, end: str | Column, by: Any) -> Bounds:
    """The interval moved by an amount, towards larger values unless it is below zero."""
    amount = _amount("by", by)
    return _column(start) + amount, _column(end) + amount


def trim(start: str | Column, end: str | Column, low: Any = None, high: Any = None) -> Bounds:
    """The interval cut to lie between two limits, values or Columns; None leaves a side as it is.

    One that lies outside becomes empty or inverted: filter start < end.
    """
    first, last = _column(start), _column(end)
    return (
        first if low is None else F.when(first < _value(low), _value(low)).otherwise(first),
        last if high is None else F.when(last > _value(high), _value(high)).otherwise(last),
    )


def flank(start: str | Column, end: str | Column, width: Any, side: Literal["left", "right"] = "left") -> Bounds:
    """The interval of this width that ends where the given one starts, or begins where it ends (`right`)."""
    amount = _amount("width", width)
    if one_of("side", side, ("left", "right")) == "left":
        return _column(start) - amount, _column(start)
    return _column(end), _column(end) + amount


def tile(start: str | Column, end: str | Column, width: Any) -> Column:
    """The interval in pieces of this width, the last one shorter: an array of structs (start, end).

    Bounds are whole numbers, dates or timestamps. `F.inline` or `F.explode` gives a row for each piece. For windows
    that all rows share use `interval_window`.
    """
    low, high, step = _column(start), _column(end), _step(width)

    def piece(at: Column) -> Column:
        stop = F.when(F.try_add(at, step) < high, at + step).otherwise(high)  # beyond the type of the bounds it is null
        return F.struct(at.alias("start"), stop.alias("end"))

    every = F.filter(F.sequence(low, high, step), lambda at: at < high)
    tiles = F.when(low <= high, F.transform(every, piece))
    given = None if isinstance(width, Column) else _given("width", width)
    if not isinstance(given, timedelta) or given % timedelta(days=1) == timedelta(0):
        return tiles
    translate_task_errors()
    text = f"width={width!r} is no whole number of days, but bounds are dates; cast them to timestamp_ntz."
    return F.when(F.typeof(low) == "date", F.raise_error(F.lit(f"{MARK}DataError: {text}"))).otherwise(tiles)


def _step(width: Any) -> Column:
    """The width as a step of whole units; `PlanError` for one that is none."""
    if isinstance(width, Column):
        return width
    given = _given("width", width)
    if isinstance(given, timedelta):
        if given <= timedelta(0):
            raise PlanError(f"width={width!r} must be above zero.", argument="width")
        return F.lit(given)
    if isinstance(given, bool) or not isinstance(given, (int, float, Decimal)) or given <= 0 or given != int(given):
        raise PlanError(
            f"width={width!r} must be a whole number above zero, or a length of time; bounds of other numbers are cut "
            "by interval_window.",
            argument="width",
        )
    return F.lit(int(given))


def _column(given: str | Column) -> Column:
    return F.col(given) if isinstance(given, str) else given


def _value(given: Any) -> Column:
    return given if isinstance(given, Column) else F.lit(given)


def _amount(argument: str, given: Any) -> Column:
    return _value(_given(argument, given))


def _given(argument: str, value: Any) -> Any:
    """The value; text as a length of time."""
    return timedelta(seconds=parse_seconds(argument, value)) if isinstance(value, str) else value
