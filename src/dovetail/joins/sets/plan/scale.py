"""Bounds of every type as numbers whose order and differences are those of the bounds, and back, in SQL.

Whole numbers, decimals and texts are themselves, floats are doubles, dates are days, and times are microseconds. Texts
have an order only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.request import Distance
from dovetail.spark.inputs import FLOATS, distance_units, is_text

_MICROS = (T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.TimeType)
_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"
_DAY = 86_400_000_000  # in microseconds
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers of the bounds of one type. Lengths are numbers of that kind too, for times seconds."""

    kind: T.DataType

    @property
    def number_type(self) -> str:
        """SQL: the type of the numbers."""
        if isinstance(self.kind, FLOATS):
            return "double"
        return self.kind.simpleString() if self.textual or isinstance(self.kind, T.DecimalType) else "bigint"

    @property
    def textual(self) -> bool:
        """Whether bounds are texts, which have no lengths."""
        return is_text(self.kind)

    @property
    def timely(self) -> bool:
        """Whether bounds are dates or times, whose lengths are seconds."""
        return isinstance(self.kind, (T.DateType, *_MICROS))

    @property
    def floating(self) -> bool:
        """Whether numbers may be NaN."""
        return isinstance(self.kind, FLOATS)

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
        """SQL: a number as a bound; null if it is none of the type."""
        kind = self.kind
        if isinstance(kind, T.DateType):
            return f"date_from_unix_date(try_cast({number} as int))"
        if isinstance(kind, T.TimestampType):
            return f"timestamp_micros({number})"
        if isinstance(kind, T.TimeType):
            inside = f"if({number} >= 0 and {number} < {_DAY}L, {number}, null)"  # a window may begin or end elsewhere
            return f"cast(time_from_micros({inside}) as {kind.simpleString()})"
        rest = f"cast(cast(({number}) % {_DAY}L as decimal(20, 0)) * 0.000001BD as decimal(18, 6))"
        length = f"make_dt_interval(cast(({number}) div {_DAY}L as int), 0, 0, {rest})"  # 10^12 seconds are too many
        if isinstance(kind, T.TimestampNTZType):
            return f"({_EPOCH} + {length})"
        if isinstance(kind, T.DayTimeIntervalType):
            return f"cast({length} as {kind.simpleString()})"
        return f"try_cast({number} as {kind.simpleString()})"

    def length(self, difference: str) -> str:
        """SQL: a difference of numbers as a length: seconds for dates and times, else a number."""
        if isinstance(self.kind, T.DateType):
            return f"cast({difference} as double) * 86400D"
        if isinstance(self.kind, _MICROS):
            return f"cast({difference} as double) / 1000000D"
        return f"({difference})"

    def units(self, argument: str, given: Distance) -> int | float:
        """A length that the user gave, in units of the numbers, rounded down to what the type can hold."""
        return distance_units(argument, given, self.kind, self.kind)

    def distance(self, argument: str, given: Distance) -> str:
        """SQL: the same as a difference of numbers; one beyond 64 bits is the largest bigint."""
        units = self.units(argument, given)
        if isinstance(units, float):
            return f"double('{units!r}')"
        if isinstance(self.kind, T.DecimalType):
            return f"{Decimal(units).scaleb(-self.kind.scale):f}BD"  # no wider than it must be: products stay exact
        return f"{min(units, LARGEST)}L"


def _micros(length: str) -> str:
    return f"cast(cast({length} as decimal(19, 6)) * 1000000 as bigint)"
