"""What concerns one side of a JOIN is done on that side."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import variables
from dovetail.xml.algebra.operators import Assign, DistributeResult, Join, Operator, Select, Subplan, Unnest, inputs
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import above, available, chain, stacked, used
from dovetail.xml.rules.matching import conjuncts, rewrite_first


def push_to_branch(plan: Operator) -> Operator | None:
    """SELECT, ASSIGN or SUBPLAN above a JOIN that uses fields of one branch only moves to the top of that branch.

    A SELECT of several conditions is split where one of them can move. An UNNEST may move to the inner branch only:
    there the order of the tuples stays (outer, inner, unnested); the last one, which feeds the result, stays.
    Condition: only ASSIGN, SELECT and SUBPLAN stand between the operator and the JOIN, and it uses none of their
    values. Right because these operators look at one tuple at a time, and a joined tuple has the fields of its side
    unchanged.
    """
    return rewrite_first(plan, _local, lowest=True)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    join = _join_below(operator)
    if join is None:
        return None
    match operator:
        case Select(condition, below) if len(parts := conjuncts(condition)) > 1:
            sides = [_side(set(variables(part)), join) for part in parts]
            if not any(sides):
                return None
            for part in parts:
                below = Select(part, below)
            return below
        case Select() | Assign() | Subplan():
            side = _side(set(used(operator)), join)
            return _moved(operator, join, side) if side else None
        case Unnest(position=None) if used(operator) and not _is_last(operator, facts.plan):
            return _moved(operator, join, "inner") if _side(set(used(operator)), join) == "inner" else None
    return None


def _is_last(operator: Operator, plan: Operator) -> bool:
    return isinstance(plan, DistributeResult) and plan.input is operator


def _join_below(operator: Operator) -> Join | None:
    if not isinstance(operator, (Select, Assign, Subplan, Unnest)):
        return None
    for below in chain(inputs(operator)[-1]):
        if isinstance(below, Join):
            return below
        if not isinstance(below, (Select, Assign, Subplan)):
            return None
    return None


def _side(needed: set[object], join: Join) -> str:
    """The branch that has all the fields; "" if neither has. What needs no field belongs to the outer branch."""
    if needed <= available(join.outer):
        return "outer"
    return "inner" if needed <= available(join.inner) else ""


def _moved(operator: Operator, join: Join, side: str) -> Operator:
    if side == "inner":
        new = replace(join, inner=stacked([operator], join.inner))
    else:
        new = replace(join, outer=stacked([operator], join.outer))
    return stacked(above(inputs(operator)[-1], join), new)
