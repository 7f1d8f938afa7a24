"""`r.start < s.end and s.start < r.end` exactly as SQL means it, for every row, with an interval join for most rows.

SQL compares bounds as they stand: an empty interval inside another one matches, and so may an inverted one. An interval
join matches neither. So rows whose bounds are in order go through the interval join, and the odd ones, if there are
any, through Spark's own join; the two answers together are what SQL says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.interval.frame import interval_join
from dovetail.interval.frame_sides import BOUND_TYPES
from dovetail.interval.relation import Closed, Relation
from dovetail.sql.text import quoted

BROADCAST_ROWS = 10_000
INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
FLOATS = (T.FloatType, T.DoubleType)

# (left start may equal right end, left end may equal right start, side whose points count as intervals) -> closed.
CLOSED: dict[tuple[bool, bool, str], tuple[Closed, Closed]] = {
    (False, False, ""): ("left", "left"),
    (False, False, "left"): ("both", "neither"),
    (False, False, "right"): ("neither", "both"),
    (True, False, ""): ("left", "right"),
    (True, False, "left"): ("both", "right"),
    (True, False, "right"): ("left", "both"),
    (False, True, ""): ("right", "left"),
    (False, True, "left"): ("both", "left"),
    (False, True, "right"): ("right", "both"),
}


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows of a side have both bounds, equal bounds, and bounds in the wrong order (or NaN)."""

    rows: int
    empty: int
    inverted: int


@dataclass(frozen=True, slots=True)
class Bounded:
    """One side: its rows, the columns of its bounds, and whether a point counts as an interval on it."""

    name: str
    frame: DataFrame
    start: str
    end: str
    closed: Closed
    count: Count

    @property
    def odd(self) -> str:
        """SQL: the bounds are there, and no interval join would take them as SQL does."""
        start, end = quoted(self.start), quoted(self.end)
        broken = f"{start} > {end}" if self.closed == "both" else f"{start} >= {end}"
        return f"coalesce({broken}{nan_sql(self.frame, self.start, self.end)}, false)"

    @property
    def n_odd(self) -> int:
        """How many rows are odd."""
        return self.count.inverted + (0 if self.closed == "both" else self.count.empty)

    def odd_rows(self) -> DataFrame:
        """The odd rows; few of them are sent to every task."""
        rows = self.frame.where(self.odd)
        return F.broadcast(rows) if self.n_odd <= BROADCAST_ROWS else rows

    def other_rows(self) -> DataFrame:
        """The rows that are not odd; an error, at run time, if there are odd ones that planning did not see."""
        if self.n_odd:
            return self.frame.where(f"not {self.odd}")
        message = f"{self.name} changed since the query was planned: bounds out of order; call dovetail.sql again"
        literal = F.lit(message)
        return self.frame.where(F.when(F.expr(self.odd), F.raise_error(literal).cast("boolean")).otherwise(True))


