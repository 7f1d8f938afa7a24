"""Bounds of every type as numbers whose order and differences are those of the bounds, and back, in SQL.

Whole numbers and decimals are themselves, floats are doubles, dates are days, and times are microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.request import Distance

_FLOATS = (T.FloatType, T.DoubleType)
_MICROS = (T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.TimeType)
_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_DAY = 86_400_000_000  # in microseconds


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers of the bounds of one type. Lengths are numbers of that kind too, for times seconds."""

    kind: T.DataType

    @property
    def number_type(self) -> str:
        """SQL: the type of the numbers."""
        if isinstance(self.kind, _FLOATS):
            return "double"
        return self.kind.simpleString() if isinstance(self.kind, T.DecimalType) else "bigint"

    @property
    def timely(self) -> bool:
        """Whether bounds are dates or times, whose lengths are seconds."""
        return isinstance(self.kind, (T.DateType, *_MICROS))

    @property
    def floating(self) -> bool:
        """Whether numbers may be NaN."""
        return isinstance(self.kind, _FLOATS)

    def number(self, bound: str) -> str:
        """SQL: a bound as a number."""
        kind = self.kind
        if isinstance(kind, T.DateType):
            return f"cast(unix_date(cast({bound} as date)) as bigint)"
        if isinstance(kind, T.TimestampType):
            return f"unix_micros(cast({bound} as timestamp))"
        if isinstance(kind, T.TimestampNTZType):
            return _micros(f"cast({bound} as timestamp_ntz) - {_EPOCH}")
        if isinstance(kind, (T.DayTimeIntervalType, T.TimeType)):
            return _micros(
                f"cast({bound} as {'time(6)' if isinstance(kind, T.TimeType) else 'interval day to second'})"
            )
        return f"cast({bound} as {self.number_type})"

    def literal(self, value: Any) -> Column:
        """A value that the user gave; a time without a zone is the same reading where bounds have no zone."""
        if isinstance(self.kind, T.TimestampNTZType) and isinstance(value, datetime) and value.tzinfo is None:
            return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
        return F.lit(value)

    def bound(self, number: str) -> str:
        """SQL: a number as a bound."""
        kind = self.kind
        if isinstance(kind, T.DateType):
            return f"date_from_unix_date(cast({number} as int))"
        if isinstance(kind, T.TimestampType):
            return f"timestamp_micros({number})"
        if isinstance(kind, T.TimeType):
            midnight = f"if({number} < {_DAY}L, {number}, null)"  # a window may end there, which is no time of day
            return f"cast(time_from_micros({midnight}) as {kind.simpleString()})"
        length = f"make_dt_interval(0, 0, 0, cast(cast({number} as decimal(20, 0)) * 0.000001BD as decimal(18, 6)))"
        if isinstance(kind, T.TimestampNTZType):
            return f"({_EPOCH} + {length})"
        return f"cast({length if isinstance(kind, T.DayTimeIntervalType) else number} as {kind.simpleString()})"

    def length(self, difference: str) -> str:
        """SQL: a difference of numbers as a length: seconds for dates and times, else a number."""
        if isinstance(self.kind, T.DateType):
            return f"cast({difference} as double) * 86400D"
        if isinstance(self.kind, _MICROS):
            return f"cast({difference} as double) / 1000000D"
        return f"({difference})"

    def distance(self, argument: str, given: Distance) -> str:
        """SQL: a length that the user gave as a difference of numbers, rounded down to what the type can hold."""
        if isinstance(given, timedelta) and not self.timely:
            raise PlanError(
                f"{argument}={given!r} is a length of time, but bounds have type {self.kind.simpleString()}; give a "
                "number.",
                argument=argument,
            )
        if isinstance(self.kind, _FLOATS):
            return f"double('{float(given)!r}')"  # type: ignore[arg-type]  # a timedelta was refused
        if self.timely:
            micros = given // timedelta(microseconds=1) if isinstance(given, timedelta) else _floor(given, 6)
            return f"{int(micros) // _DAY if isinstance(self.kind, T.DateType) else int(micros)}L"
        digits = self.kind.scale if isinstance(self.kind, T.DecimalType) else 0
        units = _floor(given, digits)  # type: ignore[arg-type]  # likewise
        return f"cast('{Decimal(units).scaleb(-digits):f}' as decimal(38, {digits}))" if digits else f"{units}L"


def _micros(length: str) -> str:
    return f"cast(cast({length} as decimal(18, 6)) * 1000000 as bigint)"


def _floor(number: int | float | Decimal, digits: int) -> int:
    """A number in units of the digit after the decimal point, rounded down."""
    exact = Decimal(str(number)) if isinstance(number, float) else Decimal(number)
    return int(exact.scaleb(digits).to_integral_value(ROUND_FLOOR))
