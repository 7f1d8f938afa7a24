"""The options of interval joins, checked before Spark is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from dovetail.engine.layout import How
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import Closed, Relation, RelationName
from dovetail.request import (
    DEFAULT_MEMORY,
    HowName,
    Key,
    Keys,
    one_of,
    parse_columns,
    parse_count,
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
MIN_MEMORY = 1 << 20


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

    def pairs(self) -> Request:
        """The inner join of these pairs, or a `PlanError` that says what to change."""
        request = Request(
            parse_interval("left_interval", self.left_interval),
            parse_interval("right_interval", self.right_interval),
            Relation.parse(self.relation, parse_flag("strict", self.strict), self.closed),
            parse_keys(self.on),
            self.condition,
            one_of("invalid", self.invalid, get_args(Invalid)),
            one_of("algorithm", self.algorithm, get_args(Algorithm)),
            parse_size("memory", self.memory, MIN_MEMORY),
            _split_points(self.split_points),
            parse_partitions(self.partitions),
            one_of("route", self.route, get_args(Route)),
        )
        _check_route(request.route, request.algorithm)
        _check_split_points(request.partitions, request.split_points)
        return request


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
        )
        if request.keep != "all" and request.how == "full":
            raise PlanError(
                f"keep={self.keep!r} says how many matches a row of one side keeps; with how='full' use keep='all', or "
                f"use how='left' or 'right'.",
                argument="keep",
            )
        return request


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
        join = replace(self.pairs(), columns=parse_columns(self.columns), suffixes=parse_suffixes(self.suffixes))
        return TopRequest(parse_count("k", self.k), join)


def parse_interval(name: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The two columns, or the struct column, of an interval; a `PlanError` for anything else."""
    parts = (given,) if isinstance(given, str) else tuple(given)
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
    if isinstance(points, str) or any(point is None for point in points):
        raise PlanError(f"split_points={points!r} must be a list of bounds, without nulls.", argument="split_points")
    return tuple(sorted(set(points)))


def _check_split_points(partitions: int | None, points: tuple[Any, ...] | None) -> None:
    if partitions is not None and points is not None and partitions != len(points) + 1:
        raise PlanError(
            f"partitions={partitions} does not fit {len(points)} split points, which make one more.",
            argument="partitions",
        )
