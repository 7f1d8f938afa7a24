"""Checks the options of online joins, before Spark is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from dovetail.engine.layout import How
from dovetail.errors import PlanError
from dovetail.joins.online.graph import Band, Closed
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.request import (
    DEFAULT_MEMORY,
    HowName,
    Key,
    Keys,
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
    within: Band | None
    terms: Terms
    columns: tuple[str, ...] | None = None
    suffixes: tuple[str, str] = ("", "_right")
    hot: Sequence[Any] | None = None
    end_of_input: End = None
    how: How = "inner"
    closed: Closed = "both"

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
    closed: Closed = "both"
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
            None if self.within is None else Band.of(self.within),
            terms,
            parse_columns(self.columns),
            parse_suffixes(self.suffixes),
            self.hot,
            self.end_of_input,
            how,
            one_of("closed", self.closed, get_args(Closed)),
        )
        if request.closed != "both" and request.within is None:
            raise PlanError(
                f"closed={self.closed!r} is about the bounds of a band, and there is none; give within=, or leave "
                f"closed out.",
                argument="closed",
            )
        ALGORITHMS[terms.algorithm](on=request.on, within=request.within)  # refuses unsupported predicates
        return request


@dataclass(frozen=True, kw_only=True)
class MultiJoinOptions(OnlineOptions):
    """The options of `online_multijoin`."""

    on: Sequence[tuple[Any, ...]]
    algorithm: MultiAlgorithm = "auto"
    suffixes: Mapping[str, str] | None = None
    rows: Mapping[str, float] | None = None

    def request(self) -> MultiRequest:
        """The join, or an error that says what to change."""
        if isinstance(self.on, str) or not all(isinstance(term, (tuple, list)) for term in self.on):
            raise PlanError(
                f"on={self.on!r}: give a list of predicates such as ('orders.id', 'items.order_id').", argument="on"
            )
        named = one_of("algorithm", self.algorithm, get_args(MultiAlgorithm))
        return MultiRequest(
            tuple(tuple(term) for term in self.on),
            self.terms(AUTO["online_multijoin"] if named == "auto" else named),
            parse_columns(self.columns),
            self.suffixes,
            self.rows,
            self.end_of_input,
        )
