"""A nested plan that only maps steps over a sequence becomes those steps."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Expression, Variable, substituted
from dovetail.xml.algebra.functions import DISTINCT, SORT, SORT_DISTINCT, STEPS, base_of_steps, is_step
from dovetail.xml.algebra.operators import Aggregate, Assign, NestedTupleSource, Operator, Subplan, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import is_constant_collection, iterated, rewrite_first


def map_steps(plan: Operator) -> Operator | None:
    """SUBPLAN{ AGGREGATE($v2: create_sequence(s($v1))) over UNNEST($v1: iterate($v0)) } becomes ASSIGN($v2: s($v0)).

    The UNNEST may also be that of a step, which then becomes part of the chain. Condition: s is a chain of steps, and
    $v0 is neither a collection nor gathered by another nested plan: those are better streamed (`sink_into_subplan`).
    Right because a step over a sequence is its answers for each item, one after the other.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Subplan(Aggregate(gathered, Call("create_sequence", (item,)), Unnest() as unnest), below):
            whole = _sequence(unnest)
            inner = isinstance(unnest.input, NestedTupleSource)
            if whole is not None and inner and _maps(item, unnest.variable) and not _streams(whole, facts):
                return Assign(gathered, substituted(item, {unnest.variable: whole}), below)
    return None


def _sequence(unnest: Unnest) -> Expression | None:
    """What the UNNEST takes apart: a variable, or steps from one."""
    if unnest.position is not None:
        return None
    return iterated(unnest) or (unnest.expression if is_step(unnest.expression) else None)


def _maps(item: Expression, variable: Variable) -> bool:
    while isinstance(item, Call) and item.name in (*STEPS, "treat"):
        item = item.arguments[0]
    return item == variable


def _streams(whole: Expression, facts: Facts) -> bool:
    base = base_of_steps(whole)
    definition = facts.definitions.get(base) if isinstance(base, Variable) else None
    match definition:
        case Assign(_, Call(name, (Variable() as inner,))) if name in (SORT_DISTINCT, SORT, DISTINCT):
            return _streams(inner, facts)
        case Assign(_, expression):
            return is_constant_collection(expression)
    return isinstance(definition, Aggregate)
