"""Prepares the two inputs of an interval join: columns named as in the result, bounds and keys of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.rows.keys import MOST_DIGITS, NARROW_DIGITS
from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.request import Request
from dovetail.request import Closed, wanted_columns
from dovetail.spark.frames import RESERVED, find_column, length, position, quoted, units, unquoted
from dovetail.spark.inputs import (
    BOUND_TYPES,
    FLOATS,
    SHARED,
    check_input,
    common_keys,
    common_type,
    named_inputs,
    only_columns,
    type_with_codes,
)
from dovetail.spark.task import MetricsSink
from dovetail.spark.task_errors import MARK

TEXT_TOO = " (text bounds are for interval_join, interval_count, count_overlaps and band_join, all four of one type)"
OVERLAP = ("overlap_start", "overlap_end", "overlap_length")
_TOO_LONG = (
    f"{MARK}DataError: with_overlap: an overlap is longer than 2^63 - 1 units of its bounds, too long for "
    "overlap_length; shorten the intervals, or leave out with_overlap."
)


@dataclass(frozen=True, slots=True)
class Side:
    """One input: payload columns under their output names, and the SQL names of bounds, keys and flags."""

    name: str
    frame: DataFrame
    payload: tuple[str, ...]
    start: str
    end: str
    keys: tuple[str, ...]
    bound_type: T.DataType
    closed: Closed
    kept: bool  # rows without a match appear in the result
    given: tuple[str, ...]  # the input's own column names, in the order of the first columns of `frame`
    source: DataFrame  # the input itself
    named: tuple[str, ...]  # the input's columns that bound and key a row
    exchanged: bool = False  # it is the other input of the request, whose sides were exchanged
    mark: str = ""  # part of the names of our own columns; unique to the plan
    written: tuple[str, ...] = ()  # the SQL names of start and end before a gap widened them
    written_type: T.DataType | None = None  # the type that they are compared in

    @property
    def shown(self) -> str:
        """Which input of the request this is, for people: left or right."""
        return self.name if not self.exchanged else "left" if self.name == "right" else "right"

    def own(self, what: str) -> str:
        """The name of a column that we add to this side, unique to the plan."""
        return f"{RESERVED}{self.name[0]}{self.mark}_{what}"

    @property
    def inverted(self) -> str:
        """SQL: the bounds are in the wrong order, or one is not a number."""
        return f"if({self._broken}, true, false)"  # false where a bound is null

    @property
    def _broken(self) -> str:
        """SQL: the interval is inverted; null where a bound is null."""
        broken = f"{self.start} > {self.end}"
        if isinstance(self.bound_type, FLOATS):  # a NaN beside a null is a null interval
            both = f"{self.start} is not null and {self.end} is not null"
            broken = f"({broken} or ({both} and (isnan({self.start}) or isnan({self.end}))))"
        return broken

    @property
    def usable(self) -> str:
        """SQL: the row can match something: bounds and keys are not null, in order, and the interval is not empty."""
        return f"if({self.matches}, true, false)"  # false where a bound is null

    @property
    def matches(self) -> str:
        """SQL: the row is usable; null where a bound is null, which counts as false in a filter or a join.

        Spark turns `if(x, true, false)` in a join into an equality of x with true, and then hashes it with the keys.
        """
        # In order and not empty at once; plain, because Spark plans it several times in every join.
        holds = f"{self.start} {'<=' if self.closed == 'both' else '<'} {self.end}"
        if isinstance(self.bound_type, FLOATS):
            holds += f" and not isnan({self.end}) and not isnan({self.start})"
        keys = "".join(f" and {key} is not null" for key in self.keys)
        return f"({holds}{keys})"

    @property
    def packs_keys(self) -> bool:
        """Whether keys that are equal have equal hashes, so that they and a cell number fit into one number."""
        plain = (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BooleanType, T.BinaryType)
        kinds = [self.frame.schema[unquoted(key)].dataType for key in self.keys]
        return bool(kinds) and all(isinstance(kind, plain) or kind == T.StringType() for kind in kinds)

    def position(self, bound: str) -> str:
        """SQL: a bound as a double that grows with it, for bins; equal bounds have equal positions."""
        return position(self.bound_type, bound)

    def measure(self, bound: str) -> str:
        """SQL: a bound as a number whose differences are lengths: exact, but for floats, which are doubles."""
        if isinstance(self.bound_type, T.DateType):
            return f"unix_date({bound})"
        if isinstance(self.bound_type, T.TimestampType):
            return f"unix_micros({bound})"
        if isinstance(self.bound_type, T.TimestampNTZType):
            return f"cast({bound} - timestamp_ntz'1970-01-01 00:00:00' as decimal(30, 6))"
        if isinstance(self.bound_type, T.DayTimeIntervalType):
            return f"cast(cast({bound} as interval day to second) as decimal(30, 6))"
        if isinstance(self.bound_type, T.IntegralType):
            return f"cast({bound} as decimal(20, 0))"  # differences of longs need not be longs
        return bound if isinstance(self.bound_type, T.DecimalType) else f"cast({bound} as double)"

    def checked(self, invalid: str) -> Side:
        """This side with `invalid` applied, and rows that can neither match nor appear left out."""
        conditions = []
        if invalid == "drop":
            conditions.append(f"not {self.inverted}")
        if not self.kept:
            conditions.append(self.matches)
        whole = " and ".join(conditions) or "true"
        if invalid == "error":  # planning found none; this check is for rows added since
            whole = f"if({self._broken}, raise_error('{late_error(self.shown)}'), {whole})"
        return self if whole == "true" else replace(self, frame=self.frame.where(whole))

    def pruned(self, columns: Sequence[str]) -> Side:
        """The side with only the output columns and those joined on."""
        ours = (name for name in self.frame.columns if name.startswith(RESERVED))
        needed = [*map(unquoted, (self.start, self.end, *self.written, *self.keys)), *ours, *columns]
        return replace(self, frame=only_columns(self.frame, needed))


@dataclass(frozen=True)
class Sides:
    """Both sides of a request, and the sink for metrics of tasks."""

    request: Request
    left: Side
    right: Side

    @cached_property
    def sink(self) -> MetricsSink:
        """The sink for metrics of Python tasks."""
        return MetricsSink(self.left.frame.sparkSession)

    def checked(self) -> tuple[Side, Side]:
        """Both sides with `invalid` applied, and without rows that can neither match nor appear."""
        return self.left.checked(self.request.invalid), self.right.checked(self.request.invalid)


def prepare(left: DataFrame, right: DataFrame, request: Request) -> tuple[Side, Side]:
    """Both sides under output names; every column that the request names is checked here."""
    for name, frame in (("left", left), ("right", right)):
        check_input(name, frame, "an interval join")
    intervals = (
        find_bounds("left", left, request.left_interval, "left_interval"),
        find_bounds("right", right, request.right_interval, "right_interval"),
    )
    kind = _bound_type(left, None, "interval bounds", intervals[0][0], intervals[1][0])
    kind = type_with_codes(left, "interval bounds", kind, "left_interval")
    keys = common_keys(left, right, request.keys, "on")
    one, other = ([(bound, given, kind) for bound, given in bounds] for _, *bounds in intervals)
    suffixes = ("", request.suffixes[1]) if request.left_only else request.suffixes
    relation, mark, sides = request.relation, uuid4().hex[:8], []
    for number, named in enumerate(named_inputs((left, right), (one, other), keys, suffixes)):
        source = (left, right)[number]
        asked = (*(bound for bound, _ in intervals[number][1:]), *((key.left, key.right)[number] for key in keys))
        side = Side(
            ("left", "right")[number],
            named.frame,
            named.payload,
            named.compared[0],
            named.compared[1],
            named.keys,
            kind,
            (relation.left_closed, relation.right_closed)[number],
            (request.keeps_left, request.keeps_right)[number],
            tuple(source.columns),
            source,
            asked,
            mark=mark,
        )
        sides.append(side)
    return sides[0], sides[1]


Bound = tuple[str, T.DataType]
"""The SQL name of a bound, and its type as it is."""


def find_bounds(
    name: str, frame: DataFrame, interval: tuple[str, ...], argument: str
) -> tuple[T.DataType, Bound, Bound]:
    """The type of an input's bounds, and the SQL name and own type of each."""
    start, end = bound_columns(name, frame, interval, argument)
    return _bound_type(frame, argument, f"{name} interval", start[1], end[1]), start, end


