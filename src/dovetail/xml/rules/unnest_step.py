"""A step that is computed as a sequence and taken apart right away becomes an unnesting step."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import Call, Variable
from dovetail.xml.algebra.functions import is_step
from dovetail.xml.algebra.operators import Assign, Operator, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import rewrite_everywhere


def unnest_step(plan: Operator) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over ASSIGN($v1: g($v0)) becomes UNNEST($v2: g($v0)).

    Condition: g is a step, which has an unnesting form; nothing else uses $v1. Positions stay what they are.
    Right because the unnesting form gives the items of the sequence one by one, in the same order.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Unnest(_, Call("iterate", (Variable() as value,)), Assign(assigned, step, below)):
            if value == assigned and facts.uses[value] == 1 and is_step(step):
                return replace(operator, expression=step, input=below)
    return None
