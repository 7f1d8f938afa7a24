"""The options of interval joins, checked before Spark is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from dovetail.engine.rows.layout import How
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import Relation, RelationName
from dovetail.request import (
    DEFAULT_MEMORY,
    MIN_MEMORY,
    Closed,
    Distance,
    HowName,
    Key,
    Keys,
    items_of,
    one_of,
    parse_columns,
    parse_condition,
    parse_count,
    parse_distance,
    parse_flag,
    parse_how,
    parse_keys,
    parse_partitions,
    parse_size,
    parse_suffixes,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

Algorithm = Literal["auto", "native", "bins", "sort_merge", "time_sweep", "forward_scan", "oip", "dip", "nested_loop"]
Invalid = Literal["error", "drop", "null"]
Keep = Literal["all", "any", "first", "last"]
Route = Literal["auto", "native", "in_memory", "streaming"]
OPERATORS = ("sort_merge", "time_sweep", "forward_scan", "oip", "dip")


@dataclass(frozen=True, slots=True)
class Slack:
    """How far apart intervals may be that match, or how much they must share."""

    max_gap: Distance | None
    min_overlap: Distance | None
    min_fraction: float | None
    reciprocal: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A validated interval join request; columns are checked later, against the inputs."""

    left_interval: tuple[str, ...]
    right_interval: tuple[str, ...]
    relation: Relation
    keys: tuple[Key, ...]
    condition: Any
    invalid: Invalid
    algorithm: Algorithm
    memory: int
    split_points: tuple[Any, ...] | None
    partitions: int | None
    route: Route = "auto"
    how: How = "inner"
    keep: Keep = "all"
    columns: tuple[str, ...] | None = None
    suffixes: tuple[str, str] = ("", "_right")
    slack: Slack | None = None
    with_overlap: bool = False

    @property
    def keeps_left(self) -> bool:
        """Whether left rows without a match appear in the result."""
        return self.how in ("left", "full", "left_anti")

    @property
    def keeps_right(self) -> bool:
        """Whether right rows without a match appear in the result."""
        return self.how in ("right", "full")

    def mirrored(self, columns: tuple[str, ...]) -> Request:
        """The same join with its sides exchanged, which gives these columns."""
        exchanged: dict[How, How] = {"left": "right", "right": "left"}
        return replace(
            self,
            left_interval=self.right_interval,
            right_interval=self.left_interval,
            relation=self.relation.swapped(),
            keys=tuple(replace(key, left=key.right, right=key.left) for key in self.keys),
            how=exchanged.get(self.how, self.how),
            columns=columns,
            suffixes=self.suffixes[::-1],
        )

    @property
    def left_only(self) -> bool:
        """Whether the result holds left's columns only."""
        return self.how in ("left_semi", "left_anti")


