"""What a user asks of an interval join, checked before anything touches Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from dovetail.engine.memory import parse_bytes
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import Relation

HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
HOW_ALIASES = {
    "left_outer": "left",
    "leftouter": "left",
    "right_outer": "right",
    "rightouter": "right",
    "outer": "full",
    "full_outer": "full",
    "fullouter": "full",
    "semi": "left_semi",
    "leftsemi": "left_semi",
    "anti": "left_anti",
    "leftanti": "left_anti",
}
OPERATORS = ("sort_merge", "time_sweep", "forward_scan", "oip", "dip")
ALGORITHMS = ("auto", "native", "bins", *OPERATORS, "nested_loop")
INVALID = ("error", "drop", "null")
KEEPS = ("all", "any", "first", "last")
ROUTES = ("auto", "native", "in_memory", "streaming")
MIN_MEMORY = 1 << 20


@dataclass(frozen=True, slots=True)
class Key:
    """One equality key: the column on each side; `shared` keys appear once in the result."""

    left: str
    right: str
    shared: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A validated interval join request; columns are checked later, against the inputs."""

    left_interval: tuple[str, ...]
    right_interval: tuple[str, ...]
    relation: Relation
    keys: tuple[Key, ...]
    condition: Any
    how: str
    invalid: str
    algorithm: str
    memory: int
    split_points: tuple[Any, ...] | None
    partitions: int | None
    keep: str
    columns: tuple[str, ...] | None
    suffixes: tuple[str, str]
    route: str = "auto"

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
        return replace(
            self,
            left_interval=self.right_interval,
            right_interval=self.left_interval,
            relation=self.relation.swapped(),
            keys=tuple(replace(key, left=key.right, right=key.left) for key in self.keys),
            how={"left": "right", "right": "left"}.get(self.how, self.how),
            columns=columns,
            suffixes=self.suffixes[::-1],
        )

    @property
    def left_only(self) -> bool:
        """Whether the result holds left's columns only."""
        return self.how in ("left_semi", "left_anti")


def parse_request(
    left_interval: str | Sequence[str] = ("start", "end"),
    right_interval: str | Sequence[str] = ("start", "end"),
    relation: str | Iterable[str] = "overlapping",
    on: str | Sequence[str | tuple[str, str]] | None = None,
    condition: Any = None,
    how: str = "inner",
    closed: str | tuple[str, str] = "left",
    strict: bool = False,
    invalid: str = "error",
    algorithm: str = "auto",
    memory: int | str = "64MB",
    split_points: Sequence[Any] | None = None,
    partitions: int | None = None,
    keep: str = "all",
    columns: Sequence[str] | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    route: str = "auto",
) -> Request:
    """The request that these arguments make, or a `PlanError` that says what to change."""
    how = HOW_ALIASES.get(how, how)
    _one_of("how", how, HOWS)
    _one_of("invalid", invalid, INVALID)
    _one_of("algorithm", algorithm, ALGORITHMS)
    _one_of("keep", keep, KEEPS)
    _one_of("route", route, ROUTES)
    if route == "native" and algorithm in OPERATORS:
        raise PlanError(f"algorithm={algorithm!r} does not run on route='native'; use route='in_memory' or 'streaming'")
    if route in ("in_memory", "streaming") and algorithm in ("native", "bins", "nested_loop"):
        raise PlanError(f"algorithm={algorithm!r} does not run on route={route!r}; use one of {', '.join(OPERATORS)}")
    if keep != "all" and how == "full":
        raise PlanError(
            f"keep={keep!r} says how many matches a row of one side keeps; with how='full' use keep='all', or use "
            f"how='left' or 'right'"
        )
    return Request(
        _interval("left_interval", left_interval),
        _interval("right_interval", right_interval),
        Relation.parse(relation, strict, closed),
        parse_keys(on),
        condition,
        how,
        invalid,
        algorithm,
        _memory(memory),
        _split_points(split_points),
        _partitions(partitions, split_points),
        keep,
        _columns(columns),
        _suffixes(suffixes),
        route,
    )


def parse_keys(on: str | Sequence[str | tuple[str, str]] | None) -> tuple[Key, ...]:
    """Equality keys from "k", ["k"], [("lk", "rk")] or a mixture."""
    if on is None:
        return ()
    items = [on] if isinstance(on, str) else list(on)
    keys = []
    for item in items:
        if isinstance(item, str):
            keys.append(Key(item, item, True))
        elif isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
            keys.append(Key(item[0], item[1], False))
        else:
            raise PlanError(f"on={on!r}: each key is a column name or a (left name, right name) pair, not {item!r}")
    return tuple(keys)


def _one_of(name: str, given: Any, allowed: Sequence[str]) -> None:
    if given not in allowed:
        near = get_close_matches(str(given), allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise PlanError(f"{name}={given!r} is not known{hint} Known: {', '.join(allowed)}.")


def _interval(name: str, given: str | Sequence[str]) -> tuple[str, ...]:
    parts = (given,) if isinstance(given, str) else tuple(given)
    if len(parts) not in (1, 2) or not all(isinstance(part, str) and part for part in parts):
        raise PlanError(f"{name}={given!r} must be a (start, end) pair of column names or the name of a struct column")
    return parts


def _memory(memory: int | str) -> int:
    size = parse_bytes(memory)
    if size < MIN_MEMORY:
        raise PlanError(f"memory={memory!r} is {size} bytes; an interval join needs at least 1MB per task")
    return size


def _split_points(points: Sequence[Any] | None) -> tuple[Any, ...] | None:
    if points is None:
        return None
    if isinstance(points, str) or any(point is None for point in points):
        raise PlanError(f"split_points={points!r} must be a list of bounds, without nulls")
    return tuple(sorted(set(points)))


def _partitions(partitions: int | None, points: Sequence[Any] | None) -> int | None:
    if partitions is None:
        return None
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= 100_000:
        raise PlanError(f"partitions={partitions!r} must be a whole number from 1 to 100000")
    if points is not None and partitions != len(set(points)) + 1:
        raise PlanError(f"partitions={partitions} does not fit {len(set(points))} split points, which make one more")
    return partitions


def _columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
        raise PlanError(f"columns={columns!r} must be a list of output column names")
    return tuple(columns)


def _suffixes(suffixes: tuple[str, str]) -> tuple[str, str]:
    if len(suffixes) != 2 or not all(isinstance(suffix, str) for suffix in suffixes):
        raise PlanError(f"suffixes={suffixes!r} must be two strings, for left's and right's clashing names")
    return (suffixes[0], suffixes[1])
