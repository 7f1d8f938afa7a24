"""Tiles of bounds of which Spark has no sequences: decimals, floats, times of day and day-time intervals.

Exact bounds are counted in units, the last digit or microseconds, and Spark has sequences of these.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.rows.keys import NARROW_DIGITS
from dovetail.errors import PlanError
from dovetail.spark.inputs import FLOATS
from dovetail.spark.task_errors import MARK, translate_task_errors

_MICRO = timedelta(microseconds=1)
_TIMES = (T.TimeType, T.DayTimeIntervalType)
_MOST = 2**31  # pieces of one row


def tiles_of(low: Column, high: Column, width: Any, kind: str | T.DataType) -> Column:
    """The pieces of this width of bounds of this type, as an array of structs (start, end); null if inverted."""
    of = _parsed(kind)
    low, high = low.cast(of), high.cast(of)
    if isinstance(of, FLOATS):
        return _of_floats(low, high, _number(width, of), of)
    step = F.lit(_units(width, of)).cast("bigint")
    first, last = _counted(low, of), _counted(high, of)

    def piece(at: Column) -> Column:
        stop = F.when(F.try_add(at, step) < last, _bound(at + step, of)).otherwise(high)
        return F.struct(_bound(at, of).alias("start"), stop.alias("end"))

    return F.when(low <= high, F.transform(F.filter(F.sequence(first, last, step), lambda at: at < last), piece))


def _parsed(kind: str | T.DataType) -> T.DataType:
    try:
        of = T.DataType.fromDDL(kind) if isinstance(kind, str) else kind
    except PySparkException as error:
        raise PlanError(
            f"kind={kind!r} is not a type; write it as SQL does: 'decimal(10,2)'.", argument="kind"
        ) from error
    narrow = isinstance(of, T.DecimalType) and of.precision <= NARROW_DIGITS
    if not narrow and not isinstance(of, (*FLOATS, *_TIMES)):
        raise PlanError(
            f"kind={kind!r} must be a decimal of at most {NARROW_DIGITS} digits, float, double, time or a day-time "
            "interval; leave it out for whole numbers, dates and timestamps.",
            argument="kind",
        )
    return of


def _number(width: Any, of: T.DataType) -> Any:
    """A width that is a number above zero."""
    known = isinstance(width, (int, float, Decimal)) and not isinstance(width, bool) and isfinite(width)
    if not known or width <= 0:
        raise PlanError(f"width={width!r} of {of.simpleString()} must be a number above zero.", argument="width")
    return width


def _units(width: Any, of: T.DataType) -> int:
    """The width in units of the type; `PlanError` for one that is no whole number of them, or none at all."""
    if not isinstance(of, T.DecimalType):
        if not isinstance(width, timedelta) or width <= timedelta(0):
            raise PlanError(
                f"width={width!r} of {of.simpleString()} must be a length of time above zero.", argument="width"
            )
        units, least = width // _MICRO, _least_micros(of)
        exact = units % least == 0
    else:
        units, exact = _digits(_number(width, of), of.scale)
    if not exact or units >= 2**63:
        raise PlanError(f"width={width!r} does not fit bounds of type {of.simpleString()}.", argument="width")
    return units


def _digits(width: Any, scale: int) -> tuple[int, bool]:
    """A number in units of the last digit, and whether that is exact."""
    scaled = (Decimal(str(width)) if isinstance(width, float) else Decimal(width)).scaleb(scale)
    try:
        return int(scaled), scaled == scaled.to_integral_value()
    except InvalidOperation:
        return 0, False


def _least_micros(of: T.DataType) -> int:
    """The microseconds between neighbouring values of a type of times."""
    if isinstance(of, T.TimeType):
        return int(10 ** (6 - of.precision))
    assert isinstance(of, T.DayTimeIntervalType)  # noqa: S101  (for the type checker: the other one of `_TIMES`)
    return (86_400_000_000, 3_600_000_000, 60_000_000, 1)[of.endField or 0]


def _counted(bound: Column, of: T.DataType) -> Column:
    """A bound in units, as a bigint."""
    if isinstance(of, T.DecimalType):
        return (bound * F.lit(Decimal(10**of.scale))).cast("bigint")
    seconds = bound.cast("decimal(11,6)") if isinstance(of, T.TimeType) else _second(bound)
    return (seconds * F.lit(Decimal(1_000_000))).cast("bigint")


def _second(bound: Column) -> Column:
    return bound.cast("interval day to second").cast("decimal(24,6)")


def _bound(at: Column, of: T.DataType) -> Column:
    """The bound of a number of units."""
    if isinstance(of, T.DecimalType):
        return (at.cast("decimal(19,0)") * F.lit(Decimal(1).scaleb(-of.scale))).cast(of)
    length = (at * F.expr("interval '0.000001' second")).cast("interval day to second")
    return (F.expr("time'00:00:00'") + length).cast(of) if isinstance(of, T.TimeType) else length.cast(of)


def _of_floats(low: Column, high: Column, width: Any, of: T.DataType) -> Column:
    """Pieces that begin at low + n * width, rounded once: errors do not add up."""
    translate_task_errors()
    step, many = F.lit(float(width)), (high - low) / F.lit(float(width))

    def bound(number: Column) -> Column:
        return F.least((low + number.cast("double") * step).cast(of), high)

    numbers = F.sequence(F.lit(0).cast("bigint"), F.ceil(F.greatest(many, F.lit(0.0))) + 1)
    pieces = F.transform(numbers, lambda n: F.struct(bound(n).alias("start"), bound(n + 1).alias("end")))
    text = (
        f"{MARK}DataError: tile: a row has no end, or {_MOST:,} pieces or more; filter such rows, or widen the tiles."
    )
    some = F.when(many < _MOST, F.filter(pieces, lambda one: one["start"] < one["end"])).otherwise(
        F.raise_error(F.lit(text))
    )
    return F.when(low <= high, some)
