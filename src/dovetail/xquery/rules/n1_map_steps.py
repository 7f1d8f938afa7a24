"""N1: a nested plan that only maps steps over a sequence becomes those steps."""

from __future__ import annotations

from dovetail.xquery.algebra.expressions import Call, Expression, Variable, substituted
from dovetail.xquery.algebra.functions import STEPS
from dovetail.xquery.algebra.operators import Aggregate, Assign, NestedTupleSource, Operator, Subplan, Unnest
from dovetail.xquery.algebra.properties import Facts
from dovetail.xquery.rules.matching import is_constant_collection, iterated, rewrite_first


def map_steps(plan: Operator) -> Operator | None:
    """SUBPLAN{ AGGREGATE($v2: create_sequence(s($v1))) over UNNEST($v1: iterate($v0)) } becomes ASSIGN($v2: s($v0)).

    Condition: s is a chain of steps, and $v0 is neither a collection nor gathered by another nested plan: those are
    better streamed (N2). Right because a step over a sequence is its answers for each item, one after the other.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Subplan(Aggregate(gathered, Call("create_sequence", (item,)), Unnest() as unnest), below):
            whole = iterated(unnest)
            inner = isinstance(unnest.input, NestedTupleSource)
            if whole is not None and inner and _maps(item, unnest.variable) and not _streams(whole, facts):
                return Assign(gathered, substituted(item, {unnest.variable: whole}), below)
    return None


def _maps(item: Expression, variable: Variable) -> bool:
    while isinstance(item, Call) and item.name in (*STEPS, "treat"):
        item = item.arguments[0]
    return item == variable


def _streams(whole: Variable, facts: Facts) -> bool:
    definition = facts.definitions.get(whole)
    if isinstance(definition, Assign):
        return is_constant_collection(definition.expression)
    return isinstance(definition, Aggregate)
