"""Equalities in the condition of a JOIN become keys for a hash join."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dovetail.xml.algebra.expressions import Call, Expression, variables
from dovetail.xml.algebra.operators import Equality, Join, Operator
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.property_types import NUMBERS, TEXTS
from dovetail.xml.algebra.walk import available
from dovetail.xml.rules.matching import conjuncts, rewrite_first


def recognise_keys(plan: Operator) -> Operator | None:
    """Each value-eq(a, b) and general-eq(a, b) that must hold, a from one branch and b from the other, becomes a key.

    The condition stays as it is, in XQuery's own terms, and still decides; a key says where to look. Condition: both
    sides are known to be compared as strings, as numbers, or as dates and the like. A general comparison is true if
    any pair of items is equal, so its key is marked as existential: a tuple is then found under each of its items.
    Right because equal values have equal keys.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    if not isinstance(operator, Join):
        return None
    found = (_key(part, operator, facts) for part in conjuncts(operator.condition))
    keys = tuple(key for key in found if key is not None)
    return replace(operator, keys=keys) if keys != operator.keys else None


def _key(part: Expression, join: Join, facts: Facts) -> Equality | None:
    match part:
        case Call("boolean", (Call("value-eq" | "general-eq") as inner,)):
            return _key(inner, join, facts)
        case Call("value-eq" | "general-eq" as name, (left, right)):
            sides = _sided(left, right, join)
            kind = _kind(name, facts.of(left).type, facts.of(right).type)
            return Equality(*sides, kind, name == "general-eq") if sides and kind else None
    return None


def _sided(left: Expression, right: Expression, join: Join) -> tuple[Expression, Expression] | None:
    """The two operands, that of the inner branch first; None if they are not from one branch each."""
    inner, outer = available(join.inner), available(join.outer)
    for one, other in ((left, right), (right, left)):
        mine, theirs = set(variables(one)), set(variables(other))
        if mine and theirs and mine <= inner and theirs <= outer:
            return one, other
    return None


_VALUES = ("boolean", "date", "dateTime", "time")


def _kind(name: str, left: str, right: str) -> Literal["string", "number", "value"] | None:
    if left in TEXTS and right in TEXTS:
        return "string"
    if left in NUMBERS and right in NUMBERS:
        return "number"
    if left == right and left in _VALUES:
        return "value"
    mixed = {left, right} & {"untypedAtomic"} and ({left, right} & set(NUMBERS))
    return "number" if name == "general-eq" and mixed else None
