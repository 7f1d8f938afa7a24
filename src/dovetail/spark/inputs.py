"""Checks and prepares the inputs of a join: columns under the names of the result, compared columns in one type.

Keys with a collation are compared by their collation keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, inf
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.memory import parse_bytes
from dovetail.engine.rows.keys import KeyEncoder
from dovetail.errors import PlanError, UnsupportedError
from dovetail.request import Distance, Key, output_names
from dovetail.spark.frames import (
    RESERVED,
    arrow_type,
    check_names,
    find_column,
    is_connect,
    quoted,
    require_classic,
)

SHARED = f"{RESERVED}shared_"
"""The prefix of right keys that the result shows once, from the left."""
BOUND_TYPES = (
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.TimeType,
)
"""Types of bounds and times: they have an order, and differences."""
FLOATS = (T.FloatType, T.DoubleType)
_WIDTHS = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "float": 4, "date": 4, "decimal": 16}
_TEXT_BYTES = 32  # a value without a fixed width is taken at this
_MOST_FILES = 1_000  # of an input whose plan is recognised again
_MOST_FOOTERS = 64  # of an input whose rows are counted by reading them on the driver
_MICRO = timedelta(microseconds=1)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.TimeType)
UNKNOWN_BYTES = 1 << 50  # what Spark cannot estimate it takes to be larger than this


def check_input(name: str, frame: DataFrame, join: str) -> None:
    """`PlanError` for an input that is a stream, has a column twice, or uses a reserved column name."""
    if frame.isStreaming:
        raise UnsupportedError(
            f"{name} input is a stream; {join} needs finite inputs (use foreachBatch).", argument=name
        )
    check_names(f"{name} input", frame, name)
    ours = [column for column in frame.columns if column.startswith(RESERVED)]
    if ours:
        raise PlanError(
            f"{name} input has columns {ours}; names that begin with {RESERVED!r} are reserved.", argument=name
        )


def common_type(
    frame: DataFrame, what: str, left: T.DataType, right: T.DataType, argument: str | None = None
) -> T.DataType:
    """The type in which Spark compares the two; a `PlanError` where it would compare them as text."""
    if left == right:
        return left
    try:
        probe = F.coalesce(F.lit(None).cast(left), F.lit(None).cast(right))
        common = frame.sparkSession.range(0).select(probe.alias("x")).schema["x"].dataType
    except PySparkException:
        common = T.StringType()
    if isinstance(common, T.StringType) and not all(isinstance(kind, T.StringType) for kind in (left, right)):
        raise PlanError(
            f"{what}: {left.simpleString()} and {right.simpleString()} do not compare; cast one of them first.",
            argument=argument,
        )
    return common


class CommonKey(NamedTuple):
    """An equality key: its column in either input, the type that Spark compares it in, and whether it is shown once."""

    left: str
    right: str
    kind: T.DataType
    shared: bool


def common_keys(left: DataFrame, right: DataFrame, keys: Iterable[Key], argument: str) -> list[CommonKey]:
    """The keys of a request, found in both inputs; a `PlanError` for one that they lack or that does not compare."""
    found = []
    for key in keys:
        one = left.schema[find_column("left", left, key.left, argument)]
        other = right.schema[find_column("right", right, key.right, argument)]
        for side, field in (("left", one), ("right", other)):
            _check_comparable(f"{side} key", field.name, field.dataType, argument)
        check_collations(one, other)
        kind = common_type(left, f"key {key.left!r}", one.dataType, other.dataType, argument)
        found.append(CommonKey(one.name, other.name, kind, key.shared))
    return found


def _check_comparable(what: str, key: str, kind: T.DataType, argument: str) -> None:
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _check_comparable(what, f"{key}.{field.name}", field.dataType, argument)
    elif isinstance(kind, T.ArrayType):
        _check_comparable(what, key, kind.elementType, argument)
    elif isinstance(kind, (T.MapType, T.VariantType, T.CalendarIntervalType)):
        raise PlanError(
            f"{what} {key!r} holds a {kind.simpleString()}, and Spark compares none of these; join on a part of it, or "
            "cast it to text.",
            argument=argument,
        )


def type_with_codes(frame: DataFrame, what: str, kind: T.DataType, argument: str) -> T.DataType:
    """The type that bounds or times of this type are joined in: times of day as seconds since midnight."""
    if not isinstance(kind, T.TimeType):
        return kind
    if str(frame.sparkSession.conf.get("spark.sql.timeType.enabled", "false")).lower() != "true":
        raise PlanError(
            f"{what} have type time, which Spark takes in part only unless spark.sql.timeType.enabled is true; set it, "
            "or cast them to decimal(11, 6), seconds since midnight.",
            argument=argument,
        )
    return T.DecimalType(11, 6)


Wanted = tuple[str, T.DataType, T.DataType]
"""A compared column: its SQL name or path in an input, its type, and the type that it is compared in."""


class NamedInput(NamedTuple):
    """An input with its columns under the names of the result, and the SQL names of what is compared, and of keys."""

    frame: DataFrame
    payload: tuple[str, ...]
    compared: tuple[str, ...]
    keys: tuple[str, ...]


def named_inputs(
    frames: tuple[DataFrame, DataFrame],
    wanted: tuple[list[Wanted], list[Wanted]],
    keys: Sequence[CommonKey],
    suffixes: tuple[str, str],
) -> tuple[NamedInput, NamedInput]:
    """Both inputs under the names of the result. A key that is shown once keeps a name of ours on the right."""
    shared = {key.right for key in keys if key.shared}
    mine, theirs = output_names(frames[0].columns, frames[1].columns, shared, suffixes)
    theirs |= {name: f"{SHARED}{name}" for name in shared}
    found = []
    for number, (frame, out) in enumerate(zip(frames, (mine, theirs), strict=True)):
        columns = [(key.left, key.right)[number] for key in keys]
        own = [(quoted(c), frame.schema[c].dataType, key.kind) for c, key in zip(columns, keys, strict=True)]
        ready, names = _named_columns("lr"[number], frame, out, [*wanted[number], *own])
        payload = tuple(out[name] for name in frame.columns if not out[name].startswith(RESERVED))
        at = len(wanted[number])
        found.append(NamedInput(ready, payload, tuple(names[:at]), tuple(names[at:])))
    return found[0], found[1]


def _named_columns(
    side: str, frame: DataFrame, out: dict[str, str], wanted: Iterable[Wanted]
) -> tuple[DataFrame, list[str]]:
    """The input with its columns under their names in the result, and the SQL names of the compared columns.

    A column of the right type is used as it is. Others are added: cast, or, for collated text, as bytes that are equal
    where the texts are.
    """
    # SQL text, as each Column object would cost PySpark a millisecond or two.
    selected = [f"{quoted(column)} as {quoted(out[column])}" for column in frame.columns]
    columns = {quoted(column): quoted(out[column]) for column in frame.columns}
    names, collated = [], []
    for number, (expression, given, kind) in enumerate(wanted):
        column, alias = columns.get(expression), f"{RESERVED}{side}{number}"
        if column is not None and collation_of(kind) is not None:
            collated.append(collation_key(frame.sparkSession, column).alias(alias))
        elif column is not None and given == kind:
            names.append(column)
            continue
        else:
            selected.append(f"cast({expression} as {kind.simpleString()}) as {alias}")
        names.append(quoted(alias))
    ready = frame.selectExpr(*selected)
    return (ready.select("*", *collated) if collated else ready), names


def only_columns(frame: DataFrame, columns: Iterable[str]) -> DataFrame:
    """The frame with only these of its columns, by name, in its order."""
    wanted = set(columns)
    return frame.select(*(quoted(name) for name in frame.columns if name in wanted))


def spark_only(sides: Iterable[tuple[DataFrame, Sequence[str]]]) -> str | None:
    """The reason why only Spark can join these inputs, if any: a type that Arrow lacks, or keys without codes."""
    for frame, keys in sides:
        for field in frame.schema:
            kind = field.dataType.simpleString()
            try:
                carried = arrow_type(field.dataType)
            except PySparkTypeError:
                return f"columns of type {kind} do not reach tasks in Python"
            if _has_name_twice(field.dataType):
                return f"columns of type {kind}, with one name twice, do not reach tasks in Python"
            if quoted(field.name) not in keys:
                continue
            try:
                KeyEncoder([carried])
            except PlanError:
                return f"keys of type {kind} have no codes"
    return None


def _has_name_twice(kind: T.DataType) -> bool:
    """Whether a struct in a type has two fields of one name."""
    if isinstance(kind, T.StructType):
        return len(set(kind.names)) < len(kind.names) or any(_has_name_twice(field.dataType) for field in kind)
    if isinstance(kind, T.MapType):
        return _has_name_twice(kind.keyType) or _has_name_twice(kind.valueType)
    return isinstance(kind, T.ArrayType) and _has_name_twice(kind.elementType)


def may_collect(frame: DataFrame, rows: float, beside: float = 0) -> bool:
    """Whether the driver may collect this number of rows of the frame, and some bytes beside them."""
    return rows * row_bytes(frame) + beside <= collectable_bytes(frame.sparkSession)


def collectable_bytes(spark: SparkSession) -> float:
    """Bytes that the driver may collect: half of spark.driver.maxResultSize, as tasks send more than rows."""
    given = str(spark.conf.get("spark.driver.maxResultSize", "1g"))
    is_unlimited = not given.rstrip("bBkKmMgGtTpP").strip("0")
    return inf if is_unlimited else parse_bytes(given, "spark.driver.maxResultSize") / 2


def row_bytes(frame: DataFrame) -> int:
    """Bytes of a row in Arrow form, by its types."""
    return sum(_width(field.dataType) for field in frame.schema)


def _width(kind: T.DataType) -> int:
    if isinstance(kind, (T.StringType, T.BinaryType, T.ArrayType, T.MapType, T.StructType, T.VariantType)):
        return _TEXT_BYTES
    return _WIDTHS.get(kind.typeName().split("(", maxsplit=1)[0], 8)


def known_bytes(frame: DataFrame) -> int:
    """Spark's estimate of the size of an input, without a job."""
    if is_connect(frame):
        return UNKNOWN_BYTES
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def rows_at_most(frame: DataFrame) -> int | None:
    """The number of rows that an input has at most, if Spark's cache or a few Parquet footers tell it; no job.

    Filters are not looked at. None for inputs whose rows only a job can count, and over Spark Connect.
    """
    if is_connect(frame):
        return None
    plan = frame._jdf.queryExecution().optimizedPlan()
    while plan.getClass().getSimpleName() in ("Project", "Filter"):
        plan = plan.child()
    if plan.getClass().getSimpleName() == "InMemoryRelation":
        cached = plan.cacheBuilder()
        return int(cached.materializedRowCount()) if cached.isCachedColumnBuffersLoaded() else None
    return _rows_in_footers(plan)


