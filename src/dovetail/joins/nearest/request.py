"""The options of a nearest join, checked before Spark is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from dovetail.joins.interval.request import Invalid, JoinOptions
from dovetail.joins.interval.request import Request as IntervalRequest
from dovetail.request import (
    DEFAULT_MEMORY,
    MOST_CELLS,
    Closed,
    Distance,
    Keys,
    one_of,
    parse_count,
    parse_distance,
    parse_flag,
    parse_how,
    parse_partitions,
)

Direction = Literal["any", "upstream", "downstream"]
Ties = Literal["any", "first", "all"]
MOST_NEAREST = 100_000


@dataclass(frozen=True, slots=True)
class Request:
    """A validated nearest join request; `join` has the intervals, keys, sizes and output columns."""

    join: IntervalRequest
    k: int
    direction: Direction
    ignore_overlaps: bool
    ties: Ties
    max_distance: Distance | None

    @property
    def before(self) -> bool:
        """Whether right rows that lie before the left one count."""
        return self.direction != "downstream"

    @property
    def after(self) -> bool:
        """Whether right rows that lie after the left one count."""
        return self.direction != "upstream"


@dataclass(frozen=True, kw_only=True)
class NearestOptions:
    """The options of `interval_nearest`."""

    k: int = 1
    direction: Direction = "any"
    ignore_overlaps: bool = False
    ties: Ties = "any"
    max_distance: Distance | str | None = None
    on: Keys | None = None
    left_interval: str | Sequence[str] = ("start", "end")
    right_interval: str | Sequence[str] = ("start", "end")
    closed: Closed | tuple[Closed, Closed] = "left"
    invalid: Invalid = "error"
    how: Literal["inner", "left", "leftouter", "left_outer"] = "inner"
    memory: int | str = DEFAULT_MEMORY
    partitions: int | None = None
    columns: Sequence[str] | None = None
    suffixes: tuple[str, str] = ("", "_right")

    def request(self) -> Request:
        """The join, or a `PlanError` that says what to change."""
        join = JoinOptions(
            left_interval=self.left_interval,
            right_interval=self.right_interval,
            on=self.on,
            closed=self.closed,
            invalid=self.invalid,
            memory=self.memory,
            partitions=parse_partitions(self.partitions, MOST_CELLS),
            columns=self.columns,
            suffixes=self.suffixes,
        ).request()
        return Request(
            replace(join, how=parse_how(self.how, ("inner", "left"))),
            parse_count("k", self.k, MOST_NEAREST),
            one_of("direction", self.direction, get_args(Direction)),
            parse_flag("ignore_overlaps", self.ignore_overlaps),
            one_of("ties", self.ties, get_args(Ties)),
            None if self.max_distance is None else parse_distance("max_distance", self.max_distance),
        )
