"""An AGGREGATE that gathers what is taken apart right above it goes."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call
from dovetail.xml.algebra.operators import Aggregate, Assign, Operator, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import iterated, rewrite_everywhere


def drop_aggregate(plan: Operator) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over AGGREGATE($v1: create_sequence($v0)) becomes the UNNEST over ASSIGN($v1: $v0).

    Condition: nothing else uses $v1. Right because the sequence is the values of $v0 one after the other, and taking
    each value apart where it is gives the same items in the same order; without tuples there are no items either way.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Unnest(variable, iterate, Aggregate(gathered, Call("create_sequence", (item,)), below)):
            if iterated(operator) == gathered and facts.uses[gathered] == 1:
                return Unnest(variable, iterate, Assign(gathered, item, below))
    return None