def _rows_in_footers(leaf: Any) -> int | None:
    """The rows of a few Parquet files on this machine, by their footers; None for any other source."""
    files = _files_of(leaf, _MOST_FOOTERS)
    if files is None or leaf.relation().fileFormat().getClass().getSimpleName() != "ParquetFileFormat":
        return None
    places = [files.apply(number).getPath().toUri() for number in range(files.size())]
    if any(place.getScheme() != "file" for place in places):
        return None
    try:
        return int(sum(pq.read_metadata(str(place.getPath())).num_rows for place in places))
    except (OSError, pa.ArrowException):  # gone, encrypted or damaged: Spark says so when it reads them
        return None


def plan_key(frame: DataFrame) -> tuple[int, int, str] | None:
    """Identifies the rows that a DataFrame reads in this session, by its plan, size and files; no job.

    Files are compared by path, length and time of change. None if equal keys could mean other rows: over Spark Connect,
    for random values, and for sources other than files and local rows.
    """
    if is_connect(frame):
        return None
    execution = frame._jdf.queryExecution()
    plan = execution.analyzed()
    size = int(execution.optimizedPlan().stats().sizeInBytes())
    if size >= UNKNOWN_BYTES or not plan.deterministic() or not plan.subqueriesAll().isEmpty():
        return None
    leaves = plan.collectLeaves()
    read = [_source_key(leaves.apply(number)) for number in range(leaves.size())]
    if None in read:
        return None
    return int(frame._jdf.semanticHash()), size, "\n".join(map(str, read))


