"""Literals whose type follows a column that Spark has not resolved yet.

`from_csv` takes its schema from a constant expression, and `typeof` of a column is one: Spark folds such a literal when
it has resolved the column, and plans hold a plain value.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

_UNITS = {unit: timedelta(**{f"{unit}s": 1}) for unit in ("day", "hour", "minute")}
_MICRO = timedelta(microseconds=1)
MOST_DIGITS = 38  # of a decimal
_EXACT_FLOAT = 2**24  # whole numbers up to it are floats


def fitted(column: Column, value: Any) -> Column:
    """The value in the type of the column if that can hold it, in its own type otherwise; a Column as it is."""
    if isinstance(value, (Column, bool)):
        return value if isinstance(value, Column) else F.lit(value)
    if isinstance(value, timedelta):
        return _length(F.typeof(column), value)
    if isinstance(value, datetime):
        return F.lit(value) if value.tzinfo is not None else _reading(F.typeof(column), value)
    if isinstance(value, time):
        return _time(F.typeof(column), value)
    if isinstance(value, int) and not _spans(value):
        return fitted(column, Decimal(value))
    if isinstance(value, (int, float, Decimal)) and _spans(value):
        return _number(F.typeof(column), value)
    return F.lit(value)


def _spans(value: int | float | Decimal) -> bool:
    """Whether Spark has a type of finite numbers for it."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isfinite(value) and (isinstance(value, float) or max(_digits(value)) <= MOST_DIGITS)


def _number(kind: Column, value: int | float | Decimal) -> Column:
    """A number in the narrow types, in which Spark would not stay by itself."""
    if not isinstance(value, int):
        text = str(value) if isinstance(value, float) else f"{value:f}"
        return _literal(text, F.when(kind == "float", kind).otherwise(_own_type(value)))
    narrow = [name for name, bits in (("tinyint", 7), ("smallint", 15)) if -(2**bits) <= value < 2**bits]
    narrow += ["float"] if abs(value) <= _EXACT_FLOAT else []
    own = F.when(kind.startswith("decimal"), f"decimal({len(str(abs(value)))},0)").otherwise(_own_type(value))
    return _literal(str(value), F.when(kind.isin(narrow), kind).otherwise(own) if narrow else own)


def _own_type(value: int | float | Decimal) -> str:
    """The type that Spark gives to a number."""
    if isinstance(value, int):
        return "int" if -(2**31) <= value < 2**31 else "bigint"
    if isinstance(value, float):
        return "double"
    whole, scale = _digits(value)
    return f"decimal({max(whole, scale)},{scale})"


def _digits(value: Decimal) -> tuple[int, int]:
    """How many digits a finite decimal has, and how many of them after the point."""
    _, digits, exponent = value.as_tuple()
    return len(digits) + max(0, int(exponent)), max(0, -int(exponent))


def _length(kind: Column, value: timedelta) -> Column:
    """A length of time: whole units of dates and intervals, and of timestamps seconds.

    Spark adds the days of a day-time interval by the clock of the session, but the seconds of a calendar interval as
    they are.
    """
    seconds = f"{Decimal(value // _MICRO).scaleb(-6):f}"
    text, name = F.lit(f"INTERVAL '{seconds}' SECOND"), F.lit("interval second")
    for unit, length in _UNITS.items():
        if value % length == timedelta(0):
            same = kind.endswith(f" {unit}") | kind.startswith("time(")
            same = same | (kind == "date") if unit == "day" else same
            text = F.when(same, f"INTERVAL '{value // length}' {unit.upper()}").otherwise(text)
            name = F.when(same, f"interval {unit}").otherwise(name)
    moment = kind.startswith("timestamp")
    return _literal(F.when(moment, f"{seconds} seconds").otherwise(text), F.when(moment, "interval").otherwise(name))


def _reading(kind: Column, value: datetime) -> Column:
    """A time without a zone: the same reading where the column has none, else that moment in the zone of Python."""
    bare = kind == "timestamp_ntz"
    try:
        moment = value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    except (OverflowError, ValueError):  # the first and the last day that Python has
        moment = value.isoformat()
    return _literal(F.when(bare, value.isoformat()).otherwise(moment), F.when(bare, kind).otherwise("timestamp"))


def _time(kind: Column, value: time) -> Column:
    """A time of day, with as many digits of a second as the column has if that is enough."""
    enough = [f"time({digits})" for digits in range(7) if value.microsecond % 10 ** (6 - digits) == 0]
    return _literal(value.isoformat(), F.when(kind.isin(enough), kind).otherwise("time(6)"))


def _literal(text: str | Column, kind: Column | str) -> Column:
    """The value that a text is in a type; both are constant."""
    name = F.lit(kind) if isinstance(kind, str) else kind
    return F.from_csv(F.lit(text) if isinstance(text, str) else text, F.concat(F.lit("a "), name))["a"]
