"""A nested plan that goes through one item goes."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, substituted
from dovetail.xml.algebra.operators import Aggregate, Assign, NestedTupleSource, Operator, Subplan, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import iterated, rewrite_everywhere


def inline_single_item(plan: Operator) -> Operator | None:
    """SUBPLAN{ AGGREGATE($v2: create_sequence(e($v1))) over UNNEST($v1: iterate($v0)) } becomes ASSIGN($v2: e($v0)).

    Condition: $v0 is exactly one item. Right because the nested plan then has one tuple, in which $v1 is $v0, and the
    sequence gathered from one tuple is its value.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Subplan(Aggregate(gathered, Call("create_sequence", (item,)), Unnest() as unnest), below):
            whole = iterated(unnest)
            inner = isinstance(unnest.input, NestedTupleSource)
            if whole is not None and inner and facts.of(whole).cardinality == "one":
                return Assign(gathered, substituted(item, {unnest.variable: whole}), below)
    return None
