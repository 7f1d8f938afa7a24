"""Reads DataFrames of classic sessions and of Spark Connect alike, and maps functions over their Arrow batches.

Questions to both kinds of sessions, `map_in_arrow` for any column names, and columns in SQL text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import to_arrow_type

from dovetail.errors import PlanError, UnsupportedError
from dovetail.request import column_in_any_case, known_column
from dovetail.spark.task_errors import translate_task_errors


def is_connect(thing: Any) -> bool:
    """True for a session, DataFrame or column of Spark Connect; needs no Connect package to be installed."""
    return any(cls.__module__.startswith("pyspark.sql.connect.") for cls in type(thing).__mro__)


def require_classic(thing: Any, what: str, instead: str) -> None:
    """Raises UnsupportedError on Spark Connect, saying what does not work there and what to use instead."""
    if is_connect(thing):
        raise UnsupportedError(f"{what} does not work over Spark Connect; {instead}")


def parallelism(spark: Any) -> int:
    """How many tasks the session runs at once; a guess over Spark Connect."""
    return 8 if is_connect(spark) else max(2, int(spark.sparkContext.defaultParallelism))


def plan_text(frame: Any) -> str:
    """The plan of a DataFrame as Spark prints it."""
    if is_connect(frame):
        return str(frame._explain_string(extended=True))
    return str(frame._jdf.queryExecution().analyzed().toString())


def has_subqueries(frame: Any) -> bool:
    """Whether a DataFrame has subqueries, if each of its steps has one input: they are branches of its plan."""
    return any(line.startswith(":") for line in plan_text(frame).splitlines())


def observation(frame: Any, name: str) -> Any:
    """The argument of `frame.observe` with which `observed` finds its metrics by this name."""
    if not is_connect(frame):
        return name
    from pyspark.sql.connect.observation import Observation

    return Observation(name)


def observed(frame: Any, observation: Any) -> dict[str, Any]:
    """The metrics that a run of the frame observed; none if Spark left that part of its plan out."""
    if not isinstance(observation, str):
        return dict(observation.get)
    found = frame._jdf.queryExecution().observedMetrics().get(observation)
    if not found.isDefined():
        return {}
    row = found.get()
    return {name: row.get(number) for number, name in enumerate(row.schema().fieldNames())}


_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def read_small(frame: DataFrame) -> pa.Table:
    """`frame.toArrow()` for a few rows: Spark interprets the plan, since compiling it would take longer than its run.

    The plan runs in a copy of the session, so that no setting of the user's session changes.
    """
    if is_connect(frame):
        return frame.toArrow()
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame  # not there without a JVM

    spark: Any = frame.sparkSession
    copy = spark._jsparkSession.cloneSession()
    for key, value in _INTERPRETED.items():
        copy.conf().set(key, value)
    interpreted = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(copy, frame._jdf.logicalPlan())
    return ClassicFrame(interpreted, spark).toArrow()


Batches = Iterator[pa.RecordBatch]
_PLAIN = re.compile(r"\w+", re.ASCII)


def map_in_arrow(frame: DataFrame, function: Callable[[Batches], Batches], schema: T.StructType) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, also for column names that PySpark would read as paths or quotes.

    A `DovetailError` of the function is raised by the action as that error.
    """
    from dovetail.spark.catalyst import size_batches  # which asks this module what kind of session it has

    translate_task_errors()
    size_batches(frame.sparkSession)
    names, out = frame.columns, schema.names
    if all(_PLAIN.fullmatch(name) for name in names):
        return frame.mapInArrow(function, schema)
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return plain.mapInArrow(partial(_renamed, function, names), schema).toDF(*out)


def _renamed(function: Callable[[Batches], Batches], names: list[str], batches: Batches) -> Batches:
    return function(batch.rename_columns(names) for batch in batches)