@dataclass(frozen=True, slots=True)
class OverlapJoin:
    """The join of two sides on overlap as SQL writes it, all join types; columns of both sides have different names."""

    left: Bounded
    right: Bounded
    keys: tuple[tuple[str, str], ...]
    residual: str | None

    def frame(self, how: str) -> DataFrame:
        """The answer: left's columns, then right's; left's only for semi and anti joins."""
        if not self.left.n_odd and not self.right.n_odd:
            return self._regular(how)
        if how == "left_semi":
            return self._semi()
        if how == "left_anti":
            return self._anti()
        parts = [self._pairs()]
        if how in ("left", "full"):
            parts.append(self._anti())
        if how in ("right", "full"):
            parts.append(self._turned()._anti())
        return _together(parts, parts[0].columns)

    def _regular(self, how: str) -> DataFrame:
        return interval_join(
            self.left.other_rows(),
            self.right.other_rows(),
            left_interval=(self.left.start, self.left.end),
            right_interval=(self.right.start, self.right.end),
            on=self.keys or None,
            condition=self.residual,
            how=how,
            closed=(self.left.closed, self.right.closed),
        )

    def _pairs(self) -> DataFrame:
        parts = [self._regular("inner")]
        if self.left.n_odd:
            parts.append(self.right.frame.join(self.left.odd_rows(), F.expr(self.condition)))
        if self.right.n_odd:
            parts.append(self.left.other_rows().join(self.right.odd_rows(), F.expr(self.condition)))
        return _together(parts, parts[0].columns)

    def _semi(self) -> DataFrame:
        parts = [self._regular("left_semi")]
        if self.left.n_odd:
            parts.append(self._odd_left("left_semi"))
        if self.right.n_odd:
            parts.append(self._rest("left_semi"))
        return _together(parts, self.left.frame.columns)

    def _anti(self) -> DataFrame:
        parts = [self._rest("left_anti") if self.right.n_odd else self._regular("left_anti")]
        if self.left.n_odd:
            parts.append(self._odd_left("left_anti"))
        return _together(parts, self.left.frame.columns)

    def _odd_left(self, how: str) -> DataFrame:
        return self.left.frame.where(self.left.odd).join(self.right.frame, F.expr(self.condition), how)

    def _rest(self, how: str) -> DataFrame:
        """Left rows in order that match no right row in order, joined with the odd right rows."""
        return self._regular("left_anti").join(self.right.odd_rows(), F.expr(self.condition), how)

    def _turned(self) -> OverlapJoin:
        return OverlapJoin(self.right, self.left, tuple((b, a) for a, b in self.keys), self.residual)

    @property
    def condition(self) -> str:
        """The whole condition as SQL."""
        left, right = self.left, self.right
        relation = Relation.parse("overlapping", closed=(left.closed, right.closed))
        parts = [relation.sql(*(quoted(name) for name in (left.start, left.end, right.start, right.end)))]
        parts += [f"{quoted(a)} = {quoted(b)}" for a, b in self.keys]
        return " and ".join([*parts, f"({self.residual})"] if self.residual else parts)


def nan_sql(frame: DataFrame, *columns: str) -> str:
    """SQL: `or isnan(...)` for those of the columns that can hold one."""
    return "".join(f" or isnan({quoted(name)})" for name in columns if isinstance(frame.schema[name].dataType, FLOATS))


def count_rows(sides: Sequence[tuple[DataFrame, str, str]]) -> list[Count]:
    """The counts of every side, in one Spark job."""
    counted = None
    for number, (frame, start, end) in enumerate(sides):
        first, last, nan = quoted(start), quoted(end), nan_sql(frame, start, end)
        one = frame.selectExpr(
            f"{number} as side",
            f"count_if({first} is not null and {last} is not null) as `rows`",
            f"count_if({first} = {last}{' and not (false' + nan + ')' if nan else ''}) as empty",
            f"count_if({first} > {last}{nan}) as inverted",
        )
        counted = one if counted is None else counted.union(one)
    rows = sorted(counted.collect(), key=lambda row: int(row["side"])) if counted is not None else []
    return [Count(row["rows"], row["empty"], row["inverted"]) for row in rows]


def closed_as(touching_start: bool, touching_end: bool, left: Count, right: Count) -> tuple[Closed, Closed]:
    """Bounds closed so that touching means what the comparisons say, and as few rows as can be are odd."""
    if touching_start and touching_end:
        return "both", "both"
    points = "left" if left.empty and left.empty >= right.empty else "right" if right.empty else ""
    return CLOSED[touching_start, touching_end, points]


def type_trouble(bounds: Sequence[T.DataType]) -> str | None:
    """Why bounds of these types do not compare as one type; None if they do, without loss."""
    for kind in bounds:
        if not isinstance(kind, BOUND_TYPES):
            return f"a bound has type {kind.simpleString()}"
    for family in (INTEGERS, FLOATS):
        if all(isinstance(kind, family) for kind in bounds):
            return None
    if len({kind.simpleString() for kind in bounds}) == 1:
        return None
    return f"the bounds have different types ({', '.join(sorted({kind.simpleString() for kind in bounds}))}); cast them"


def _together(parts: list[DataFrame], columns: list[str]) -> DataFrame:
    whole = parts[0].select(*map(quoted, columns))
    for part in parts[1:]:
        whole = whole.unionByName(
            part.select(*(quoted(c) for c in columns if c in part.columns)), allowMissingColumns=True
        )
    return whole
