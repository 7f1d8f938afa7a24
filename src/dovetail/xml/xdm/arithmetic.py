"""Arithmetic of atomic values: numbers, dates, times and durations."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.xdm.atomic import NUMBERS, PRIMITIVES
from dovetail.xml.xdm.cast import untyped_to_double
from dovetail.xml.xdm.decimals import EXACT
from dovetail.xml.xdm.duration import DayTimeDuration, Duration, YearMonthDuration
from dovetail.xml.xdm.numbers import calculate
from dovetail.xml.xdm.temporal import Temporal, days_of_month
from dovetail.xml.xdm.values import type_name


def _scaled(value: Duration, factor: float | Decimal, divide: bool) -> Duration:
    number = Decimal(repr(float(factor))) if isinstance(factor, float) else Decimal(factor)
    if number.is_nan():
        raise XQueryError("FOCA0005", "a duration cannot be multiplied or divided by NaN")
    if divide and number == 0:
        raise XQueryError("FODT0002", "a duration divided by zero")
    if not divide and number.is_infinite():
        raise XQueryError("FODT0002", "a duration multiplied by infinity")
    amount = Decimal(value.months) if type(value) is YearMonthDuration else value.seconds
    result = Decimal(calculate("div" if divide else "*", amount, number)) if number.is_finite() else Decimal(0)
    if type(value) is YearMonthDuration:
        return YearMonthDuration(int(EXACT.add(result, Decimal("0.5")).to_integral_value(rounding="ROUND_FLOOR")))
    return DayTimeDuration(0, result)


def shifted(value: Temporal, by: Duration, sign: int) -> Temporal:
    """A date or time moved by a duration."""
    if type(by) is YearMonthDuration:
        months = value.year * 12 + value.month - 1 + sign * by.months
        year, month = months // 12, months % 12 + 1
        day = min(value.day, days_of_month(year, month))
        return type(value)(year, month, day, value.hour, value.minute, value.second, value.zone)
    moved = type(value).of_seconds(EXACT.add(value.local_seconds(), EXACT.multiply(sign, by.seconds)), value.zone)
    return _trimmed(moved)


def _trimmed(value: Temporal) -> Temporal:
    name = PRIMITIVES[type(value)]
    if name == "date":
        return type(value)(value.year, value.month, value.day, zone=value.zone)
    if name == "time":
        return type(value)(hour=value.hour, minute=value.minute, second=value.second, zone=value.zone)
    return value


def temporal_arithmetic(op: str, left: Any, right: Any) -> Any:
    """`left op right` where one of them is a date, time or duration. Raises XPTY0004 where that means nothing."""
    if isinstance(left, Temporal) and type(left) is type(right) and op == "-" and _movable(left):
        return DayTimeDuration(0, EXACT.subtract(left.instant(), right.instant()))
    if isinstance(left, Temporal) and op in ("+", "-") and _fits(left, right):
        return shifted(left, right, 1 if op == "+" else -1)
    if isinstance(right, Temporal) and op == "+" and _fits(right, left):
        return shifted(right, left, 1)
    result = _duration_arithmetic(op, left, right)
    if result is None:
        raise XQueryError("XPTY0004", f"{type_name(left)} {op} {type_name(right)} is not defined")
    return result


def _movable(value: Temporal) -> bool:
    return PRIMITIVES[type(value)] in ("dateTime", "date", "time")


def _fits(value: Temporal, by: Any) -> bool:
    if not _movable(value):
        return False
    return type(by) is DayTimeDuration or (type(by) is YearMonthDuration and PRIMITIVES[type(value)] != "time")


def _duration_arithmetic(op: str, left: Any, right: Any) -> Any:
    ordered = (YearMonthDuration, DayTimeDuration)
    if type(left) in ordered and type(left) is type(right):
        sign = {"+": 1, "-": -1}.get(op)
        if sign is not None:
            seconds = EXACT.add(left.seconds, EXACT.multiply(sign, right.seconds))
            return type(left)(left.months + sign * right.months, seconds)
        if op == "div":
            return _ratio(left, right)
    if type(left) in ordered and type(right) in NUMBERS and op in ("*", "div"):
        return _scaled(left, right, op == "div")
    if type(right) in ordered and type(left) in NUMBERS and op == "*":
        return _scaled(right, left, False)
    return None


def _ratio(left: Duration, right: Duration) -> Any:
    months = type(left) is YearMonthDuration
    return calculate(
        "div", Decimal(left.months if months else left.seconds), Decimal(right.months if months else right.seconds)
    )


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """`left op right` for two typed values; untyped ones are doubles."""
    left, right = untyped_to_double(left), untyped_to_double(right)
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return calculate(op, left, right)
    return temporal_arithmetic(op, left, right)
