"""From a relation to what the sweeps need to know about it: the 81 flags, and which side starts first."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from dovetail.engine.kernels.arrays import Bool, readonly
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.sweep_state import (
    ALWAYS,
    ANY,
    R_FIRST,
    R_FIRST_STRICT,
    S_FIRST,
    S_FIRST_STRICT,
    Rule,
)
from dovetail.joins.interval.relation import EQUAL, GREATER, LESS, Relation

Signs = tuple[int, int, int, int]
_ORDER_NAMES = {
    ANY: "any order",
    R_FIRST: "outer first",
    R_FIRST_STRICT: "outer strictly first",
    S_FIRST: "inner first",
    S_FIRST_STRICT: "inner strictly first",
}


@functools.lru_cache(maxsize=256)
def pair_rule(relation: Relation, halves: int, shift: int, range_start: int | None, exchange: bool) -> Rule:
    """The rule by which a sweep decides pairs; with `exchange` the right input is R and the left one S.

    `PlanError` if the relation holds for intervals that share no point: a sweep never brings those together.
    """
    seen = relation.swapped() if exchange else relation
    outcomes = [(seen.holds(*signs), shares, signs) for signs, shares in _outcomes(seen, halves, shift)]
    if any(holds and not shares for holds, shares, _ in outcomes):
        raise PlanError(
            f"relation {relation} also holds between intervals that share no point, which the interval operators never "
            f"compare; use a nested-loop, inequality or equality join for it."
        )
    check = any(shares and not holds for holds, shares, _ in outcomes)
    order = _order([signs[0] for holds, _, signs in outcomes if holds])
    start = ALWAYS if range_start is None else range_start
    return Rule(readonly(seen.table(), np.bool_), halves, shift, check, start, order)


@functools.lru_cache(maxsize=256)
def slot_tests(relation: Relation, halves: int, shift: int, exchange: bool) -> Bool:
    """What the relation demands of the slots of a pair beyond overlap: which side starts first, and which ends first.

    In the order R starts, S starts, S ends, R ends no later than the other. Ends are left untested with half steps,
    where equal bounds may have different last instants.
    """
    seen = relation.swapped() if exchange else relation
    signs = [signs for signs, shares in _outcomes(seen, halves, shift) if shares and seen.holds(*signs)]
    starts, ends = {ss for ss, _, _, _ in signs}, {ee for _, _, _, ee in signs}
    tests = [
        GREATER not in starts,
        LESS not in starts,
        LESS not in ends and not halves,
        GREATER not in ends and not halves,
    ]
    return readonly(np.array(tests), np.bool_)


def order_name(order: int) -> str:
    """How explain() words which side starts first."""
    return _ORDER_NAMES[order]


def _outcomes(relation: Relation, halves: int, shift: int) -> Iterator[tuple[Signs, bool]]:
    """How the bounds of two non-empty intervals can compare, and whether their codes then overlap.

    Without half steps a code is a raw bound, ends moved by `shift`, so codes decide. With them, the caller's codes
    overlap exactly when the intervals share a point as `closed` says.
    """
    points = range(-1, 5)
    for a, b, c, d in itertools.product(points, repeat=4):
        if halves == 0:
            if a < b + shift and c < d + shift:
                yield _signs(a, b, c, d), a < d + shift and c < b + shift
        elif _holds_a_point(a, b, relation.left_closed) and _holds_a_point(c, d, relation.right_closed):
            signs = _signs(a, b, c, d)
            yield signs, _share_a_point(relation, signs)


def _share_a_point(relation: Relation, signs: Signs) -> bool:
    _, se, es, _ = signs
    starts_in_time = se == LESS or (se == EQUAL and relation.touching_start)
    return starts_in_time and (es == GREATER or (es == EQUAL and relation.touching_end))


def _holds_a_point(start: int, end: int, closed: str) -> bool:
    return start < end or (start == end and closed == "both")


def _signs(a: int, b: int, c: int, d: int) -> Signs:
    return _sign(a, c), _sign(a, d), _sign(b, c), _sign(b, d)


def _sign(a: int, b: int) -> int:
    return LESS if a < b else GREATER if a > b else EQUAL


def _order(starts: list[int]) -> int:
    if all(sign == LESS for sign in starts):
        return R_FIRST_STRICT
    if all(sign == GREATER for sign in starts):
        return S_FIRST_STRICT
    if all(sign != GREATER for sign in starts):
        return R_FIRST
    return S_FIRST if all(sign != LESS for sign in starts) else ANY