def bound_columns(name: str, frame: DataFrame, interval: tuple[str, ...], argument: str) -> tuple[Bound, Bound]:
    """The bounds of an input: two columns, or the fields of a struct; of any type."""
    if len(interval) == 2:
        start, end = (find_column(name, frame, column, argument) for column in interval)
        return (quoted(start), frame.schema[start].dataType), (quoted(end), frame.schema[end].dataType)
    column = find_column(name, frame, interval[0], argument)
    struct = frame.schema[column].dataType
    if not isinstance(struct, T.StructType) or len(struct.fields) != 2:
        raise PlanError(
            f"{argument}={column!r} has type {struct.simpleString()}; name two columns or a struct of two fields.",
            argument=argument,
        )
    first, last = ((f"{quoted(column)}.{quoted(field.name)}", field.dataType) for field in struct.fields)
    return first, last


def _bound_type(frame: DataFrame, argument: str | None, what: str, left: T.DataType, right: T.DataType) -> T.DataType:
    for kind in (left, right):
        if not isinstance(kind, BOUND_TYPES):
            raise PlanError(
                f"{what}: a bound has type {kind.simpleString()}; it must be a number, decimal, date, timestamp, time "
                f"or day-time interval{TEXT_TOO if isinstance(kind, T.StringType) else ''}; cast it first.",
                argument=argument,
            )
    return common_type(frame, what, left, right, argument)