def _source_key(leaf: Any) -> str | None:
    """Identifies the data that a leaf of a plan reads: its files, or its kind if the plan has the data; else None."""
    kind = str(leaf.getClass().getSimpleName())
    if kind in ("LocalRelation", "Range", "OneRowRelation"):
        return kind
    files = _files_of(leaf, _MOST_FILES)
    return None if files is None else str(files.mkString("\n"))


def _files_of(leaf: Any, most: int) -> Any | None:
    """The files that a leaf of a plan reads, listed when it was planned; None if it reads none, or more than `most`."""
    if leaf.getClass().getSimpleName() != "LogicalRelation":
        return None
    if leaf.relation().getClass().getSimpleName() != "HadoopFsRelation":
        return None
    place = leaf.relation().location()
    if place.getClass().getSimpleName() != "InMemoryFileIndex" or place.allFiles().size() > most:
        return None
    return place.allFiles()


def collation_of(kind: T.DataType) -> str | None:
    """The collation of a text type that does not compare by its bytes; None for every other type."""
    return kind.collation if isinstance(kind, T.StringType) and not kind.isUTF8BinaryCollation() else None


def is_text(kind: T.DataType) -> bool:
    """Whether bounds of this type are compared byte by byte."""
    return isinstance(kind, (T.StringType, T.BinaryType))


