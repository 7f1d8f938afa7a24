"""Sorting and removing duplicates goes where the value is already so."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import Call, Expression
from dovetail.xml.algebra.functions import DISTINCT, SORT, SORT_DISTINCT
from dovetail.xml.algebra.operators import Assign, Operator
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import rewrite_everywhere


def remove_sort(plan: Operator) -> Operator | None:
    """ASSIGN($v1: sort-distinct($v0)) becomes ASSIGN($v1: $v0), or keeps the half of the work that is still needed.

    Condition: the static properties say that $v0 is in document order and without duplicates (or has at most one item,
    or only atomic values). If it is only in order, duplicates are removed; if it is only without duplicates, it is
    sorted. Right because sorting what is sorted, and removing what is not there, changes nothing; and what is sorted
    can only have its duplicates side by side.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Assign(_, Call(name, (inner,))) if name in (SORT_DISTINCT, SORT, DISTINCT):
            new = _needed(name, inner, facts)
            return replace(operator, expression=new) if new != operator.expression else None
    return None


def _needed(name: str, inner: Expression, facts: Facts) -> Expression:
    known = facts.of(inner)
    done = known.atomic or (known.node and known.at_most_one())
    sort = name != DISTINCT and not (done or (known.node and known.ordered))
    distinct = name != SORT and not (done or (known.node and known.unique))
    if not sort and not distinct:
        return inner
    return Call(SORT_DISTINCT if sort and distinct else SORT if sort else DISTINCT, (inner,))
