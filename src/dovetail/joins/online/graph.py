"""Predicates of online joins: equal keys, a band around a key or a relation of intervals, or both, along a tree of
inputs.

Two inputs have one edge.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa

from dovetail.engine.rows.keys import NARROW_DIGITS
from dovetail.engine.rows.layout import Key, check_columns, key_pairs
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.intervals import Intervals
from dovetail.request import Closed, Distance, parse_distance

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class Band:
    """Rows match if lo <= right - left <= hi, both bounds included; null and NaN match nothing.

    Bounds are numbers for numeric columns and `timedelta` for dates and times. Whole-number, decimal and time columns
    are compared exactly; doubles by their floating-point difference.
    """

    left: str
    right: str
    lo: Distance
    hi: Distance
    given: tuple[Distance, Distance, Closed] | None = field(default=None, compare=False, repr=False)
    """Bounds that are not all part of the band, as they were given."""

    def __post_init__(self) -> None:
        for bound in (self.lo, self.hi):
            if isinstance(bound, bool) or not isinstance(bound, int | float | Decimal | timedelta):
                raise PlanError(
                    f"band bound {bound!r} is a {type(bound).__name__}; give a number or a timedelta.",
                    argument="within",
                )
            if isinstance(bound, float | Decimal) and not math.isfinite(bound):
                raise PlanError(f"band bound {bound!r} is not finite; give a number.", argument="within")
        if isinstance(self.lo, timedelta) != isinstance(self.hi, timedelta):
            raise PlanError(
                f"band from {_text(self.lo)} to {_text(self.hi)}: give two numbers or two timedeltas.",
                argument="within",
            )
        if self.lo > self.hi:  # type: ignore[operator]  # of one kind, as just checked
            raise PlanError(
                f"band from {_text(self.lo)} to {_text(self.hi)} is empty; the first bound must not be the larger one.",
                argument="within",
            )

    @classmethod
    def of(cls, given: Band | Sequence[Any]) -> Band:
        """A band from ("price", 0.05), which means +-0.05 on both sides' price, or ("l_price", "r_price", lo, hi).

        Bounds may be text, such as "-10 minutes".

        >>> Band.of(("price", 5))
        Band(left='price', right='price', lo=-5, hi=5)
        """
        if isinstance(given, Band):
            return given
        parts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(parts) == 2:
            return cls._around(parts[0], parts[1])
        if len(parts) == 4:
            return cls(parts[0], parts[1], _length(parts[2]), _length(parts[3]))
        raise PlanError(
            f"within={given!r} is no band; give (column, width) or (left, right, lo, hi).", argument="within"
        )

    @classmethod
    def _around(cls, name: str, given: Any) -> Band:
        """The band of this width on both sides."""
        up = cls(name, name, *[_length(given)] * 2).hi  # refuses what is no length
        if up < (timedelta(0) if isinstance(up, timedelta) else 0):  # type: ignore[operator]  # of one kind
            raise PlanError(f"within: the width {_text(up)} is below zero; give a length.", argument="within")
        return cls(name, name, -up, up)

    def between(self, left: str, right: str) -> str:
        """The band between columns of these names, with its bounds as they were given."""
        lo, hi, closed = self.given or (self.lo, self.hi, "both")
        signs = ["<=" if closed in (side, "both") else "<" for side in ("left", "right")]
        return f"{_text(lo)} {signs[0]} {right} - {left} {signs[1]} {_text(hi)}"

    def __str__(self) -> str:
        return self.between(self.left, self.right)


def _text(bound: Any) -> str:
    """A bound as text; Python shows a second before as a day before and 86,399 seconds."""
    return f"-{-bound}" if isinstance(bound, timedelta) and bound < timedelta(0) else str(bound)


def _length(bound: Any) -> Any:
    """Text as a length of time; anything else as it is."""
    return parse_distance("within", bound, signed=True) if isinstance(bound, str) else bound


@dataclass(frozen=True, slots=True)
class Predicate:
    """Equality of the columns `on`, and `within` a band or a relation of intervals; at least one of them.

    A null in any key matches nothing; with `null_safe`, nulls of the columns `on` equal each other. NaN equals NaN, and
    0.0 equals -0.0.
    """

    on: tuple[Key, ...] = ()
    within: Band | Intervals | None = None
    null_safe: bool = False

    def __post_init__(self) -> None:
        if not self.on and self.within is None:
            raise PlanError("a join needs keys: give on=..., within=... or relation=..., or both.", argument="on")

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The equal columns, left and right."""
        return key_pairs(self.on)

    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """`PlanError` unless the band's columns are there, of one type, and bounds of that type were given."""
        if self.within is None:
            return
        if isinstance(self.within, Intervals):
            self.within.check(left, right)
            return
        check_columns(left, [self.within.left], "left", "within")
        check_columns(right, [self.within.right], "right", "within")
        mine, theirs = left.field(self.within.left).type, right.field(self.within.right).type
        if mine != theirs:
            raise PlanError(
                f"band on {self.within.left!r} ({mine}) of left and {self.within.right!r} ({theirs}) of right; "
                f"cast one of them so that both are of one type.",
                argument="within",
            )
        whole_bounds(self.within, mine)

    def __str__(self) -> str:
        sign = "<=>" if self.null_safe else "="
        equal = [a if a == b and not self.null_safe else f"{a} {sign} {b}" for a, b in self.pairs]
        return " and ".join(equal + ([str(self.within)] if self.within is not None else []))


