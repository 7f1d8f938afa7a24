"""The two inputs of an as-of join, prepared: columns named as in the result, times and keys of one type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import ROUND_FLOOR, Decimal

from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.codes import NARROW_DIGITS
from dovetail.engine.keys import KeyEncoder
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.asof.request import Request, Tolerance
from dovetail.request.columns import output_names, wanted_columns
from dovetail.spark.arrow import arrow_type
from dovetail.spark.collation import check_collations, collation_key, collation_of
from dovetail.spark.columns import RESERVED, find_column, position, quoted, unquoted

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FLOATS = (T.FloatType, T.DoubleType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.TimeType)
_FARTHEST = 2**64 - 1  # no two codes are farther apart
TIME_TYPES = (*_WHOLE, *_FLOATS, T.DecimalType, *_TIMES)


@dataclass(frozen=True, slots=True)
class Side:
    """One input: its columns under their output names, and the SQL names of time, keys and tie order."""

    name: str
    frame: DataFrame
    payload: tuple[str, ...]
    on: str
    keys: tuple[str, ...]
    order: tuple[str, ...]
    kind: T.DataType

    @property
    def usable(self) -> str:
        """SQL: the row can match something: its time is neither null nor NaN, and no key is null."""
        holds = [f"{name} is not null" for name in (self.on, *self.keys)]
        if isinstance(self.kind, _FLOATS):
            holds.append(f"not isnan({self.on})")
        return " and ".join(holds)

    @property
    def key_hash(self) -> str:
        """SQL: one number for equal keys; 0 without keys."""
        return f"xxhash64({', '.join(self.keys)})" if self.keys else "0L"

    @property
    def position(self) -> str:
        """SQL: the time as a double that never falls as time grows."""
        return position(self.kind, self.on)

    def pruned(self, columns: Sequence[str]) -> Side:
        """The side with only the columns that are wanted or joined on."""
        needed = {unquoted(name) for name in (self.on, *self.keys, *self.order)} | set(columns)
        chosen = [name for name in self.frame.columns if name in needed]
        return replace(self, frame=self.frame.select(*map(quoted, chosen)))


def prepare(left: DataFrame, right: DataFrame, request: Request) -> tuple[Side, Side]:
    """Both sides under output names; every column that the request names is checked here, and no job starts."""
    for name, frame in (("left", left), ("right", right)):
        _check_input(name, frame)
    on = find_column("left", left, request.on.left, "on"), find_column("right", right, request.on.right, "on")
    kind = _common_type(left, "on", left.schema[on[0]].dataType, right.schema[on[1]].dataType)
    kind = _checked_time(left, kind)
    keys = [(find_column("left", left, k.left, "by"), find_column("right", right, k.right, "by")) for k in request.keys]
    kinds = [_key_type(left, right, *pair) for pair in keys]
    order = [find_column("right", right, name, "ties") for name in request.tie_order]
    for name in order:
        _check_orderable(name, right.schema[name].dataType)
    shared = {pair[1] for key, pair in zip(request.keys, keys, strict=True) if key.shared}
    names = output_names(left.columns, right.columns, shared, request.suffixes)
    hidden = {name: f"{RESERVED}shared_{name}" for name in right.columns if name in shared}
    mine = _side("left", left, names[0], on[0], kind, [pair[0] for pair in keys], kinds, [])
    theirs = _side("right", right, names[1] | hidden, on[1], kind, [pair[1] for pair in keys], kinds, order)
    wanted_columns(request.columns, (*mine.payload, *theirs.payload))
    return mine, theirs


def _side(
    name: str,
    frame: DataFrame,
    out: dict[str, str],
    on: str,
    kind: T.DataType,
    keys: list[str],
    kinds: list[T.DataType],
    order: list[str],
) -> Side:
    selected = [f"{quoted(column)} as {quoted(out[column])}" for column in frame.columns]
    names, collated = [], []
    wanted = [
        (on, kind),
        *zip(keys, kinds, strict=True),
        *((column, frame.schema[column].dataType) for column in order),
    ]
    for number, (column, wants) in enumerate(wanted):
        alias = f"{RESERVED}{name[0]}{number}"
        if collation_of(wants) is not None:  # equal text may differ in its bytes, these do not
            collated.append(collation_key(frame.sparkSession, quoted(out[column])).alias(alias))
            names.append(quoted(alias))
        elif frame.schema[column].dataType == wants:
            names.append(quoted(out[column]))
        else:
            selected.append(f"cast({quoted(column)} as {wants.simpleString()}) as {alias}")
            names.append(quoted(alias))
    ready = frame.selectExpr(*selected)
    if collated:
        ready = ready.select("*", *collated)
    payload = tuple(out[column] for column in frame.columns if not out[column].startswith(RESERVED))
    last = 1 + len(keys)
    return Side(name, ready, payload, names[0], tuple(names[1:last]), tuple(names[last:]), kind)


def _check_input(name: str, frame: DataFrame) -> None:
    if frame.isStreaming:
        raise UnsupportedError(
            f"{name} input is a stream; an as-of join needs finite inputs (use foreachBatch).", argument=name
        )
    twice = sorted(column for column, count in Counter(frame.columns).items() if count > 1)
    if twice:
        raise PlanError(f"{name} input has columns {twice} more than once; rename them first.", argument=name)
    ours = [column for column in frame.columns if column.startswith(RESERVED)]
    if ours:
        raise PlanError(
            f"{name} input has columns {ours}; names that begin with {RESERVED!r} are reserved.", argument=name
        )


def _common_type(frame: DataFrame, argument: str, left: T.DataType, right: T.DataType) -> T.DataType:
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
            f"{argument}: {left.simpleString()} and {right.simpleString()} do not compare; cast one of them first.",
            argument=argument,
        )
    return common


def _checked_time(frame: DataFrame, kind: T.DataType) -> T.DataType:
    if not isinstance(kind, TIME_TYPES):
        raise PlanError(
            f"on: a column of type {kind.simpleString()} has no before and after here; use a number, decimal, date, "
            "timestamp, time or day-time interval, or cast it.",
            argument="on",
        )
    if isinstance(kind, T.TimeType):
        if str(frame.sparkSession.conf.get("spark.sql.timeType.enabled", "false")).lower() != "true":
            raise PlanError(
                "on: Spark takes the type time in part only unless spark.sql.timeType.enabled is true; set it, or cast "
                "the columns to decimal(11, 6), seconds since midnight.",
                argument="on",
            )
        return T.DecimalType(11, 6)  # seconds since midnight
    return kind


def _key_type(left: DataFrame, right: DataFrame, mine: str, theirs: str) -> T.DataType:
    one, other = left.schema[mine], right.schema[theirs]
    for field in (one, other):
        _check_comparable(field.name, field.dataType)
    check_collations(one, other)
    return _common_type(left, "by", one.dataType, other.dataType)


def _check_comparable(key: str, kind: T.DataType) -> None:
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _check_comparable(f"{key}.{field.name}", field.dataType)
    elif isinstance(kind, T.ArrayType):
        _check_comparable(key, kind.elementType)
    elif isinstance(kind, (T.MapType, T.VariantType, T.CalendarIntervalType)):
        raise PlanError(
            f"by: {key!r} holds a {kind.simpleString()}, and Spark compares none of these; join on a part of it, or "
            "cast it to text.",
            argument="by",
        )


def _check_orderable(name: str, kind: T.DataType) -> None:
    if not isinstance(kind, (*TIME_TYPES, T.StringType, T.BinaryType, T.BooleanType)):
        raise PlanError(
            f"ties: column {name!r} of type {kind.simpleString()} does not order rows; use a number, time, text, "
            "binary or boolean column.",
            argument="ties",
        )


def spark_only(left: Side, right: Side) -> str | None:
    """Why only Spark can join these rows, if it is so: types that tasks do not see, or that have no codes."""
    if isinstance(left.kind, T.DecimalType) and left.kind.precision > NARROW_DIGITS:
        return f"times of type {left.kind.simpleString()} have no 64-bit codes"
    for side in (left, right):
        for field in side.frame.schema:
            kind = field.dataType.simpleString()
            try:
                carried = arrow_type(field.dataType)
            except PySparkTypeError:
                return f"columns of type {kind} do not reach tasks in Python"
            if quoted(field.name) not in side.keys:
                continue
            try:
                KeyEncoder([carried])
            except PlanError:
                return f"keys of type {kind} have no codes"
    return None


def tolerance_units(tolerance: Tolerance | None, kind: T.DataType, asked: T.DataType) -> int | float | None:
    """The tolerance in units of the codes of this type: days, microseconds, the last digit; a float for floats."""
    if tolerance is None:
        return None
    timely = isinstance(asked, _TIMES)
    if isinstance(tolerance, timedelta) and not timely:
        raise PlanError(
            f"tolerance={tolerance!r} is a length of time, but on has type {asked.simpleString()}; give a number.",
            argument="tolerance",
        )
    if isinstance(kind, _FLOATS):
        return float(tolerance)  # type: ignore[arg-type]  # a timedelta was refused
    if timely:
        micros = tolerance // timedelta(microseconds=1) if isinstance(tolerance, timedelta) else _floor(tolerance, 6)
        return min(_FARTHEST, micros // 86_400_000_000 if isinstance(kind, T.DateType) else micros)
    return min(_FARTHEST, _floor(tolerance, kind.scale if isinstance(kind, T.DecimalType) else 0))  # type: ignore[arg-type]  # likewise


def _floor(number: int | float | Decimal, digits: int) -> int:
    """A number in units of the digit after the decimal point, rounded down."""
    exact = Decimal(str(number)) if isinstance(number, float) else Decimal(number)
    return int(exact.scaleb(digits).to_integral_value(ROUND_FLOOR))
