"""Names and finds columns of a DataFrame in SQL text; bounds as numbers."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.request.columns import known_column

RESERVED = "__dt_"
"""The prefix of our own columns."""


def quoted(name: str) -> str:
    """A column name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(identifier: str) -> str:
    """The column name that a SQL identifier stands for."""
    return identifier[1:-1].replace("``", "`")


def find_column(name: str, frame: DataFrame, column: str, argument: str) -> str:
    """The column of an input with this name, in any case; a `PlanError` for `argument` if there is none."""
    same = [each for each in frame.columns if each.lower() == column.lower()]
    if column not in frame.columns and len(same) == 1:
        return same[0]
    return known_column(f"{name} input", column, frame.columns, argument)


def position(kind: T.DataType, bound: str) -> str:
    """SQL: a bound as a double that never falls as the bound grows; equal bounds have equal positions."""
    if isinstance(kind, T.DateType):
        return f"cast(unix_date({bound}) as double)"
    if isinstance(kind, T.TimestampNTZType):
        return f"cast(cast({bound} - timestamp_ntz'1970-01-01 00:00:00' as decimal(30, 6)) as double)"
    if isinstance(kind, T.DayTimeIntervalType):
        return f"cast(cast(cast({bound} as interval day to second) as decimal(30, 6)) as double)"
    return f"cast({bound} as double)"
