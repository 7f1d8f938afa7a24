"""The options of an as-of join, checked before Spark is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dovetail.errors import PlanError
from dovetail.joins.asof.operator import Direction
from dovetail.request import (
    DEFAULT_MEMORY,
    MIN_MEMORY,
    MOST_CELLS,
    Distance,
    Key,
    Keys,
    items_of,
    one_of,
    parse_columns,
    parse_distance,
    parse_flag,
    parse_how,
    parse_keys,
    parse_partitions,
    parse_size,
    parse_suffixes,
)

Algorithm = Literal["auto", "index", "window"]
Ties = Literal["any", "all"] | tuple[Literal["first", "last"], str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A validated as-of join request; columns are checked later, against the inputs."""

    on: Key
    keys: tuple[Key, ...]
    direction: Direction
    tolerance: Distance | None
    allow_exact: bool
    tie: Literal["any", "all", "first", "last"]
    tie_order: tuple[str, ...]
    how: Literal["inner", "left"]
    algorithm: Algorithm
    memory: int
    partitions: int | None
    columns: tuple[str, ...] | None
    suffixes: tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class AsofOptions:
    """The options of `asof_join`."""

    on: str | tuple[str, str]
    by: Keys | None = None
    direction: Direction = "backward"
    tolerance: Distance | str | None = None
    allow_exact: bool = True
    ties: Ties = "any"
    how: Literal["inner", "left", "leftouter", "left_outer"] = "inner"
    algorithm: Algorithm = "auto"
    memory: int | str = DEFAULT_MEMORY
    partitions: int | None = None
    columns: Sequence[str] | None = None
    suffixes: tuple[str, str] = ("", "_right")

    def request(self) -> Request:
        """The join, or a `PlanError` that says what to change."""
        tie, order = _ties(self.ties)
        return Request(
            _on(self.on),
            parse_keys(self.by, argument="by"),
            one_of("direction", self.direction, get_args(Direction)),
            None if self.tolerance is None else parse_distance("tolerance", self.tolerance),
            parse_flag("allow_exact", self.allow_exact),
            tie,
            order,
            parse_how(self.how, ("inner", "left")),  # type: ignore[arg-type]  # one of these two
            one_of("algorithm", self.algorithm, get_args(Algorithm)),
            parse_size("memory", self.memory, MIN_MEMORY),
            parse_partitions(self.partitions, MOST_CELLS),
            parse_columns(self.columns),
            parse_suffixes(self.suffixes),
        )


def _on(given: Any) -> Key:
    if isinstance(given, str) and given:
        return Key(given, given, True)
    if isinstance(given, (tuple, list)) and len(given) == 2 and all(isinstance(part, str) for part in given):
        return Key(given[0], given[1], False)
    raise PlanError(
        f"on={given!r} must be the name of the time column, or a (left name, right name) pair; equality keys go to by.",
        argument="on",
    )


def _ties(given: Any) -> tuple[Any, tuple[str, ...]]:
    """Which row of a tie is taken, and the columns that order the rows."""
    if isinstance(given, str) and given in ("first", "last"):
        raise PlanError(
            f"ties={given!r} needs the columns that say which row is {given}: rows of a DataFrame have no order; give "
            f"ties=({given!r}, 'column'), or 'any' or 'all'.",
            argument="ties",
        )
    if isinstance(given, (tuple, list)) and len(given) == 2 and given[0] in ("first", "last"):
        named = given[1]
        columns = (named,) if isinstance(named, str) else tuple(items_of(named) or ())
        if columns and all(isinstance(name, str) and name for name in columns):
            return given[0], columns
    elif isinstance(given, str):
        return one_of("ties", given, ("any", "all"), ("first", "last")), ()
    raise PlanError(
        f"ties={given!r} must be 'any', 'all', ('first', columns) or ('last', columns), with one name or a list.",
        argument="ties",
    )