def output_columns(left: Side, right: Side, request: Request) -> tuple[str, ...]:
    """The columns of the answer, in order; a `PlanError` for a name that it does not have."""
    every = left.payload if request.left_only else (*left.payload, *right.payload)
    if request.with_overlap:
        twice = [name for name in every if name.lower() in OVERLAP]
        if twice:
            raise PlanError(
                f"with_overlap=True adds {', '.join(OVERLAP)}; rename {twice} first.", argument="with_overlap"
            )
        every = (*every, *OVERLAP)
    return wanted_columns(request.columns, every)


def project(frame: DataFrame, left: Side, right: Side, request: Request) -> DataFrame:
    """The frame with just the columns of the answer; a shared key takes the value of the side that has one."""
    shared = {name.removeprefix(SHARED).lower(): name for name in right.frame.columns if name.startswith(SHARED)}

    overlap = overlap_columns(left, right, request) if request.with_overlap else {}

    def column(name: str) -> str:
        if name in overlap:
            return f"{overlap[name]} as {name}"
        if name.lower() in shared and request.how in ("right", "full"):
            values = [quoted(name), quoted(shared[name.lower()])]
            first, second = values if request.how == "full" else values[::-1]  # equal keys may have different values
            return f"coalesce({first}, {second}) as {quoted(name)}"
        return quoted(name)

    return frame.selectExpr(*map(column, output_columns(left, right, request)))


def is_wide_decimal(kind: T.DataType) -> TypeGuard[T.DecimalType]:
    """Whether values are decimals that do not fit into 64 bits."""
    return isinstance(kind, T.DecimalType) and kind.precision > NARROW_DIGITS


def asked_type(frame: DataFrame, interval: tuple[str, ...]) -> T.DataType:
    """The type of the start of an input, as it is."""
    kind = frame.schema[find_column("left", frame, interval[0], "left_interval")].dataType
    return kind.fields[0].dataType if isinstance(kind, T.StructType) else kind


def overlap_columns(left: Side, right: Side, request: Request) -> dict[str, str]:
    """SQL: where the intervals of a pair overlap, and how long; null where they are apart."""
    (ls, le), (rs, re) = ((side.written or (side.start, side.end)) for side in (left, right))
    kind = left.written_type or left.bound_type
    start, end = f"greatest({ls}, {rs})", f"least({le}, {re})"
    apart = f"{ls} is null or {rs} is null or {start} > {end}"
    measured = f"try_subtract({units(kind, end)}, {units(kind, start)})"
    if not isinstance(kind, (T.FloatType, T.DoubleType)):
        measured = f"coalesce({measured}, raise_error('{_TOO_LONG}'))"
    asked = asked_type(left.source, request.left_interval)
    if isinstance(kind, T.DecimalType) and kind.precision == MOST_DIGITS:
        raise PlanError(
            f"with_overlap: Spark has no exact difference of bounds of type {kind.simpleString()}; cast them to at "
            f"most {MOST_DIGITS - 1} digits.",
            argument="with_overlap",
        )
    lengths = f"{end} - {start}" if is_wide_decimal(kind) else length(asked, kind, measured)
    if isinstance(asked, T.TimeType):  # joined as seconds since midnight
        start, end = (
            f"cast(time_from_micros(cast({x} * 1000000 as bigint)) as {asked.simpleString()})" for x in (start, end)
        )
    return dict(zip(OVERLAP, (f"if({apart}, null, {x})" for x in (start, end, lengths)), strict=True))


def raise_inverted(side: Side, count: int) -> None:
    """A `DataError` that names the side, how many intervals are inverted, and up to five of the rows."""
    rows = side.frame.where(side.inverted).limit(5).collect()
    raise inverted_error(
        side.shown, count, [dict(zip(side.given, row, strict=False)) for row in rows]
    )  # ours come last


def inverted_error(shown: str, count: int, rows: Sequence[dict[str, Any]]) -> DataError:
    """The error for inverted intervals of an input, with some of its rows."""
    return DataError(
        f"{shown} input has {count} interval(s) that end before they start or hold NaN, for example: "
        f"{'; '.join(map(str, rows))}. Repair them, or pass invalid='drop' (leave them out) or invalid='null' (keep "
        "them in outer joins, unmatched)."
    )


def late_error(shown: str) -> str:
    """The message for an inverted interval that was added to an input since the join was planned."""
    changed = f"{shown} input changed since it was planned: it has an interval that ends before it starts"
    return f'{MARK}DataError: {changed} or holds NaN. Repair it, or pass invalid="drop" or invalid="null".'


def as_column(condition: Any) -> Column:
    """A user's condition, a Column or SQL text, as a Column."""
    return F.expr(condition) if isinstance(condition, str) else condition
