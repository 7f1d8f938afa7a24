"""What makes a join an interval join: an interval function, or two comparisons that say "overlap"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.rewrite.conditions import EQUALITIES, Bounds, Comparison, Condition, Numbers
from dovetail.rewrite.names import Term

MOST_CANDIDATES = 6


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two comparisons that make an overlap: left start before right end, left end after right start.

    A touch counts where the comparison allows equality. Any two comparisons in opposite directions fit, also those
    of a point between bounds and of containment.
    """

    terms: tuple[Term, Term, Term, Term]
    touching_start: bool  # left start <= right end
    touching_end: bool  # left end >= right start
    used: frozenset[tuple[int, int]]  # (condition, comparison), by number

    def __str__(self) -> str:
        ls, le, rs, re = (term.shown for term in self.terms)
        before, after = ("<=" if self.touching_start else "<"), (">=" if self.touching_end else ">")
        return f"{ls} {before} {re} and {le} {after} {rs}"


@dataclass(frozen=True, slots=True)
class Key:
    """An equality between the two sides, and the condition that said it; `<=>` takes nulls as equal."""

    left: Term
    operator: str
    right: Term
    condition: Condition


@dataclass(frozen=True, slots=True)
class Found:
    """An interval predicate between two sides, with the equality keys and all else that its join must respect."""

    terms: tuple[Term, Term, Term, Term]
    bounds: Bounds | None  # an interval function
    overlap: Overlap | None  # or the raw form
    keys: tuple[Key, ...]
    residual: tuple[Condition, ...]
    consumed: tuple[Condition, ...]  # what the join takes over from WHERE, or says itself


def find_functions(conditions: Sequence[Condition], left: Numbers, right: Numbers) -> list[int]:
    """Which conditions are interval functions between the two sides."""
    return [n for n, each in enumerate(conditions) if each.bounds and each.bounds.across(left, right)]


def find_overlaps(conditions: Sequence[Condition], left: Numbers, right: Numbers) -> list[Overlap]:
    """The pairs of comparisons between the two sides that read as an overlap, in the order of the text."""
    across = [
        ((n, m), turned)
        for n, each in enumerate(conditions)
        for m, comparison in enumerate(each.comparisons)
        if (turned := comparison.across(left, right)) is not None
    ]
    upper = [(at, each) for at, each in across if each.operator in ("<", "<=")]
    lower = [(at, each) for at, each in across if each.operator in (">", ">=")]
    found = [_overlap(first, second, frozenset({a, b})) for a, first in upper for b, second in lower]
    return found[:MOST_CANDIDATES]


def _overlap(first: Comparison, second: Comparison, used: frozenset[tuple[int, int]]) -> Overlap:
    terms = (first.left, second.left, second.right, first.right)
    return Overlap(terms, first.operator == "<=", second.operator == ">=", used)


def found_function(
    must: Sequence[Condition], may: Sequence[Condition], chosen: int, sides: tuple[Numbers, Numbers]
) -> Found:
    """The join that the chosen interval function makes; further functions become conditions on the pair."""
    conditions = [*must, *may]
    bounds = conditions[chosen].bounds
    turned = bounds and bounds.across(*sides)
    assert turned is not None, "chosen among those that fall on both sides"  # noqa: S101  (by find_functions)
    keys, takes = _keys(conditions, sides)
    others = [each for n, each in enumerate(conditions) if n != chosen and n not in takes]
    residual = tuple(each for each in others if each in must or each.bounds)
    consumed = (conditions[chosen], *(conditions[n] for n in takes), *(each for each in residual if each.bounds))
    return Found(turned.terms, turned, None, keys, residual, consumed)


def found_overlap(
    must: Sequence[Condition], may: Sequence[Condition], chosen: Overlap, sides: tuple[Numbers, Numbers]
) -> Found:
    """The join that the chosen comparisons make; a BETWEEN of which only one half is used stays a condition."""
    conditions = [*must, *may]
    keys, takes = _keys(conditions, sides)
    whole = {
        n
        for n, each in enumerate(conditions)
        if each.comparisons and all((n, m) in chosen.used for m in range(len(each.comparisons)))
    }
    said = whole | takes
    residual = tuple(each for n, each in enumerate(conditions) if n not in said and each in must)
    return Found(chosen.terms, None, chosen, keys, residual, tuple(conditions[n] for n in sorted(said)))


def _keys(conditions: Sequence[Condition], sides: tuple[Numbers, Numbers]) -> tuple[tuple[Key, ...], set[int]]:
    keys, takes = [], set()
    for n, each in enumerate(conditions):
        turned = each.comparisons[0].across(*sides) if len(each.comparisons) == 1 else None
        if turned is not None and turned.operator in EQUALITIES:
            keys.append(Key(turned.left, turned.operator, turned.right, each))
            takes.add(n)
    return tuple(keys), takes
