"""Helpers that give the columns of changed intervals: expand, trim, shift, flank and tile.

Each takes the start and end columns, by name or as Columns, and options by keyword. It gives a pair of Columns; `tile`
gives one array. Amounts are numbers, and for times a timedelta or text such as "10 min"; or Columns. Null bounds stay
null; an interval may become empty or inverted.

Bounds keep their type where an amount fits it: dates with whole days stay dates. A length of time moves a timestamp by
exactly that long, also where clocks change. Columns see no schema before Spark resolves them, so what follows from the
types of the bounds is an error of the query: decimals of 38 digits, of which Spark drops some, are a `DataError`.
A bound that would leave its type, as a time of day after midnight or 127 + 1 of a tinyint, is a `DataError` of the
query too, as it is in Spark's ANSI mode; without ANSI mode it is one here as well. Spark's own rules hold for all other
pairs: decimals become a digit wider, int with 0.5 is double, a date with "6 h" is a timestamp, time(0) with seconds is
time(6); and for amounts and limits that are Columns.

>>> from pyspark.sql import functions as F
>>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
>>> start, end = dovetail.intervals.expand("start", "end", by=3)
>>> calls.select(start.alias("start"), end.alias("end")).collect()
[Row(start=7, end=17)]
>>> calls.select(F.inline(dovetail.intervals.tile("start", "end", width=3))).collect()
[Row(start=10, end=13), Row(start=13, end=14)]
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.joins.sets.api.literals import MOST_DIGITS, fitted
from dovetail.joins.sets.api.tiles import tiles_of
from dovetail.request import one_of, parse_seconds
from dovetail.spark.task_errors import MARK, translate_task_errors

Bounds = tuple[Column, Column]
_NO_SEQUENCE = (
    f"{MARK}PlanError: tile: Spark has no sequence of these bounds by this width; both bounds must be whole numbers, "
    "dates or timestamps of one type. For decimals, floats, times of day and day-time intervals give their type, for "
    "example kind='decimal(10,2)'.\n\n"
)
_INEXACT = r"^decimal\(38,([7-9]|[1-3][0-9])\)"  # Spark keeps six digits after the point whatever the precision


def expand(start: str | Column, end: str | Column, *, by: Any, after: Any = None) -> Bounds:
    """The interval made longer by `by` on both sides, or by `after` at its end if that is given; below zero shorter.

    >>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
    >>> calls.select(*dovetail.intervals.expand("start", "end", by=3, after=1)).first()[:]
    (7, 15)
    """
    low, high = _column(start), _column(end)
    return _named(start, end, _moved(low, "by", by, back=True), _moved(high, "after", by if after is None else after))


def shift(start: str | Column, end: str | Column, *, by: Any) -> Bounds:
    """The interval moved by an amount, towards larger values unless it is below zero.

    >>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
    >>> calls.select(*dovetail.intervals.shift("start", "end", by=-4)).first()[:]
    (6, 10)
    """
    return _named(start, end, _moved(_column(start), "by", by), _moved(_column(end), "by", by))


def trim(start: str | Column, end: str | Column, *, low: Any = None, high: Any = None) -> Bounds:
    """The interval cut to lie between two limits, values or Columns; None leaves a side as it is.

    One that lies outside becomes empty or inverted: filter start < end. A datetime without a zone is the same reading
    where bounds are timestamp_ntz.

    >>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
    >>> calls.select(*dovetail.intervals.trim("start", "end", high=12)).first()[:]
    (10, 12)
    """
    first, last = _column(start), _column(end)
    least, most = fitted(first, _known("low", low)), fitted(last, _known("high", high))
    return _named(
        start,
        end,
        first if low is None else F.when(first < least, least).otherwise(first),
        last if high is None else F.when(last > most, most).otherwise(last),
    )


def flank(start: str | Column, end: str | Column, *, width: Any, side: Literal["left", "right"] = "left") -> Bounds:
    """The interval of this width that ends where the given one starts, or begins where it ends (`right`).

    >>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
    >>> calls.select(*dovetail.intervals.flank("start", "end", width=2, side="right")).first()[:]
    (14, 16)
    """
    low, high = _column(start), _column(end)
    if one_of("side", side, ("left", "right")) == "left":
        return _named(start, end, _moved(low, "width", width, back=True), low)
    return _named(start, end, high, _moved(high, "width", width))


def tile(start: str | Column, end: str | Column, *, width: Any, kind: str | T.DataType | None = None) -> Column:
    """The interval in pieces of this width, the last one shorter: an array of structs (start, end).

    Bounds are whole numbers, dates or timestamps. For bounds of other types, of which Spark has no sequences, give
    their type as `kind`: decimals of at most 18 digits, float, double, time or a day-time interval, by name or as
    `frame.schema["start"].dataType`. Pieces of doubles begin at start + n * width, rounded once. `F.inline` or
    `F.explode` gives a row for each piece. For windows that all rows share use `interval_window`.

    >>> calls = spark.createDataFrame([(10, 14)], "start int, end int")
    >>> calls.select(dovetail.intervals.tile("start", "end", width=3).alias("tiles")).first().tiles
    [Row(start=10, end=13), Row(start=13, end=14)]
    """
    low, high = _column(start), _column(end)
    if kind is not None:
        return tiles_of(low, high, _given("width", width), kind).alias("tiles")
    translate_task_errors()
    # Spark puts the expression into its message, and never computes this branch.
    step = F.when(F.lit(True), _step(low, width)).otherwise(F.raise_error(F.lit(_NO_SEQUENCE)))

    def piece(at: Column) -> Column:
        stop = F.when(F.try_add(at, step) < high, at + step).otherwise(high)  # beyond the type of the bounds it is null
        return F.struct(at.alias("start"), stop.alias("end"))

    every = F.filter(F.sequence(low, high, step), lambda at: at < high)
    tiles = F.when(low <= high, F.transform(every, piece))
    given = None if isinstance(width, Column) else _given("width", width)
    if not isinstance(given, timedelta) or given % timedelta(days=1) == timedelta(0):
        return tiles.alias("tiles")
    text = f"width={width!r} is no whole number of days, but bounds are dates; cast them to timestamp_ntz."
    return _refuse(F.typeof(low) == "date", text, tiles).alias("tiles")


def _step(low: Column, width: Any) -> Column:
    """The width as a step of whole units; `PlanError` for one that is none."""
    if isinstance(width, Column):
        return width
    given = _given("width", width)
    if isinstance(given, timedelta):
        if given <= timedelta(0):
            raise PlanError(f"width={width!r} must be above zero.", argument="width")
        return fitted(low, given)
    if isinstance(given, bool) or not isinstance(given, (int, float, Decimal)) or given <= 0 or given != int(given):
        raise PlanError(
            f"width={width!r} must be a whole number above zero, or a length of time; bounds of other numbers are cut "
            "by interval_window.",
            argument="width",
        )
    if given >= 2**63:
        raise PlanError(f"width={width!r} is beyond 64 bits; use a smaller one.", argument="width")
    return fitted(low, int(given))


def _moved(bound: Column, argument: str, by: Any, back: bool = False) -> Column:
    """The bound plus the amount, or less it; decimals that Spark cannot add exactly are a `DataError`."""
    amount = fitted(bound, _given(argument, by))
    moved = F.try_subtract(bound, amount) if back else F.try_add(bound, amount)
    said = F.concat(
        F.lit(f"{MARK}DataError: {argument}: the bound "),
        bound.cast("string"),
        F.lit(f" {'-' if back else '+'} "),
        amount.cast("string"),
        F.lit(" is beyond the type "),
        F.typeof(bound),
        F.lit("; filter such rows, or cast the bounds to a wider type."),
    )
    beyond = F.when(bound.isNotNull() & amount.isNotNull(), F.raise_error(said))
    text = (
        f"{argument}: sums of bounds of 38 digits are not exact in Spark; cast the bounds to decimal(37, s) or fewer."
    )
    return _refuse(F.typeof(bound).rlike(_INEXACT), text, F.coalesce(moved, beyond))


def _refuse(condition: Column, text: str, value: Column) -> Column:
    """The value, or a `DataError` of the query; the condition is about types, so that plans do not have it."""
    translate_task_errors()
    return F.when(condition, F.raise_error(F.lit(f"{MARK}DataError: {text}"))).otherwise(value)


def _named(start: str | Column, end: str | Column, first: Column, last: Column) -> Bounds:
    """The new bounds under the names of the old ones, or as start and end if those are Columns."""
    low, high = (
        _last_name(given) if isinstance(given, str) else name for given, name in ((start, "start"), (end, "end"))
    )
    return first.alias(low), last.alias(high)


def _last_name(path: str) -> str:
    """The name that a path of names ends with: c of a.b.c, and `c.d` of a.`c.d`, without its quotes."""
    in_quotes = re.search(r"`((?:[^`]|``)*)`$", path)
    return path.rpartition(".")[2] if in_quotes is None else in_quotes[1].replace("``", "`")


def _column(given: str | Column) -> Column:
    return F.col(given) if isinstance(given, str) else given


def _given(argument: str, value: Any) -> Any:
    """The value; text as a length of time."""
    return timedelta(seconds=parse_seconds(argument, value)) if isinstance(value, str) else _known(argument, value)


def _known(argument: str, value: Any) -> Any:
    """The value; a `PlanError` for a whole number that no type of Spark has."""
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise PlanError(
            f"{argument} has {len(str(abs(value)))} digits, and numbers have {MOST_DIGITS}; give a smaller one.",
            argument=argument,
        )
    return value