def whole_bounds(band: Band, kind: pa.DataType) -> tuple[int, int] | None:
    """The band in units of a column whose values are whole numbers of something; None for floating-point columns."""
    per_unit = _units_per_one(band, kind)
    if per_unit is None:
        return None
    lo, hi = (_in_units(bound, per_unit) for bound in (band.lo, band.hi))
    if max(abs(lo), abs(hi)) >= 2**63:
        raise _too_wide(band, kind)
    return math.ceil(lo), math.floor(hi)


def _too_wide(band: Band, kind: pa.DataType) -> PlanError:
    return PlanError(
        f"band {band} is wider than the numbers of a column of type {kind}; give smaller bounds.", argument="within"
    )


def opened(band: Band, kind: pa.DataType, closed: Closed) -> Band:
    """The band that leaves out the bounds that are not `closed`, as one that has both of its bounds.

    An open bound moves to the next value of a column of this type; `PlanError` if no distance remains.

    >>> opened(Band("a", "b", -5, 5), pa.int64(), "left")
    Band(left='a', right='b', lo=-5, hi=4)
    """
    per_unit = _units_per_one(band, kind)
    if per_unit is not None and pa.types.is_time64(kind):
        per_unit = min(per_unit, Fraction(10**6))  # Spark's times of day are whole microseconds, which Arrow has in ns
    lo, hi = band.lo, band.hi
    if closed in ("right", "neither"):
        lo = _next(lo, 1, per_unit, kind)
    if closed in ("left", "neither"):
        hi = _next(hi, -1, per_unit, kind)
    given = replace(band, given=(band.lo, band.hi, closed))
    if lo > hi:  # type: ignore[operator]  # of one kind, as the band's
        raise PlanError(
            f"band {given} on a column of type {kind} has no distance left with closed={closed!r}; give other bounds.",
            argument="within",
        )
    return replace(given, lo=lo, hi=hi)


def _next(bound: Distance, step: int, per_unit: Fraction | None, kind: pa.DataType) -> Distance:
    """The distance of a column of this type that follows a bound, upwards or downwards."""
    if per_unit is None:
        return math.nextafter(float(bound), step * math.inf)  # type: ignore[arg-type]  # a number, as just checked
    at = _in_units(bound, per_unit)
    value = (math.floor(at) + 1 if step > 0 else math.ceil(at) - 1) / per_unit
    if not isinstance(bound, timedelta):
        return Decimal(value.numerator) / Decimal(value.denominator) if pa.types.is_decimal(kind) else int(value)
    if (value * 10**6).denominator > 1:
        raise UnsupportedError(
            f"an open bound on a column of type {kind} is finer than a timedelta; cast the column to microseconds.",
            argument="closed",
        )
    return timedelta(microseconds=int(value * 10**6))


