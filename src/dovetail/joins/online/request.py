"""Checks the options of online joins, before Spark is used."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from dovetail.engine.rows.layout import How
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import Relation, RelationName
from dovetail.joins.interval.request import parse_interval
from dovetail.joins.online.graph import Band
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.request import (
    CLOSED,
    DEFAULT_MEMORY,
    Closed,
    HowName,
    Key,
    Keys,
    items_of,
    one_of,
    parse_columns,
    parse_flag,
    parse_how,
    parse_keys,
    parse_ms,
    parse_partitions,
    parse_size,
    parse_suffixes,
)

if TYPE_CHECKING:
    from dovetail.joins.online.plan.plan import End

Algorithm = Literal["auto", "shj", "dphj", "xjoin", "pmj", "hmj", "rpj", "ehj", "diner"]
MultiAlgorithm = Literal["auto", "mjoin", "miner"]
AUTO: dict[str, str] = {"online_join": "diner", "online_multijoin": "miner"}
"""The meaning of algorithm="auto": the join that supports bands, uses pauses, and spills rows of least benefit."""
Owed = Literal["idle", "batch"]
REACTS = ("diner", "xjoin", "hmj", "rpj", "miner")
"""Joins with a reactive phase."""
RELOADS = ("diner", "miner")
"""Joins that reload ended inputs while one is left."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The common options of online joins, validated. Times are milliseconds, memory bytes."""

    algorithm: str
    memory: int
    partitions: int | None
    wait_ms: int
    owed: Owed
    retain_ms: int | None
    with_phase: bool

    @property
    def reacts(self) -> bool:
        """Whether pauses are used."""
        return self.owed == "idle" and self.algorithm in REACTS


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request for a join of two inputs; columns are checked later, against both."""

    keys: tuple[Key, ...]
    within: Band | Intervals | None
    terms: Terms
    columns: tuple[str, ...] | None = None
    suffixes: tuple[str, str] = ("", "_right")
    hot: Sequence[Any] | None = None
    end_of_input: End = None
    how: How = "inner"
    null_safe: bool = False
    closed: Closed = "both"  # the bounds that are part of a band

    @property
    def on(self) -> tuple[str | tuple[str, str], ...]:
        """The keys in the form of the operators."""
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True, slots=True)
class MultiRequest:
    """A validated request for a join of many inputs; predicates and columns are checked later, against them."""

    on: tuple[tuple[Any, ...], ...]
    terms: Terms
    columns: tuple[str, ...] | None
    suffixes: Mapping[str, str] | None
    rows: Mapping[str, float] | None
    end_of_input: End


@dataclass(frozen=True, kw_only=True)
class OnlineOptions:
    """The options that all online joins share."""

    memory: int | str = DEFAULT_MEMORY
    partitions: int | None = None
    wait: str | float = "25 ms"
    owed: Owed = "idle"
    end_of_input: End = None
    retain: str | float | None = None
    with_phase: bool = False
    columns: Sequence[str] | None = None

    def terms(self, algorithm: str) -> Terms:
        """These options, with the algorithm to run."""
        return Terms(
            algorithm,
            parse_size("memory", self.memory),
            parse_partitions(self.partitions),
            parse_ms("wait", self.wait),
            one_of("owed", self.owed, get_args(Owed)),
            None if self.retain is None else parse_ms("retain", self.retain),
            parse_flag("with_phase", self.with_phase),
        )


@dataclass(frozen=True, kw_only=True)
class OnlineJoinOptions(OnlineOptions):
    """The options of `online_join`."""

    on: Keys | None = None
    within: Band | Sequence[Any] | None = None
    relation: RelationName | Iterable[RelationName] | None = None
    left_interval: str | Sequence[str] = ("start", "end")
    right_interval: str | Sequence[str] = ("start", "end")
    strict: bool = False
    closed: Closed | tuple[Closed, Closed] | None = None
    null_safe: bool = False
    how: HowName = "inner"
    algorithm: Algorithm = "auto"
    suffixes: tuple[str, str] = ("", "_right")
    hot: Sequence[Any] | None = None

    def request(self) -> Request:
        """The join, or an error that says what to change."""
        named = one_of("algorithm", self.algorithm, get_args(Algorithm))
        terms, how = self.terms(AUTO["online_join"] if named == "auto" else named), parse_how(self.how)
        if how != "inner":  # which rows come alone then depends on nothing that a restart may change
            terms = replace(terms, owed="batch")
        request = Request(
            parse_keys(self.on),
            self._near(),
            terms,
            parse_columns(self.columns),
            parse_suffixes(self.suffixes),
            self.hot,
            self.end_of_input,
            how,
            parse_flag("null_safe", self.null_safe),
            "both" if self.closed is None or self.relation is not None else one_of("closed", self.closed, CLOSED),
        )
        if request.null_safe and not request.keys:
            raise PlanError(
                "null_safe=True is about equal columns, and there are none; give on=, or leave it out.",
                argument="null_safe",
            )
        ALGORITHMS[terms.algorithm](on=request.on, within=request.within)  # refuses unsupported predicates
        return request

    def _near(self) -> Band | Intervals | None:
        """The band or the relation; options of another one are an error."""
        parse_flag("strict", self.strict)
        if self.relation is not None:
            if self.within is not None:
                raise PlanError(
                    f"relation={self.relation!r} and within={self.within!r} are given; give one of them, and filter "
                    f"the pairs by the other.",
                    argument="relation",
                )
            return self._intervals(self.relation)
        about = ("left_interval", "right_interval", "strict")
        given = [f.name for f in fields(self) if f.name in about and getattr(self, f.name) != f.default]
        if given:
            raise PlanError(
                f"{given[0]}={getattr(self, given[0])!r} is about a relation of intervals, and there is none; give "
                f"relation='overlapping' or another one, or leave {given[0]} out.",
                argument=given[0],
            )
        closed = "both" if self.closed is None else one_of("closed", self.closed, CLOSED)
        if self.within is None and closed != "both":
            raise PlanError(
                f"closed={self.closed!r} is about the bounds of a band or of intervals, and there are none; give "
                f"within= or relation=, or leave closed out.",
                argument="closed",
            )
        return None if self.within is None else Band.of(self.within)

    def _intervals(self, relation: str | Iterable[str]) -> Intervals:
        """The relation between the named columns; a single name is a column of points or of structs."""
        parsed = Relation.parse(
            relation, parse_flag("strict", self.strict), "left" if self.closed is None else self.closed
        )
        names = (
            parse_interval("left_interval", self.left_interval),
            parse_interval("right_interval", self.right_interval),
        )
        return Intervals(((names[0][0], names[0][-1]), (names[1][0], names[1][-1])), parsed)


@dataclass(frozen=True, kw_only=True)
class MultiJoinOptions(OnlineOptions):
    """The options of `online_multijoin`."""

    on: Sequence[tuple[Any, ...]]
    algorithm: MultiAlgorithm = "auto"
    suffixes: Mapping[str, str] | None = None
    rows: Mapping[str, float] | None = None

    def request(self) -> MultiRequest:
        """The join, or an error that says what to change."""
        terms = items_of(self.on)
        if terms is None or not all(isinstance(term, (tuple, list)) for term in terms):
            raise PlanError(
                f"on={self.on!r}: give a list of predicates such as ('orders.id', 'items.order_id').", argument="on"
            )
        named = one_of("algorithm", self.algorithm, get_args(MultiAlgorithm))
        return MultiRequest(
            tuple(map(tuple, terms)),
            self.terms(AUTO["online_multijoin"] if named == "auto" else named),
            parse_columns(self.columns),
            self.suffixes,
            _rows(self.rows),
            self.end_of_input,
        )


def _rows(given: Any) -> Mapping[str, float] | None:
    """The numbers of rows by input; names are checked later, against the inputs."""
    known = given is None or isinstance(given, Mapping)
    if not known or not all(_is_number(n) and n > 0 for n in (given or {}).values()):
        raise PlanError(f"rows={given!r} must have a number above 0 for each input that it names.", argument="rows")
    return given  # type: ignore[no-any-return]  # a mapping


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and abs(given) <= sys.float_info.max
