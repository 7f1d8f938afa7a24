"""Relations between two intervals, and the codes of bounds on which they are decided.

Every relation is a Boolean function of how the bounds compare: left start and left end against right start and
right end, each less, equal or greater. That is 81 cases, so a relation, or any set of relations, is a table of 81
flags; kernels look a pair up, and SQL is printed from the same definitions.

Kernels see bounds as int64 codes that compare as the bounds do. After encoding, every interval is half-open: it
overlaps another exactly if start_l < end_r and start_r < end_l, whatever `closed` said. The bounds as written compare
as start >> h and (end - shift) >> h.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.rows.keys import NARROW_DIGITS, Bounds, bound_codes, decimal_words, flags_of, whole
from dovetail.errors import PlanError, UnsupportedError
from dovetail.request import CLOSED, Closed, items_of, one_of

RelationName = Literal[
    "overlapping", "before", "after", "meets", "met_by", "overlaps", "overlapped_by", "starts", "started_by", "ends",
    "ended_by", "covers", "covered_by", "equals", "contains", "during", "finishes", "finished_by",
]  # fmt: skip

LESS, EQUAL, GREATER = 0, 1, 2


def sign(a: int, b: int) -> int:
    """How the two compare: LESS, EQUAL or GREATER."""
    return LESS if a < b else EQUAL if a == b else GREATER


# Conditions of each relation on the left start and end (ls, le) and the right ones (rs, re). Loose ones are table 6.2
# of the source, strict ones Allen's own. `overlapping` depends on `closed`: see `Relation`.
_LOOSE = {
    "before": "le < rs",
    "after": "ls > re",
    "meets": "le = rs",
    "met_by": "ls = re",
    "overlaps": "ls < rs and le < re and le > rs",
    "overlapped_by": "ls > rs and le > re and ls < re",
    "starts": "ls = rs and le <= re",
    "started_by": "ls = rs and le >= re",
    "ends": "le = re and ls >= rs",
    "ended_by": "le = re and ls <= rs",
    "covers": "ls <= rs and le >= re",
    "covered_by": "ls >= rs and le <= re",
    "equals": "ls = rs and le = re",
}
_STRICT = _LOOSE | {
    "starts": "ls = rs and le < re",
    "started_by": "ls = rs and le > re",
    "ends": "le = re and ls > rs",
    "ended_by": "le = re and ls < rs",
    "covers": "ls < rs and le > re",
    "covered_by": "ls > rs and le < re",
}
_COMPARISONS = {("ls", "rs"): 0, ("ls", "re"): 1, ("le", "rs"): 2, ("le", "re"): 3}
_SIGNS = {"<": {LESS}, "<=": {LESS, EQUAL}, "=": {EQUAL}, ">=": {EQUAL, GREATER}, ">": {GREATER}}


@functools.cache
def _tests(formula: str) -> list[tuple[int, set[int]]]:
    """A formula as comparisons of bounds, by their numbers, and the outcomes that each allows."""
    parts = (part.split() for part in formula.split(" and "))
    return [(_COMPARISONS[left, right], _SIGNS[sign]) for left, sign, right in parts]


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
        names = [relation] if isinstance(relation, str) else items_of(relation)
        if names is None or not all(isinstance(name, str) for name in names):
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

    def _formula(self, name: str) -> str:
        if name == "overlapping":
            return f"ls {'<=' if self.touching_start else '<'} re and le {'>=' if self.touching_end else '>'} rs"
        return (_STRICT if self.strict else _LOOSE)[name]

    def holds(self, ss: int, se: int, es: int, ee: int) -> bool:
        """Whether the relation holds: left start against right start and end, left end against right start and end.

        Each is LESS, EQUAL or GREATER.
        """
        signs = ss, se, es, ee
        formulas = map(self._formula, self.names)
        return any(all(signs[at] in allowed for at, allowed in _tests(formula)) for formula in formulas)

    def shares_point(self, se: int, es: int) -> bool:
        """Whether two intervals share a point: left start against right end, and left end against right start."""
        return all((se, es)[at - 1] in allowed for at, allowed in _tests(self._formula("overlapping")))

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
        bounds = {"ls": ls, "le": le, "rs": rs, "re": re}
        formulas = (self._formula(name) for name in sorted(self.names))
        return " or ".join(f"({' '.join(bounds.get(word, word) for word in each.split())})" for each in formulas)

    def __str__(self) -> str:
        return "|".join(sorted(self.names)) + (" (strict)" if self.strict else "")


def _pair(closed: object) -> tuple[str, str]:
    if isinstance(closed, (tuple, list)) and len(closed) == 2:
        return str(closed[0]), str(closed[1])
    raise PlanError(
        f"closed={closed!r} must be one of {', '.join(CLOSED)}, or a pair of them, one per input.", argument="closed"
    )


EQUALITIES = frozenset({"starts", "started_by", "ends", "ended_by", "equals", "meets", "met_by"})


_ORDERS = tuple(map(frozenset, (("before",), ("before", "meets"), ("after",), ("after", "met_by"))))


def strategy(relation: Relation) -> str:
    """How pairs of a relation can be found: bins, equality, order (one inequality of bounds) or nested_loop."""
    if relation.only in EQUALITIES:
        return "equality"
    if relation.names in _ORDERS:
        return "order"
    return "nested_loop" if _holds_apart(relation) else "bins"


def _holds_apart(relation: Relation) -> bool:
    """Whether the relation can hold for two intervals that neither share nor touch a point."""
    spans = list(itertools.combinations_with_replacement(range(4), 2))
    apart = [(a, b) for a, b in itertools.product(spans, repeat=2) if a[1] < b[0] or a[0] > b[1]]
    return any(relation.holds(*(sign(x, y) for x in a for y in b)) for a, b in apart)


USABLE, NULL_BOUND, EMPTY, INVERTED = 0, 1, 2, 3

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class SideColumns:
    """The columns of a side, each with its place in the stream, and which of them are bounds and keys."""

    columns: Mapping[str, str]
    start: str
    end: str
    keys: tuple[str, ...]
    closed: Closed


@dataclass(frozen=True, slots=True)
class Encoded:
    """Both inputs' bounds as half-open codes on one scale, with h and shift to get back to the written order."""

    left_start: I64
    left_end: I64
    right_start: I64
    right_end: I64
    h: int
    shift: int


