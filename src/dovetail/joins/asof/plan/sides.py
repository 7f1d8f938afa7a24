"""Prepares the two inputs of an as-of join: columns named as in the result, times and keys of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.rows.keys import MOST_DIGITS, NARROW_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.asof.request import Request
from dovetail.request import wanted_columns
from dovetail.spark.frames import find_column, position, quoted, unquoted
from dovetail.spark.inputs import (
    BOUND_TYPES,
    FLOATS,
    Wanted,
    check_input,
    check_texts,
    common_keys,
    common_type,
    is_text,
    named_inputs,
    only_columns,
    spark_only,
    type_with_codes,
)


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
        if isinstance(self.kind, FLOATS):
            holds.append(f"not isnan({self.on})")
        return " and ".join(holds)

    @property
    def key_hash(self) -> str:
        """SQL: one number for equal keys; 0 without keys."""
        return f"xxhash64({', '.join(self.keys)})" if self.keys else "0L"

    @property
    def position(self) -> str:
        """SQL: the time as a monotonic double."""
        return position(self.kind, self.on)

    def pruned(self, columns: Sequence[str]) -> Side:
        """The side with only the output columns and those joined on."""
        needed = [*map(unquoted, (self.on, *self.keys, *self.order)), *columns]
        return replace(self, frame=only_columns(self.frame, needed))


def prepare(left: DataFrame, right: DataFrame, request: Request) -> tuple[Side, Side]:
    """Both sides under output names; every column that the request names is checked here, and no job starts."""
    for name, frame in (("left", left), ("right", right)):
        check_input(name, frame, "an as-of join")
    on = find_column("left", left, request.on.left, "on"), find_column("right", right, request.on.right, "on")
    kind = _time_type(left, left.schema[on[0]].dataType, right.schema[on[1]].dataType)
    keys = common_keys(left, right, request.keys, "by")
    order = [right.schema[find_column("right", right, name, "ties")] for name in request.tie_order]
    for field in order:
        _check_orderable(field.name, field.dataType)
    mine: list[Wanted] = [(quoted(on[0]), left.schema[on[0]].dataType, kind)]
    theirs: list[Wanted] = [(quoted(on[1]), right.schema[on[1]].dataType, kind)]
    theirs += [(quoted(field.name), field.dataType, field.dataType) for field in order]
    first, second = (
        Side(name, named.frame, named.payload, named.compared[0], named.keys, named.compared[1:], kind)
        for name, named in zip(
            ("left", "right"), named_inputs((left, right), (mine, theirs), keys, request.suffixes), strict=True
        )
    )
    wanted_columns(request.columns, (*first.payload, *second.payload))
    if is_text(kind) and (request.tolerance is not None or request.direction == "nearest"):
        argument = "direction" if request.direction == "nearest" else "tolerance"
        raise PlanError(f"{argument}: texts have an order but no distances; leave it out.", argument=argument)
    _check_distances(kind, request)
    return first, second


def _check_distances(kind: T.DataType, request: Request) -> None:
    """PlanError if distances are asked for that Spark rounds."""
    is_widest = isinstance(kind, T.DecimalType) and kind.precision == MOST_DIGITS
    if is_widest and (request.tolerance is not None or request.direction == "nearest"):
        argument = "direction" if request.direction == "nearest" else "tolerance"
        raise PlanError(
            f"{argument}: Spark has no exact difference of times of type {kind.simpleString()}; cast them to at most "
            f"{MOST_DIGITS - 1} digits.",
            argument=argument,
        )


def _time_type(frame: DataFrame, left: T.DataType, right: T.DataType) -> T.DataType:
    if is_text(left) != is_text(right):
        shown = f"{left.simpleString()} and {right.simpleString()}"
        raise PlanError(f"on: {shown} do not compare; cast one of them first.", argument="on")
    kind = common_type(frame, "on", left, right, "on")
    if is_text(left) and is_text(right):
        check_texts("on: the columns", [left, right], "on")
        return kind
    if not isinstance(kind, BOUND_TYPES):
        raise PlanError(
            f"on: a column of type {kind.simpleString()} has no before and after here; use a number, decimal, date, "
            "timestamp, time, day-time interval or text, or cast it.",
            argument="on",
        )
    return type_with_codes(frame, "on: the columns", kind, "on")


def _check_orderable(name: str, kind: T.DataType) -> None:
    if not isinstance(kind, (*BOUND_TYPES, T.StringType, T.BinaryType, T.BooleanType)):
        raise PlanError(
            f"ties: column {name!r} of type {kind.simpleString()} does not order rows; use a number, time, text, "
            "binary or boolean column.",
            argument="ties",
        )


def index_obstacle(left: Side, right: Side) -> str | None:
    """The reason why only Spark can join these rows, if any: types that tasks do not support, or that have no codes."""
    if is_text(left.kind):
        return "texts have no 64-bit codes"
    if isinstance(left.kind, T.DecimalType) and left.kind.precision > NARROW_DIGITS:
        return f"times of type {left.kind.simpleString()} have no 64-bit codes"
    return spark_only((side.frame, side.keys) for side in (left, right))
