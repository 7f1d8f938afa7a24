"""The options of the functions of interval sets, checked before Spark is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from dovetail.errors import PlanError
from dovetail.joins.interval.request import CountOptions, Invalid, parse_interval
from dovetail.joins.interval.request import Request as PairRequest
from dovetail.request import (
    CLOSED,
    DEFAULT_MEMORY,
    MIN_MEMORY,
    Closed,
    Distance,
    Keys,
    is_column,
    one_of,
    parse_distance,
    parse_keys,
    parse_partitions,
    parse_size,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Aggregates = Mapping[str, "str | Column"] | Sequence["Column"]
Keep = Literal["all", "largest"]


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request of a function of one input; columns are checked later, against the input.

    `gap` is None where touching rows stay apart. What a function has no option for is None.
    """

    interval: tuple[str, ...]
    keys: tuple[str, ...]
    closed: Closed
    invalid: Invalid
    memory: int
    partitions: int | None
    gap: Distance | None = 0
    aggregates: Any = None
    keep: Keep = "all"
    limits: Any = None
    width: Distance = 1
    origin: Any = None


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The options that all functions of one input have."""

    interval: str | Sequence[str] = ("start", "end")
    closed: Closed = "left"
    invalid: Invalid = "error"
    memory: int | str = DEFAULT_MEMORY

    def _checked(self, **more: Any) -> Request:
        """The request, or a `PlanError` that says what to change."""
        return Request(
            parse_interval("interval", self.interval),
            _keys(getattr(self, "on", None)),
            one_of("closed", self.closed, CLOSED),
            one_of("invalid", self.invalid, get_args(Invalid)),
            parse_size("memory", self.memory, MIN_MEMORY),
            parse_partitions(getattr(self, "partitions", None)),
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class SetOptions(RowOptions):
    """The options of functions that sweep over the rows of a key."""

    on: str | Sequence[str] | None = None
    partitions: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(SetOptions):
    """The options of `interval_cluster`."""

    gap: Distance | str | None = 0

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        return self._checked(gap=_distance("gap", self.gap))


@dataclass(frozen=True, kw_only=True)
class MergeOptions(SetOptions):
    """The options of `interval_merge`."""

    gap: Distance | str | None = 0
    aggregates: Aggregates | None = None

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        return self._checked(gap=_distance("gap", self.gap), aggregates=_aggregates(self.aggregates))


@dataclass(frozen=True, kw_only=True)
class DepthOptions(SetOptions):
    """The options of `interval_depth`."""

    keep: Keep = "all"

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        return self._checked(keep=one_of("keep", self.keep, get_args(Keep)))


@dataclass(frozen=True, kw_only=True)
class ComplementOptions(SetOptions):
    """The options of `interval_complement`."""

    limits: tuple[Any, Any] | DataFrame | None = None

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        given = self.limits
        if given is not None and not hasattr(given, "schema"):
            if not isinstance(given, (tuple, list)) or len(given) != 2:
                raise PlanError(
                    f"limits={given!r} must be a (start, end) pair, or a DataFrame with the keys and the bounds.",
                    argument="limits",
                )
            given = (given[0], given[1])
        return self._checked(limits=given)


@dataclass(frozen=True, kw_only=True)
class DisjointOptions(SetOptions):
    """The options of `make_disjoint`."""

    aggregates: Aggregates | None = None

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        return self._checked(aggregates=_aggregates(self.aggregates))


@dataclass(frozen=True, kw_only=True)
class WindowOptions(RowOptions):
    """The options of `interval_window`."""

    width: Distance | str
    origin: Any = None

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        width = _distance("width", self.width)
        if not width:  # None or zero: nothing is below zero
            raise PlanError(f"width={self.width!r} must be above zero.", argument="width")
        return self._checked(width=width, origin=self.origin)


@dataclass(frozen=True, kw_only=True)
class PivotOptions(WindowOptions):
    """The options of `interval_pivot`."""

    on: str | Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """The options of functions of two inputs: `interval_coverage`, `interval_subtract`, `interval_setdiff`."""

    left_interval: str | Sequence[str] = ("start", "end")
    right_interval: str | Sequence[str] = ("start", "end")
    on: Keys | None = None
    closed: Closed = "left"
    invalid: Invalid = "error"
    memory: int | str = DEFAULT_MEMORY
    partitions: int | None = None

    def request(self) -> PairRequest:
        """The overlapping pairs of both inputs, or a `PlanError` that says what to change."""
        return CountOptions(
            left_interval=self.left_interval,
            right_interval=self.right_interval,
            on=self.on,
            closed=one_of("closed", self.closed, CLOSED),
            invalid=self.invalid,
            memory=self.memory,
            partitions=self.partitions,
        ).request()


def _keys(on: Any) -> tuple[str, ...]:
    """The names of the keys of one input."""
    keys = parse_keys(on)
    for key in keys:
        if key.left != key.right:
            raise PlanError(
                f"on={on!r} has the pair {key.name!r}; a function of one input takes one name a key.", argument="on"
            )
    return tuple(key.left for key in keys)


def _distance(argument: str, given: Any) -> Distance | None:
    """A length; None stays None."""
    return None if given is None else parse_distance(argument, given)


def _aggregates(given: Any) -> Any:
    """Columns, or a mapping of names to SQL text or Columns; checked against the input later."""
    if given is None:
        return None
    named = isinstance(given, Mapping) and all(
        isinstance(name, str) and name and (isinstance(each, str) or is_column(each)) for name, each in given.items()
    )
    listed = isinstance(given, (list, tuple)) and all(map(is_column, given))
    if not (named or listed) or not given:
        raise PlanError(
            f'aggregates={given!r} must be {{"name": "SQL aggregate"}}, such as {{"total": "sum(x)"}}, or a list of '
            "Columns with names.",
            argument="aggregates",
        )
    return given