def _in_units(bound: Distance, per_unit: Fraction) -> Fraction:
    return (_seconds(bound) if isinstance(bound, timedelta) else _number(bound)) * per_unit


def _units_per_one(band: Band, kind: pa.DataType) -> Fraction | None:
    """How many units of a column a second or the number one is; None for floating-point columns."""
    if pa.types.is_floating(kind):
        _require(not isinstance(band.lo, timedelta), band, kind, "numbers")
        if max(abs(_number(bound)) for bound in (band.lo, band.hi)) > sys.float_info.max:
            raise _too_wide(band, kind)
        return None
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        _require(isinstance(band.lo, timedelta), band, kind, "timedeltas")
        return Fraction(1, 86400) if pa.types.is_date32(kind) else Fraction(_PER_SECOND[_unit(kind)])
    known = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.precision <= NARROW_DIGITS)
    if not known:
        raise PlanError(
            f"a column of type {kind} has no distance here; bands need numbers (decimals of at most {NARROW_DIGITS} "
            f"digits), dates or times.",
            argument="within",
        )
    _require(not isinstance(band.lo, timedelta), band, kind, "numbers")
    return Fraction(10) ** (kind.scale if pa.types.is_decimal(kind) else 0)


def _unit(kind: pa.DataType) -> str:
    return "ms" if pa.types.is_date64(kind) else str(kind.unit)


