"""The two inputs of an as-of join, prepared: columns named as in the result, times and keys of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import ROUND_FLOOR, Decimal

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.keys import NARROW_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.asof.request import Request, Tolerance
from dovetail.request import output_names, wanted_columns
from dovetail.spark import inputs
from dovetail.spark.frames import RESERVED, find_column, position, quoted, unquoted

_FLOATS = (T.FloatType, T.DoubleType)
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.TimeType)
_FARTHEST = 2**64 - 1  # no two codes are farther apart


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
        inputs.check_input(name, frame, "an as-of join")
    on = find_column("left", left, request.on.left, "on"), find_column("right", right, request.on.right, "on")
    kind = _time_type(left, left.schema[on[0]].dataType, right.schema[on[1]].dataType)
    keys = [(find_column("left", left, k.left, "by"), find_column("right", right, k.right, "by")) for k in request.keys]
    kinds = [inputs.key_type(left, right, pair, ("by:", "by:", "by"), "by") for pair in keys]
    order = [find_column("right", right, name, "ties") for name in request.tie_order]
    for name in order:
        _check_orderable(name, right.schema[name].dataType)
    shared = {pair[1] for key, pair in zip(request.keys, keys, strict=True) if key.shared}
    mine, theirs = output_names(left.columns, right.columns, shared, request.suffixes)
    theirs |= {name: f"{RESERVED}shared_{name}" for name in right.columns if name in shared}
    typed = list(zip(kinds, keys, strict=True))
    first = _side("left", left, mine, [(on[0], kind), *((pair[0], to) for to, pair in typed)], [])
    second = _side("right", right, theirs, [(on[1], kind), *((pair[1], to) for to, pair in typed)], order)
    wanted_columns(request.columns, (*first.payload, *second.payload))
    return first, second


def _side(
    name: str, frame: DataFrame, out: dict[str, str], compared: list[tuple[str, T.DataType]], order: list[str]
) -> Side:
    """A side whose time and keys are compared in these types."""
    wanted = [*compared, *((column, frame.schema[column].dataType) for column in order)]
    typed = ((quoted(column), frame.schema[column].dataType, kind) for column, kind in wanted)
    ready, names = inputs.named_columns(name, frame, out, typed)
    payload = tuple(out[column] for column in frame.columns if not out[column].startswith(RESERVED))
    last = len(compared)
    return Side(name, ready, payload, names[0], tuple(names[1:last]), tuple(names[last:]), compared[0][1])


def _time_type(frame: DataFrame, left: T.DataType, right: T.DataType) -> T.DataType:
    kind = inputs.common_type(frame, "on", left, right, "on")
    if not isinstance(kind, inputs.BOUND_TYPES):
        raise PlanError(
            f"on: a column of type {kind.simpleString()} has no before and after here; use a number, decimal, date, "
            "timestamp, time or day-time interval, or cast it.",
            argument="on",
        )
    return inputs.type_with_codes(frame, "on: the columns", kind, "on")


def _check_orderable(name: str, kind: T.DataType) -> None:
    if not isinstance(kind, (*inputs.BOUND_TYPES, T.StringType, T.BinaryType, T.BooleanType)):
        raise PlanError(
            f"ties: column {name!r} of type {kind.simpleString()} does not order rows; use a number, time, text, "
            "binary or boolean column.",
            argument="ties",
        )


def spark_only(left: Side, right: Side) -> str | None:
    """Why only Spark can join these rows, if it is so: types that tasks do not see, or that have no codes."""
    if isinstance(left.kind, T.DecimalType) and left.kind.precision > NARROW_DIGITS:
        return f"times of type {left.kind.simpleString()} have no 64-bit codes"
    return inputs.spark_only((side.frame, side.keys) for side in (left, right))


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