@dataclass(frozen=True, slots=True)
class EncodedSide:
    """One input's bounds as half-open codes on a scale that does not depend on the rows."""

    start: I64
    end: I64
    h: int
    shift: int


def classify(start: Bounds, end: Bounds, closed: Closed) -> npt.NDArray[np.int8]:
    """Per row: 0 usable, 1 a bound is null, 2 empty (no point between its bounds), 3 inverted or with a NaN."""
    kinds = np.zeros(len(start), np.int8)
    if closed != "both":
        kinds[flags_of(pc.equal(start, end))] = EMPTY
    kinds[flags_of(pc.greater(start, end))] = INVERTED
    for bound in (start, end):
        if pa.types.is_floating(bound.type):
            kinds[flags_of(pc.is_nan(bound))] = INVERTED
    for bound in (start, end):
        if bound.null_count:
            kinds[flags_of(pc.is_null(bound))] = NULL_BOUND
    return kinds


def encode_sides(
    left: tuple[Bounds, Bounds],
    right: tuple[Bounds, Bounds],
    left_closed: Closed = "left",
    right_closed: Closed = "left",
) -> Encoded:
    """Both inputs, each as (starts, ends), on one scale; every bound of one Arrow type.

    If the bounds leave no room for the half-open form (mixed `closed` on wide numbers, a closed end at
    the largest int64, decimals of more than 18 digits), codes are ranks among all bounds. Rows that `classify` does not
    call usable get codes, too, which the caller leaves out; they do not change the others.
    """
    _check_one_type(*left, *right)
    h, shift = _scale(left_closed, right_closed)
    kind = left[0].type
    if pa.types.is_decimal(kind) and kind.precision > NARROW_DIGITS:
        h, shift, bounds = 1, 0, _ranks([decimal_words(whole(array)) for array in (*left, *right)])
    else:
        bounds = [bound_codes(array) for array in (*left, *right)]
        if not all(_has_room(bound, h, shift) for bound in bounds):
            h, shift, bounds = 1, 0, _ranks([(bound,) for bound in bounds])
    ls, le = _half_open(bounds[0], bounds[1], left_closed, h, shift)
    rs, re = _half_open(bounds[2], bounds[3], right_closed, h, shift)
    return Encoded(ls, le, rs, re, h, shift)


def encode_stream(start: Bounds, end: Bounds, closed: Closed = "left", other_closed: Closed = "left") -> EncodedSide:
    """Bounds of one input, or of one batch of it, on a scale that any other batch of either input shares.

    `closed` is this input's, `other_closed` the other's. Bounds that would need ranks are an `UnsupportedError`.
    """
    _check_one_type(start, end)
    h, shift = _scale(closed, other_closed)
    codes = bound_codes(start), bound_codes(end)
    if not all(_has_room(bound, h, shift) for bound in codes):
        raise UnsupportedError(
            f"intervals of {start.type} closed {closed!r} against {other_closed!r} need codes beyond 64 bits; "
            "give both inputs the same `closed`, or read both whole (algorithm='native')."
        )
    return EncodedSide(*_half_open(*codes, closed, h, shift), h, shift)


def _scale(left_closed: Closed, right_closed: Closed) -> tuple[int, int]:
    """h and shift: one code a bound if both inputs are closed alike, else two, so that an open start comes second."""
    if left_closed != right_closed:
        return 1, 0
    return 0, 1 if left_closed == "both" else 0


def _has_room(codes: I64, h: int, shift: int) -> bool:
    if not len(codes) or (h, shift) == (0, 0):
        return True
    least, most = int(codes.min()), int(codes.max())
    return (most < 2**62 and least >= -(2**62)) if h else most + shift <= _LARGEST


def _half_open(start: I64, end: I64, closed: Closed, h: int, shift: int) -> tuple[I64, I64]:
    if h == 0:
        return start, int64s(end + shift) if shift else end
    opens_after = 0 if closed in ("left", "both") else 1
    ends_after = 1 if closed in ("right", "both") else 0
    return int64s((start << 1) + opens_after), int64s((end << 1) + ends_after)


def _ranks(bounds: Sequence[tuple[I64, ...]]) -> list[I64]:
    """Dense ranks among all bounds together; a bound is one column of numbers or several, most significant first."""
    columns = [np.concatenate(parts) for parts in zip(*bounds, strict=True)]
    order = None
    for column in reversed(columns):
        order = stable_order(column, order)
    fresh = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        ascending = column[order]
        fresh[1:] |= ascending[1:] != ascending[:-1]
    ranks = np.empty(len(fresh), np.int64)
    ranks[order] = np.cumsum(fresh)
    return np.split(ranks, np.cumsum([len(bound[0]) for bound in bounds])[:-1])


def _check_one_type(*bounds: Bounds) -> None:
    kinds = {str(bound.type) for bound in bounds}
    if len(kinds) > 1:
        raise PlanError(f"interval bounds have types {', '.join(sorted(kinds))}; cast them all to one.")
