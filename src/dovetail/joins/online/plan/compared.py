"""Compared columns of online joins: found in any case, and brought to the type in which Spark compares them.

A column of another type than its partner is compared by a copy that is cast; the answer has the column as it is. Copies
are named after their type, so that a stream's state is not read with another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.joins.online.graph import SIDES, Band, Term, parse_end
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.request import Request
from dovetail.request import Key
from dovetail.spark.frames import arrow_type, column_of, same_column
from dovetail.spark.inputs import common_type

_CAST = "dovetail_as_"
_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType, T.TimeType)
Place = tuple[str, str]
"""An input and a column of it."""


def named_pair(left: DataFrame, right: DataFrame, request: Request) -> tuple[DataFrame, DataFrame, Request]:
    """Inputs and request with columns by the names that they have; another case is the same name, unless it counts.

    A key that is given by one name has the name of the left column in both inputs.
    """
    keys = []
    for key in request.keys:
        found = Key(same_column(left, key.left), same_column(right, key.right), key.shared)
        if key.shared and found.left != found.right and found.right in right.columns:
            right = right.withColumnRenamed(found.right, found.left)
        keys.append(replace(found, right=found.left) if key.shared else found)
    return left, right, replace(request, keys=tuple(keys), within=_named(request.within, (left, right)))


def _named(near: Band | Intervals | None, frames: Sequence[DataFrame]) -> Band | Intervals | None:
    if near is None:
        return None
    if isinstance(near, Band):
        return replace(near, left=same_column(frames[0], near.left), right=same_column(frames[1], near.right))
    first, second = (
        (same_column(frame, start), same_column(frame, end))
        for frame, (start, end) in zip(frames, near.bounds, strict=True)
    )
    return replace(near, bounds=(first, second))


def named_terms(inputs: Mapping[str, DataFrame], on: Sequence[tuple[Any, ...]]) -> tuple[tuple[Any, ...], ...]:
    """Predicates of many inputs with columns by the names that they have."""
    names = list(inputs)

    def named(end: Any) -> Any:
        number, column = parse_end(end, names)
        return f"{names[number]}.{same_column(inputs[names[number]], column)}"

    return tuple((*map(named, term[:2]), *term[2:]) if len(term) in (2, 4) else term for term in on)


def pair_in_common_types(
    left: DataFrame, right: DataFrame, request: Request
) -> tuple[DataFrame, DataFrame, Request, bool]:
    """Inputs and request that compare columns of one type, and whether any is a copy.

    A key that both inputs call by one name keeps the left type, as in Spark; for right and full joins it has the common
    one.
    """
    casts, keys = _Casts({"left": left, "right": right}), []
    for key in request.keys:
        pair = [("left", key.left), ("right", key.right)]
        if key.shared and request.how in ("right", "full"):
            casts.in_place(pair)
            keys.append(key)
            continue
        a, b = casts.compared(pair, f"key {key.left!r}", "on")
        keys.append(key if (a, b) == (key.left, key.right) else Key(a, b, False))
    near = request.within
    if isinstance(near, Band):
        what = f"band on {near.left!r} of left and {near.right!r} of right"
        a, b = casts.compared([("left", near.left), ("right", near.right)], what, "within")
        lo, hi = _lengths(casts.kind("left", a), (near.lo, near.hi))
        near = replace(near, left=a, right=b, lo=lo, hi=hi)
    elif isinstance(near, Intervals):
        pairs = [(side, bound) for side, bounds in zip(SIDES, near.bounds, strict=True) for bound in bounds]
        a, b, c, d = casts.compared(pairs, "bounds of intervals", "left_interval")
        near = replace(near, bounds=((a, b), (c, d)))
    frames = casts.frames()
    return frames["left"], frames["right"], replace(request, keys=tuple(keys), within=near), bool(casts.added)


def tree_in_common_types(
    inputs: Mapping[str, DataFrame], on: Sequence[Term]
) -> tuple[Mapping[str, DataFrame], tuple[Term, ...], bool]:
    """Inputs and predicates that compare columns of one type, and whether any is a copy."""
    casts, names, terms = _Casts(inputs), list(inputs), list[Any]()
    for term in on:
        pair = [(names[number], column) for number, column in (parse_end(end, names) for end in term[:2])]
        found = casts.compared(pair, f"on={term[:2]!r}", "on")
        near = _lengths(casts.kind(pair[0][0], found[0]), term[2:])
        terms.append((*(f"{name}.{column}" for (name, _), column in zip(pair, found, strict=True)), *near))
    return casts.frames(), tuple(terms), bool(casts.added)


def _lengths(kind: T.DataType | None, bounds: Sequence[Any]) -> Sequence[Any]:
    """The bounds of a band; for dates and times, numbers as seconds."""
    if not isinstance(kind, _TIMES):
        return bounds
    return [timedelta(seconds=float(one)) if _is_number(one) else one for one in bounds]


def _is_number(given: Any) -> bool:
    """Whether it is a finite number of seconds that a timedelta can have; others are refused later."""
    number = isinstance(given, (int, float, Decimal)) and not isinstance(given, bool)
    return number and abs(given) < timedelta.max.total_seconds()


class _Casts:
    """Copies of columns in another type, by input."""

    def __init__(self, inputs: Mapping[str, DataFrame]) -> None:
        self._inputs = dict(inputs)
        self.added: dict[tuple[str, str], Column] = {}  # by input and name of the copy

    def compared(self, columns: Sequence[Place], what: str, argument: str) -> list[str]:
        """The names of columns of one type, in place of these; columns that are not there are left to later checks."""
        kind = self._common(columns, what, argument)
        if kind is None:
            return [column for _, column in columns]
        return [self._copy(name, column, kind) for name, column in columns]

    def in_place(self, columns: Sequence[Place]) -> None:
        """Cast these columns themselves."""
        kind = self._common(columns, f"key {columns[0][1]!r}", "on")
        if kind is None:
            return
        for name, column in columns:
            frame = self._inputs[name]
            if frame.schema[column].dataType != kind:
                cast = [column_of(c).cast(kind).alias(c) if c == column else column_of(c) for c in frame.columns]
                self._inputs[name] = frame.select(*cast)

    def frames(self) -> dict[str, DataFrame]:
        """The inputs with all copies."""
        found = {}
        for name, frame in self._inputs.items():
            mine = [column for (of, _), column in self.added.items() if of == name]
            found[name] = frame.select("*", *mine) if mine else frame
        return found

    def _common(self, columns: Sequence[Place], what: str, argument: str) -> T.DataType | None:
        """The type that these columns are cast to; None if they have one type, or one is not there."""
        if any(column not in self._inputs[name].columns for name, column in columns):
            return None
        kinds = [self._kind(name, column) for name, column in columns]
        if len({arrow_type(kind) for kind in kinds}) == 1:
            return None
        if 0 < sum(isinstance(kind, T.StringType) for kind in kinds) < len(kinds):  # one bad text would end a stream
            shown = " and ".join(dict.fromkeys(kind.simpleString() for kind in kinds))
            raise PlanError(f"{what}: {shown} do not compare; cast one of them first.", argument=argument)
        frame = self._inputs[columns[0][0]]
        return reduce(lambda one, other: common_type(frame, what, one, other, argument), kinds)

    def kind(self, name: str, column: str) -> T.DataType | None:
        """The type of a column that is compared; None if there is none of this name."""
        return next((field.dataType for field in self.frames()[name].schema if field.name == column), None)

    def _kind(self, name: str, column: str) -> T.DataType:
        return self._inputs[name].schema[column].dataType

    def _copy(self, name: str, column: str, kind: T.DataType) -> str:
        """The name of the column, or of its copy in another type; a column with a watermark, a timestamp, is none."""
        if arrow_type(self._kind(name, column)) == arrow_type(kind):
            return column
        copy = f"{_CAST}{kind.simpleString()}_{column}"
        self.added[name, copy] = column_of(column).cast(kind).alias(copy)
        return copy