def _seconds(bound: Distance) -> Fraction:
    assert isinstance(bound, timedelta)  # noqa: S101  (the caller has checked, for the type checker only)
    return Fraction(bound // timedelta(microseconds=1), 10**6)


def _number(bound: Distance) -> Fraction:
    return Fraction(str(bound)) if isinstance(bound, float) else Fraction(bound)  # type: ignore[arg-type]  # no timedelta


def _require(fits: bool, band: Band, kind: pa.DataType, wanted: str) -> None:
    if not fits:
        raise PlanError(f"band {band} on a column of type {kind}: its bounds must be {wanted}.", argument="within")


SIDES = ("left", "right")
"""The inputs of a join of two."""
Term: TypeAlias = tuple[str, str] | tuple[str, str, Any, Any]
"""("orders.id", "items.order_id") for equal columns; with two bounds more, lo <= second - first <= hi."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Columns of one input that are matched together, and whether by distance."""

    relation: int
    columns: tuple[str, ...]
    banded: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """Two attributes that must match: equal, within a band, or by a relation of intervals that they start.

    `within` is a band or a relation in addition to equal columns. With `null_safe`, nulls are equal.
    """

    ends: tuple[Attribute, Attribute]
    band: tuple[Any, ...] | Intervals | None = None
    within: Band | Intervals | None = None
    null_safe: bool = False

    @property
    def predicate(self) -> Predicate:
        """The predicate between a row of the first end and one of the second; `within` is checked in addition."""
        first, second = self.ends
        if isinstance(self.band, Intervals):
            return Predicate((), self.band)
        if self.band is not None:
            return Predicate((), Band(first.columns[0], second.columns[0], *self.band))
        return Predicate(tuple(zip(first.columns, second.columns, strict=True)), null_safe=self.null_safe)

    @property
    def any_band(self) -> Band | Intervals | None:
        """The band or relation of this edge, with or without equal columns."""
        return self.predicate.within or self.within

    @property
    def sides(self) -> tuple[tuple[Attribute, tuple[str, ...]], ...]:
        """Both ends with all columns of each that are compared."""
        return tuple(zip(self.ends, zip(*self.column_pairs, strict=True), strict=True))

    @property
    def column_pairs(self) -> tuple[tuple[str, str], ...]:
        """All columns of both ends that are compared with each other."""
        pairs, near = list(zip(self.ends[0].columns, self.ends[1].columns, strict=True)), self.any_band
        if isinstance(near, Intervals):
            return tuple(dict.fromkeys([*pairs, *near.column_pairs]))
        return tuple(pairs + ([(self.within.left, self.within.right)] if self.within is not None else []))


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Inputs in order and the edges between them: a tree. Attributes of an input are numbered as first used."""

    names: tuple[str, ...]
    edges: tuple[Edge, ...]

    def attributes(self, relation: int) -> tuple[Attribute, ...]:
        """The attributes of one input; an input may use one in several edges."""
        found = (end for edge in self.edges for end in edge.ends if end.relation == relation)
        return tuple(dict.fromkeys(found))

    def nears(self, relation: int) -> tuple[str, ...]:
        """The columns of one input with bands in addition to equal columns."""
        bands = [(edge.within, edge.ends) for edge in self.edges]
        found = ((b.left, b.right)[at] for b, ends in bands if b for at in (0, 1) if ends[at].relation == relation)
        return tuple(dict.fromkeys(found))

    def n_keys(self, relation: int) -> int:
        """The number of keys of a row of one input: attributes, and bands in addition to equal columns."""
        return len(self.attributes(relation)) + len(self.nears(relation))

    @property
    def is_common(self) -> bool:
        """Whether one attribute is equal in all inputs, as in the sources' simple star."""
        plain = all(edge.band is None for edge in self.edges)
        return plain and all(len(self.attributes(r)) == 1 for r in range(len(self.names)))

    def check(self, schemas: Mapping[str, pa.Schema]) -> None:
        """`PlanError` unless all columns are there, with types that can match."""
        if set(schemas) != set(self.names):
            raise PlanError(
                f"schemas are given for {sorted(schemas)}; this join takes {list(self.names)}.", argument="inputs"
            )
        for name, schema in schemas.items():
            twice = sorted({c for c in schema.names if schema.names.count(c) > 1})
            if twice:
                raise PlanError(
                    f"{name} input has columns {twice} more than once; rename them before the join.", argument=name
                )
        for edge in self.edges:
            for end, columns in edge.sides:
                check_columns(schemas[self.names[end.relation]], columns, self.names[end.relation], "on")
            mine, theirs = (schemas[self.names[end.relation]] for end in edge.ends)
            self._check_types(edge, mine, theirs)

    def _check_types(self, edge: Edge, mine: pa.Schema, theirs: pa.Schema) -> None:
        first, second = edge.ends
        for a, b in edge.column_pairs:
            if mine.field(a).type != theirs.field(b).type:
                raise PlanError(
                    f"{self.names[first.relation]}.{a} is {mine.field(a).type} but {self.names[second.relation]}.{b} "
                    f"is {theirs.field(b).type}; cast one of them so that both are of one type.",
                    argument="on",
                )
        if isinstance(edge.any_band, Band):
            whole_bounds(edge.any_band, mine.field(edge.any_band.left).type)  # refuses types without a distance

    def __str__(self) -> str:
        return " and ".join(self._shown(edge) for edge in self.edges)

    def _shown(self, edge: Edge) -> str:
        mine, theirs = ([f"{self.names[end.relation]}.{c}" for c in end.columns] for end in edge.ends)
        shown = [f"{a} = {b}" for a, b in zip(mine, theirs, strict=True)] if edge.band is None else []
        if isinstance(band := edge.any_band, Intervals):
            shown.append(str(band))
        elif band is not None:
            first, second = (self.names[end.relation] for end in edge.ends)
            shown.append(band.between(f"{first}.{band.left}", f"{second}.{band.right}"))
        return " and ".join(shown)


def pair_graph(predicate: Predicate) -> JoinGraph:
    """The tree of two inputs, left and right, with this predicate between them."""
    band, pairs = predicate.within, predicate.pairs
    if band is not None and not pairs:
        ends = (Attribute(0, (band.left,), True), Attribute(1, (band.right,), True))
        return JoinGraph(SIDES, (Edge(ends, band if isinstance(band, Intervals) else (band.lo, band.hi, band.given)),))
    ends = (Attribute(0, tuple(a for a, _ in pairs)), Attribute(1, tuple(b for _, b in pairs)))
    return JoinGraph(SIDES, (Edge(ends, None, band, predicate.null_safe),))


def join_graph(names: Sequence[str], on: Sequence[Term]) -> JoinGraph:
    """The tree of these inputs; `PlanError` for unknown inputs, cycles, and inputs that nothing connects.

    Several pairs of equal columns between the same two inputs are one edge, which may have one band besides.

    >>> print(join_graph(["a", "b", "c"], [("a.x", "b.x"), ("b.y", "c.z")]))
    a.x = b.x and b.y = c.z
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise PlanError(f"inputs={list(names)}: give two or more inputs with different names.", argument="inputs")
    terms = [_parsed(term, names) for term in on]
    by_pair: dict[tuple[int, int], list[tuple[str, str, tuple[Any, Any] | None]]] = {}
    for (r, a), (q, b), band in terms:
        if r == q:
            raise PlanError(
                f"on has {names[r]}.{a} and {names[r]}.{b} of one input; filter that input instead.", argument="on"
            )
        if r > q:
            r, a, q, b = q, b, r, a
            band = None if band is None else (-band[1], -band[0])
        by_pair.setdefault((r, q), []).append((a, b, band))
    graph = JoinGraph(tuple(names), tuple(_edge(names, pair, found) for pair, found in by_pair.items()))
    _check_tree(graph)
    return graph


def _parsed(term: Term, names: Sequence[str]) -> tuple[tuple[int, str], tuple[int, str], tuple[Any, Any] | None]:
    if len(term) not in (2, 4):
        raise PlanError(
            f"on has {term!r}; give (input.column, input.column), with two bounds more for a band.", argument="on"
        )
    ends = [parse_end(name, names) for name in term[:2]]
    return ends[0], ends[1], (term[2], term[3]) if len(term) == 4 else None


def parse_end(name: str, names: Sequence[str]) -> tuple[int, str]:
    """The number of the input and the column that "input.column" names; names may have dots, and the longest counts."""
    fitting = [n for n in names if isinstance(name, str) and name.startswith(f"{n}.")]
    if not fitting:
        raise PlanError(
            f"on names {name!r}, which is no column of an input; write input.column, of {list(names)}.", argument="on"
        )
    best = max(fitting, key=len)
    return list(names).index(best), name[len(best) + 1 :]


def _edge(names: Sequence[str], pair: tuple[int, int], found: list[tuple[str, str, tuple[Any, Any] | None]]) -> Edge:
    bands = [(a, b, band) for a, b, band in found if band is not None]
    equal = [(a, b) for a, b, band in found if band is None]
    if len(bands) > 1:
        raise UnsupportedError(
            f"{names[pair[0]]} and {names[pair[1]]} have {len(bands)} bands; give one, and filter the answer by the "
            f"others.",
            argument="on",
        )
    keys = equal or [bands[0][:2]]
    ends = (
        Attribute(pair[0], tuple(a for a, _ in keys), not equal),
        Attribute(pair[1], tuple(b for _, b in keys), not equal),
    )
    if not bands:
        return Edge(ends)
    within = Band(bands[0][0], bands[0][1], *(bands[0][2] or ()))
    return Edge(ends, None, within) if equal else Edge(ends, (within.lo, within.hi))


def _check_tree(graph: JoinGraph) -> None:
    parts = list(range(len(graph.names)))
    for edge in graph.edges:
        a, b = (parts[end.relation] for end in edge.ends)
        if a == b:
            raise PlanError(
                f"the predicates {graph} make a cycle at {graph.names[edge.ends[0].relation]} and "
                f"{graph.names[edge.ends[1].relation]}; leave one out and filter the answer by it.",
                argument="on",
            )
        parts = [a if part == b else part for part in parts]
    if len(set(parts)) > 1:
        apart = [name for name, part in zip(graph.names, parts, strict=True) if part != parts[0]]
        raise PlanError(
            f"nothing in on={graph} connects {apart} with {graph.names[0]!r}; add a predicate for each.", argument="on"
        )
