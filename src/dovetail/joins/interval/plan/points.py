"""Split points in the type of the bounds: as Spark literals for placing rows, as Arrow values for the tasks.

Inside, a point is a number that stands for the bound exactly: days for dates, microseconds for times and intervals. So
Spark and the tasks never disagree about a time zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.spark.arrow import arrow_type

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INTEGERS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_MICROS = (T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType)


def points_from_positions(kind: T.DataType, positions: npt.NDArray[np.float64]) -> tuple[Any, ...]:
    """Distinct points at about these positions (positions as `Side.position` makes them)."""
    finite = positions[np.isfinite(positions)]
    return tuple(sorted({_at(kind, float(position)) for position in finite}))


def _at(kind: T.DataType, position: float) -> Any:
    if isinstance(kind, _MICROS):
        return int(position * 1e6)
    if isinstance(kind, T.DateType):
        return int(position)
    if isinstance(kind, T.DecimalType):
        return Decimal(repr(position)).quantize(Decimal(1).scaleb(-kind.scale), ROUND_FLOOR)
    bits = _INTEGERS.get(type(kind))
    if bits is None:
        return float(np.float32(position)) if isinstance(kind, T.FloatType) else position
    return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, int(position)))


def points_from_hint(kind: T.DataType, values: Sequence[Any]) -> tuple[Any, ...]:
    """The user's split points, checked against the type of the bounds."""
    return tuple(sorted({_given(kind, value) for value in values}))


def _given(kind: T.DataType, value: Any) -> Any:
    if isinstance(kind, T.DateType) and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH.date()).days
    if isinstance(kind, T.TimestampType) and isinstance(value, dt.datetime):
        return _micros(value.astimezone(dt.UTC) - _EPOCH)  # without a zone: the driver's, as in PySpark
    if isinstance(kind, T.TimestampNTZType) and isinstance(value, dt.datetime) and value.tzinfo is None:
        return _micros(value - _EPOCH.replace(tzinfo=None))
    if isinstance(kind, T.DayTimeIntervalType) and isinstance(value, dt.timedelta):
        return _micros(value)
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if number and isinstance(kind, T.DecimalType):
        return Decimal(value) if isinstance(value, int) else Decimal(str(value))
    if number and isinstance(kind, (T.FloatType, T.DoubleType)):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool) and type(kind) in _INTEGERS:
        return value
    raise PlanError(
        f"split_points: {value!r} is not a value of the bounds' type, {kind.simpleString()}", argument="split_points"
    )


def _micros(span: dt.timedelta) -> int:
    return span // dt.timedelta(microseconds=1)


def as_literal(kind: T.DataType, point: Any) -> Column:
    """The point as a Spark value of the bounds' type."""
    if isinstance(kind, T.DateType):
        return F.expr(f"date_from_unix_date({int(point)})")
    if isinstance(kind, T.TimestampType):
        return F.expr(f"timestamp_micros({int(point)}L)")
    if isinstance(kind, _MICROS):
        seconds = Decimal(int(point)) / 1_000_000
        span = f"make_dt_interval(0, 0, 0, cast('{seconds:f}' as decimal(18, 6)))"
        if isinstance(kind, T.TimestampNTZType):
            return F.expr(f"timestamp_ntz'1970-01-01 00:00:00' + {span}")
        return F.expr(span).cast(kind)
    return F.lit(point).cast(kind)


def as_arrow(kind: T.DataType, points: Sequence[Any]) -> pa.Array:
    """The points as an Arrow array of the type that tasks see the bounds in."""
    arrow = arrow_type(kind)
    if isinstance(kind, _MICROS):
        return pa.array(list(points), pa.int64()).cast(arrow)
    if isinstance(kind, T.DateType):
        return pa.array(list(points), pa.int32()).cast(arrow)
    return pa.array(list(points), arrow)