def check_texts(what: str, kinds: Sequence[T.DataType], argument: str) -> None:
    """`PlanError` for texts beside bounds of another type, and for collated texts."""
    if len({kind.simpleString() for kind in kinds}) > 1 or any(collation_of(kind) for kind in kinds):
        given = " and ".join(sorted({kind.simpleString() for kind in kinds}))
        raise PlanError(
            f"{what} have type {given}; text bounds must all be string, compared by their bytes, or all binary: cast "
            "them first.",
            argument=argument,
        )


def collation_key(spark: Any, column: str) -> Column:
    """The collation key of a column, by its SQL name: the bytes that Spark's own joins hash and compare."""
    require_classic(
        spark,
        f"a join on the collated key {column}",
        f"join on text that compares by its bytes: F.col({column!r}).cast('string'), or lower of it.",
    )
    # Spark has the expression but no SQL function for it.
    expressions = spark._jvm.org.apache.spark.sql.classic.ExpressionUtils
    text = expressions.expression(F.col(column)._jc)
    return Column(expressions.column(spark._jvm.org.apache.spark.sql.catalyst.expressions.CollationKey(text)))


def check_collations(left: T.StructField, right: T.StructField) -> None:
    """`PlanError` for two text keys of different collations, which Spark does not compare either."""
    kinds = left.dataType, right.dataType
    if collation_of(kinds[0]) == collation_of(kinds[1]) or not all(isinstance(kind, T.StringType) for kind in kinds):
        return
    given = " and ".join(f"{f.name!r} is {f.dataType.simpleString()}" for f in (left, right))
    raise PlanError(
        f"keys of different collations do not compare: {given}; give both one collation, for example "
        f"F.collate({right.name!r}, {collation_of(kinds[0]) or 'UTF8_BINARY'!r}).",
        argument="on",
    )


def refuse_collated(field: T.StructField, what: str) -> None:
    """`PlanError` for a collated key where keys are compared by their bytes."""
    if collation_of(field.dataType) is not None:
        raise PlanError(
            f"{what}: column {field.name!r} is {field.dataType.simpleString()}, and these keys are compared by their "
            f"bytes; use F.col({field.name!r}).cast('string') for equal bytes, or lower of that where letters of both "
            f"cases are to be equal, on both sides.",
            argument=what,
        )


def distance_units(
    argument: str, given: Distance, kind: T.DataType, asked: T.DataType, up: bool = False
) -> int | float:
    """A distance of values of the type `kind`, in units of their codes: days, microseconds, the last digit; a float.

    `asked` is the type of the column as it is. Parts of a unit are rounded down, or up.
    """
    timely = isinstance(asked, _TIMES)
    if isinstance(given, timedelta) and not timely:
        raise PlanError(
            f"{argument}={given!r} is a length of time, but the column has type {asked.simpleString()}; give a number.",
            argument=argument,
        )
    if isinstance(kind, FLOATS):
        try:
            return float(given)  # type: ignore[arg-type]  # a timedelta was refused
        except OverflowError:
            raise PlanError(
                f"{argument}={given!r} is beyond the numbers of a column of type {asked.simpleString()}; give a "
                "smaller one.",
                argument=argument,
            ) from None
    if timely:
        micros = _whole(Fraction(given // _MICRO, 10**6) if isinstance(given, timedelta) else given, 6, up)
        return _whole(Fraction(micros, 86_400_000_000), 0, up) if isinstance(kind, T.DateType) else micros
    return _whole(given, kind.scale if isinstance(kind, T.DecimalType) else 0, up)  # type: ignore[arg-type]  # likewise


def _whole(number: int | float | Decimal | Fraction, digits: int, up: bool) -> int:
    """A number in units of the digit after the decimal point, rounded down, or up; exact whatever its digits."""
    exact: Fraction = Fraction(str(number) if isinstance(number, float) else number) * 10**digits
    return ceil(exact) if up else floor(exact)