def arrow_type(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a Spark type in tasks; the zone UTC of timestamps changes no value."""
    return to_arrow_type(kind, timezone="UTC")


RESERVED = "__dt_"
"""The prefix of our own columns."""
WATERMARK = "spark.watermarkDelayMs"
"""The metadata of a column with a watermark, in which Spark keeps its delay."""


def quoted(name: str) -> str:
    """A column name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def column_of(name: str) -> Column:
    """The column of this exact name, with any characters."""
    return F.col(quoted(name))


def unquoted(identifier: str) -> str:
    """The column name that a SQL identifier stands for."""
    return identifier[1:-1].replace("``", "`")


def find_column(name: str, frame: DataFrame, column: str, argument: str) -> str:
    """The column of an input with this name; a `PlanError` for `argument` if there is none.

    The case of letters counts where spark.sql.caseSensitive is true.
    """
    if column not in frame.columns and case_counts(frame):
        return known_column(f"{name} input", column, frame.columns, argument)
    return column_in_any_case(f"{name} input", column, frame.columns, argument)


def same_column(frame: DataFrame, column: str, names: Sequence[str] | None = None) -> str:
    """The one of these names, by default those of the frame, that Spark takes for this one; else the name as it is."""
    among = frame.columns if names is None else names
    if column in among or not isinstance(column, str) or case_counts(frame):
        return column
    same = [each for each in among if each.lower() == column.lower()]
    return same[0] if len(same) == 1 else column


def check_names(what: str, frame: DataFrame, argument: str | None = None) -> None:
    """`PlanError` for columns that Spark cannot tell apart: of one name, or of names that differ in case alone."""
    by_name: dict[str, list[str]] = {}
    for column in frame.columns:
        by_name.setdefault(column.lower(), []).append(column)
    alike = [names for names in by_name.values() if len(names) > 1]
    exact = sorted({name for names in alike for name in names if names.count(name) > 1})
    if exact:
        raise PlanError(f"{what} has columns {exact} more than once; rename them first.", argument=argument)
    if alike and not case_counts(frame):
        raise PlanError(
            f"{what} has columns {alike[0]}, whose names differ in case alone, and Spark does not tell them apart; "
            "rename one, or set spark.sql.caseSensitive.",
            argument=argument,
        )


def case_counts(frame: DataFrame) -> bool:
    """Whether names that differ in case alone are different columns for this session."""
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def position(kind: T.DataType, bound: str) -> str:
    """SQL: a bound as a monotonic double; equal bounds have equal positions."""
    if isinstance(kind, T.DateType):
        return f"cast(unix_date({bound}) as double)"
    if isinstance(kind, T.TimestampNTZType):
        return f"cast(cast({bound} - timestamp_ntz'1970-01-01 00:00:00' as decimal(30, 6)) as double)"
    if isinstance(kind, T.DayTimeIntervalType):
        return f"cast(cast(cast({bound} as interval day to second) as decimal(30, 6)) as double)"
    return f"cast({bound} as double)"


def units(kind: T.DataType, bound: str) -> str:
    """SQL: a bound as a bigint in units of its code (days, microseconds, the last digit), or as a double for floats."""
    if isinstance(kind, T.DateType):
        return f"cast(unix_date({bound}) as bigint)"
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({bound})"
    if isinstance(kind, (T.TimestampNTZType, T.DayTimeIntervalType)):
        since = f"{bound} - timestamp_ntz'1970-01-01 00:00:00'" if isinstance(kind, T.TimestampNTZType) else bound
        seconds = f"cast(cast({since} as interval day to second) as decimal(24, 6))"
        return f"cast({seconds} * cast(1000000 as decimal(7, 0)) as bigint)"
    if isinstance(kind, T.DecimalType):
        return f"cast({bound} * cast('1{'0' * kind.scale}' as decimal({kind.scale + 1}, 0)) as bigint)"
    return f"cast({bound} as {'bigint' if isinstance(kind, T.IntegralType) else 'double'})"


def length(asked: T.DataType, kind: T.DataType, number: str) -> str:
    """SQL: a number of such units as a length: days, a day-time interval, a decimal, or the number itself.

    `asked` is the type of the column as it is: times of day are compared as decimals.
    """
    if isinstance(kind, T.DateType):
        return f"cast({number} as int)"
    if isinstance(asked, T.TimeType) or isinstance(kind, (T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType)):
        return f"cast({number} * interval '0.000001' second as interval day to second)"
    if isinstance(kind, T.DecimalType):
        digit = f"cast('1E-{kind.scale}' as decimal({max(1, kind.scale)}, {kind.scale}))"
        return f"cast(cast({number} as decimal(19, 0)) * {digit} as decimal({kind.precision + 1}, {kind.scale}))"
    return number
