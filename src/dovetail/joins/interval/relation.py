"""Relations between two intervals, each defined as one table over the four comparisons of their bounds.

Every relation is a Boolean function of how the bounds compare: left start and left end against right start and
right end, each less, equal or greater. That is 81 cases, so a relation, or any set of relations, is a table of 81
flags; kernels look a pair up, and SQL is printed from the same definitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from dovetail.errors import PlanError
from dovetail.request import one_of

RelationName = Literal[
    "overlapping", "before", "after", "meets", "met_by", "overlaps", "overlapped_by", "starts", "started_by", "ends",
    "ended_by", "covers", "covered_by", "equals", "contains", "during", "finishes", "finished_by",
]  # fmt: skip
Closed = Literal["left", "right", "both", "neither"]
Formula = Callable[[int, int, int, int], bool]

LESS, EQUAL, GREATER = 0, 1, 2


def sign(a: int, b: int) -> int:
    """How the two compare: LESS, EQUAL or GREATER."""
    return LESS if a < b else EQUAL if a == b else GREATER


# Each formula sees (ss, se, es, ee): how the left start compares with the right start and the right end, then how the
# left end with the right start and the right end. Loose formulas are table 6.2 of the source, strict ones Allen's own.
_LOOSE: dict[str, Formula] = {
    "before": lambda ss, se, es, ee: es == LESS,
    "after": lambda ss, se, es, ee: se == GREATER,
    "meets": lambda ss, se, es, ee: es == EQUAL,
    "met_by": lambda ss, se, es, ee: se == EQUAL,
    "overlaps": lambda ss, se, es, ee: ss == LESS and ee == LESS and es == GREATER,
    "overlapped_by": lambda ss, se, es, ee: ss == GREATER and ee == GREATER and se == LESS,
    "starts": lambda ss, se, es, ee: ss == EQUAL and ee != GREATER,
    "started_by": lambda ss, se, es, ee: ss == EQUAL and ee != LESS,
    "ends": lambda ss, se, es, ee: ee == EQUAL and ss != LESS,
    "ended_by": lambda ss, se, es, ee: ee == EQUAL and ss != GREATER,
    "covers": lambda ss, se, es, ee: ss != GREATER and ee != LESS,
    "covered_by": lambda ss, se, es, ee: ss != LESS and ee != GREATER,
    "equals": lambda ss, se, es, ee: ss == EQUAL and ee == EQUAL,
}
_STRICT: dict[str, Formula] = _LOOSE | {
    "starts": lambda ss, se, es, ee: ss == EQUAL and ee == LESS,
    "started_by": lambda ss, se, es, ee: ss == EQUAL and ee == GREATER,
    "ends": lambda ss, se, es, ee: ee == EQUAL and ss == GREATER,
    "ended_by": lambda ss, se, es, ee: ee == EQUAL and ss == LESS,
    "covers": lambda ss, se, es, ee: ss == LESS and ee == GREATER,
    "covered_by": lambda ss, se, es, ee: ss == GREATER and ee == LESS,
}

ALIASES = {"contains": "covers", "during": "covered_by", "finishes": "ends", "finished_by": "ended_by"}
INVERSE = {
    "overlapping": "overlapping",
    "before": "after",
    "meets": "met_by",
    "overlaps": "overlapped_by",
    "starts": "started_by",
    "covers": "covered_by",
    "ends": "ended_by",
    "equals": "equals",
}
INVERSE |= {inverse: name for name, inverse in INVERSE.items()}
RELATIONS: tuple[str, ...] = ("overlapping", *_LOOSE)
CLOSED: tuple[Closed, ...] = get_args(Closed)

# What a relation says in Spark SQL, over the four bounds; `overlapping` depends on `closed` and is printed by Relation.
_SQL = {
    "before": "{le} < {rs}",
    "after": "{ls} > {re}",
    "meets": "{le} = {rs}",
    "met_by": "{ls} = {re}",
    "overlaps": "{ls} < {rs} and {le} < {re} and {le} > {rs}",
    "overlapped_by": "{ls} > {rs} and {le} > {re} and {ls} < {re}",
    "starts": "{ls} = {rs} and {le} <= {re}",
    "started_by": "{ls} = {rs} and {le} >= {re}",
    "ends": "{le} = {re} and {ls} >= {rs}",
    "ended_by": "{le} = {re} and {ls} <= {rs}",
    "covers": "{ls} <= {rs} and {le} >= {re}",
    "covered_by": "{ls} >= {rs} and {le} <= {re}",
    "equals": "{ls} = {rs} and {le} = {re}",
}
_SQL_STRICT = _SQL | {
    "starts": "{ls} = {rs} and {le} < {re}",
    "started_by": "{ls} = {rs} and {le} > {re}",
    "ends": "{le} = {re} and {ls} > {rs}",
    "ended_by": "{le} = {re} and {ls} < {rs}",
    "covers": "{ls} < {rs} and {le} > {re}",
    "covered_by": "{ls} > {rs} and {le} < {re}",
}


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation or a set of them, between intervals whose bounds are closed as said; a pair matches once.

    `strict` gives Allen's relations instead of the source's, where equal intervals also start, end and cover each
    other. `overlapping` means that the two share a point: what `closed` says about the bounds decides touching
    intervals. Every other relation compares bounds as written, whatever `closed` says. Points are dense: (3, 4)
    is not empty, also for whole numbers.
    Reference: Carman 2020, tables 6.1 and 6.2, corrected; docs/algorithms/interval.md, 1.2 and 1.3.
    """

    names: frozenset[str]
    strict: bool = False
    left_closed: Closed = "left"
    right_closed: Closed = "left"

    def __post_init__(self) -> None:
        if not self.names:
            raise PlanError(
                f"relation is an empty set; name at least one of {', '.join(RELATIONS)}.", argument="relation"
            )
        for name in self.names:
            if name not in RELATIONS:
                one_of("relation", name, get_args(RelationName))
        for side in (self.left_closed, self.right_closed):
            one_of("closed", side, CLOSED)

    @classmethod
    def parse(
        cls,
        relation: str | Iterable[str],
        strict: bool = False,
        closed: str | tuple[str, str] = "left",
    ) -> Relation:
        """The relation that a user's arguments name; aliases carry Allen's meaning."""
        names = [relation] if isinstance(relation, str) else list(relation)
        if not all(isinstance(name, str) for name in names):
            raise PlanError(
                f"relation={relation!r} must be a name or a set of names: {', '.join(RELATIONS)}.", argument="relation"
            )
        left, right = (closed, closed) if isinstance(closed, str) else _pair(closed)
        canonical = frozenset(ALIASES.get(name.lower(), name.lower()) for name in names)
        return cls(canonical, strict, left, right)  # type: ignore[arg-type]  # checked in __post_init__

    @property
    def touching_start(self) -> bool:
        """Whether a left interval that starts where the right one ends shares that point with it."""
        return self.left_closed in ("left", "both") and self.right_closed in ("right", "both")

    @property
    def touching_end(self) -> bool:
        """Whether a left interval that ends where the right one starts shares that point with it."""
        return self.left_closed in ("right", "both") and self.right_closed in ("left", "both")

    @property
    def only(self) -> str | None:
        """The name, if there is just one."""
        return next(iter(self.names)) if len(self.names) == 1 else None

    def holds(self, ss: int, se: int, es: int, ee: int) -> bool:
        """Whether the relation holds for bounds that compare so (LESS, EQUAL or GREATER each)."""
        formulas = _STRICT if self.strict else _LOOSE
        return any(
            self.shares_point(se, es) if name == "overlapping" else formulas[name](ss, se, es, ee)
            for name in self.names
        )

    def shares_point(self, se: int, es: int) -> bool:
        """Whether two intervals share a point: left start against right end, and left end against right start."""
        starts_in_time = se == LESS or (se == EQUAL and self.touching_start)
        ends_in_time = es == GREATER or (es == EQUAL and self.touching_end)
        return starts_in_time and ends_in_time

    def table(self) -> npt.NDArray[np.bool_]:
        """81 flags, indexed by 27 * ss + 9 * se + 3 * es + ee."""
        return np.array([self.holds(*signs) for signs in itertools.product((LESS, EQUAL, GREATER), repeat=4)])

    def swapped(self) -> Relation:
        """The same relation seen from the right input: holds(l, r) = swapped.holds(r, l)."""
        return Relation(
            frozenset(INVERSE[name] for name in self.names), self.strict, self.right_closed, self.left_closed
        )

    def sql(self, ls: str, le: str, rs: str, re: str) -> str:
        """The relation as a Spark SQL condition over four bound expressions."""
        return " or ".join(f"({self._sql_of(name, ls, le, rs, re)})" for name in sorted(self.names))

    def _sql_of(self, name: str, ls: str, le: str, rs: str, re: str) -> str:
        if name == "overlapping":
            before_end = "<=" if self.touching_start else "<"
            after_start = ">=" if self.touching_end else ">"
            return f"{ls} {before_end} {re} and {le} {after_start} {rs}"
        return (_SQL_STRICT if self.strict else _SQL)[name].format(ls=ls, le=le, rs=rs, re=re)

    def __str__(self) -> str:
        return "|".join(sorted(self.names)) + (" (strict)" if self.strict else "")


def _pair(closed: object) -> tuple[str, str]:
    if isinstance(closed, (tuple, list)) and len(closed) == 2:
        return str(closed[0]), str(closed[1])
    raise PlanError(
        f"closed={closed!r} must be one of {', '.join(CLOSED)}, or a pair of them, one per input.", argument="closed"
    )