class TopRequest(NamedTuple):
    """The number of longest overlaps, and the join that they are taken from."""

    k: int
    join: Request


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The options that all interval functions share: which pairs match, and how they are found."""

    left_interval: str | Sequence[str] = ("start", "end")
    right_interval: str | Sequence[str] = ("start", "end")
    relation: RelationName | Iterable[RelationName] = "overlapping"
    on: Keys | None = None
    condition: Column | str | None = None
    closed: Closed | tuple[Closed, Closed] = "left"
    strict: bool = False
    invalid: Invalid = "error"
    algorithm: Algorithm = "auto"
    memory: int | str = DEFAULT_MEMORY
    split_points: Sequence[Any] | None = None
    partitions: int | None = None
    route: Route = "auto"
    min_overlap: Distance | str | None = None
    max_gap: Distance | str | None = None
    min_fraction: float | None = None
    reciprocal: bool = False

    def pairs(self) -> Request:
        """The inner join of these pairs, or a `PlanError` that says what to change."""
        request = Request(
            parse_interval("left_interval", self.left_interval),
            parse_interval("right_interval", self.right_interval),
            Relation.parse(self.relation, parse_flag("strict", self.strict), self.closed),
            parse_keys(self.on),
            parse_condition(self.condition),
            one_of("invalid", self.invalid, get_args(Invalid)),
            one_of("algorithm", self.algorithm, get_args(Algorithm)),
            parse_size("memory", self.memory, MIN_MEMORY),
            _split_points(self.split_points),
            parse_partitions(self.partitions),
            one_of("route", self.route, get_args(Route)),
            slack=self._slack(),
        )
        if request.slack is not None and request.relation.only != "overlapping":
            raise PlanError(
                f"relation={self.relation!r} compares bounds as they are; min_overlap, max_gap and min_fraction need "
                "relation='overlapping'.",
                argument="relation",
            )
        _check_route(request.route, request.algorithm)
        _check_split_points(request.partitions, request.split_points)
        return request

    def _slack(self) -> Slack | None:
        fraction, reciprocal = self.min_fraction, parse_flag("reciprocal", self.reciprocal)
        number = isinstance(fraction, (int, float, Decimal)) and not isinstance(fraction, bool)
        if fraction is not None and (not number or not 0 < fraction <= 1):
            raise PlanError(f"min_fraction={fraction!r} must be above 0 and at most 1.", argument="min_fraction")
        if reciprocal and fraction is None:
            raise PlanError(
                "reciprocal=True says what min_fraction holds for; give min_fraction.", argument="reciprocal"
            )
        gap, least = (
            None if given is None else parse_distance(name, given)
            for name, given in (("max_gap", self.max_gap), ("min_overlap", self.min_overlap))
        )
        if gap is not None and (least is not None or fraction is not None):
            raise PlanError(
                "max_gap lets intervals apart match, min_overlap and min_fraction do not; give one of them.",
                argument="max_gap",
            )
        if gap is None and least is None and fraction is None:
            return None
        return Slack(gap, least, None if fraction is None else float(fraction), reciprocal)


@dataclass(frozen=True, kw_only=True)
class CountOptions(PairOptions):
    """The options of `interval_count` and `count_overlaps`."""

    def request(self) -> Request:
        """The pairs that are counted."""
        return self.pairs()


@dataclass(frozen=True, kw_only=True)
class JoinOptions(PairOptions):
    """The options of `interval_join`."""

    how: HowName = "inner"
    keep: Keep = "all"
    with_overlap: bool = False
    columns: Sequence[str] | None = None
    suffixes: tuple[str, str] = ("", "_right")

    def request(self) -> Request:
        """The join, or a `PlanError` that says what to change."""
        request = replace(
            self.pairs(),
            how=parse_how(self.how),
            keep=one_of("keep", self.keep, get_args(Keep)),
            columns=parse_columns(self.columns),
            suffixes=parse_suffixes(self.suffixes),
            with_overlap=parse_flag("with_overlap", self.with_overlap),
        )
        if request.with_overlap and request.left_only:
            raise PlanError(f"how={self.how!r} has no pairs whose overlap could be a column.", argument="with_overlap")
        if request.keep != "all" and request.how == "full":
            raise PlanError(
                f"keep={self.keep!r} says how many matches a row of one side keeps; with how='full' use keep='all', or "
                f"use how='left' or 'right'.",
                argument="keep",
            )
        return request


class Band(NamedTuple):
    """A band: low <= right column - left column <= high; None for no limit. `closed` says which limits are included."""

    left: str
    right: str
    low: Distance | None
    high: Distance | None
    closed: Closed = "both"

    @property
    def with_low(self) -> bool:
        """Whether the low limit is included."""
        return self.closed in ("left", "both")

    @property
    def with_high(self) -> bool:
        """Whether the high limit is included."""
        return self.closed in ("right", "both")

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low} {'<=' if self.with_low else '<'} "
        high = "" if self.high is None else f" {'<=' if self.with_high else '<'} {self.high}"
        return f"{low}right.{self.right} - left.{self.left}{high}"


class BandRequest(NamedTuple):
    """The bands of a join, and the rest of it."""

    bands: tuple[Band, ...]
    join: JoinOptions


BandGiven = tuple[str, str, Distance | str | None, Distance | str | None]


@dataclass(frozen=True, kw_only=True)
class BandOptions:
    """The options of `band_join`."""

    within: BandGiven | Sequence[BandGiven]
    on: Keys | None = None
    closed: Closed = "both"
    condition: Column | str | None = None
    how: HowName = "inner"
    algorithm: Algorithm = "auto"
    memory: int | str = DEFAULT_MEMORY
    partitions: int | None = None
    route: Route = "auto"
    columns: Sequence[str] | None = None
    suffixes: tuple[str, str] = ("", "_right")

    def request(self) -> BandRequest:
        """The join, or a `PlanError` that says what to change."""
        rest = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("within", "closed")}
        join = JoinOptions(**rest, closed="both", invalid="null")
        join.request()  # every other option is checked here
        return BandRequest(_bands(self.within, one_of("closed", self.closed, get_args(Closed))), join)


def _bands(within: Any, closed: Closed) -> tuple[Band, ...]:
    listed = [within] if isinstance(within, tuple) and within and isinstance(within[0], str) else within
    if not isinstance(listed, (list, tuple)) or not listed:
        listed = [None]
    return tuple(_band(each, closed) for each in listed)


def _band(given: Any, closed: Closed) -> Band:
    if not isinstance(given, (tuple, list)) or len(given) != 4 or not all(isinstance(c, str) for c in given[:2]):
        raise PlanError(
            f"within: {given!r} must be (left column, right column, low, high), for low <= right - left <= high; or a "
            "list of these.",
            argument="within",
        )
    low, high = (None if limit is None else parse_distance("within", limit, signed=True) for limit in given[2:])
    timely = {isinstance(limit, timedelta) for limit in (low, high) if limit is not None}
    if not timely:
        raise PlanError(f"within: {given!r} has no limit; give low, high or both.", argument="within")
    if len(timely) == 1 and low is not None and high is not None and low > high:  # type: ignore[operator]  # of one kind
        raise PlanError(f"within: {given!r} has low above high, so that nothing matches.", argument="within")
    return Band(given[0], given[1], low, high, closed)


@dataclass(frozen=True, kw_only=True)
class TopOptions(PairOptions):
    """The options of `interval_topk`."""

    k: int = 100
    by: Literal["overlap"] = "overlap"
    columns: Sequence[str] | None = None
    suffixes: tuple[str, str] = ("", "_right")

    def request(self) -> TopRequest:
        """The join and the number of pairs, or a `PlanError` that says what to change."""
        one_of("by", self.by, ("overlap",))
        if self.max_gap is not None:
            raise PlanError(
                "max_gap lets intervals apart match, but pairs are ranked by their overlap; leave it out.",
                argument="max_gap",
            )
        join = replace(self.pairs(), columns=parse_columns(self.columns), suffixes=parse_suffixes(self.suffixes))
        return TopRequest(parse_count("k", self.k), join)


def parse_interval(name: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The two columns, or the struct column, of an interval; a `PlanError` for anything else."""
    parts = (given,) if isinstance(given, str) else tuple(items_of(given) or ())
    if len(parts) not in (1, 2) or not all(isinstance(part, str) and part for part in parts):
        raise PlanError(
            f"{name}={given!r} must be a (start, end) pair of column names or the name of a struct column.",
            argument=name,
        )
    return parts


def _check_route(route: Route, algorithm: Algorithm) -> None:
    if route == "native" and algorithm in OPERATORS:
        raise PlanError(
            f"algorithm={algorithm!r} does not run on route='native'; use route='in_memory' or 'streaming'.",
            argument="algorithm",
        )
    if route in ("in_memory", "streaming") and algorithm in ("native", "bins", "nested_loop"):
        raise PlanError(
            f"algorithm={algorithm!r} does not run on route={route!r}; use one of {', '.join(OPERATORS)}.",
            argument="algorithm",
        )


def _split_points(points: Sequence[Any] | None) -> tuple[Any, ...] | None:
    if points is None:
        return None
    found = items_of(points)
    with suppress(TypeError):  # values that have no order
        if found is not None and all(point is not None and point == point for point in found):  # no NaN
            return tuple(sorted(set(found)))
    raise PlanError(
        f"split_points={points!r} must be a list of bounds of one type, without nulls or NaN.", argument="split_points"
    )


def _check_split_points(partitions: int | None, points: tuple[Any, ...] | None) -> None:
    if partitions is not None and points is not None and partitions != len(points) + 1:
        raise PlanError(
            f"partitions={partitions} does not fit {len(points)} split points, which make one more.",
            argument="partitions",
        )
