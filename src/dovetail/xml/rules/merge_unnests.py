"""Two unnesting steps, one after the other, become one."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Expression, substituted
from dovetail.xml.algebra.functions import base_of_steps, is_step
from dovetail.xml.algebra.operators import Operator, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import rewrite_everywhere

_DESCENDANT = ("descendant", "descendant-or-self")


def merge_unnests(plan: Operator) -> Operator | None:
    """UNNEST($v2: g2($v1)) over UNNEST($v1: g1($v0)) becomes UNNEST($v2: g2(g1($v0))), g1 in its scalar form.

    Condition: g1 is a step and no descendant step (its sequence could be the whole document), nothing else uses $v1,
    and neither of them counts positions. `iterate` is no step: it stays, so that `introduce_scan` finds it above a
    collection. Right because a step over a sequence is its answers for each item, one after the other, as the tuples
    were.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Unnest(variable, upper, Unnest(middle, lower, below, None), None):
            if _fits(upper, lower) and base_of_steps(upper) == middle and facts.uses[middle] == 1:
                return Unnest(variable, substituted(upper, {middle: lower}), below)
    return None


def _fits(upper: Expression, lower: Expression) -> bool:
    return is_step(upper) and is_step(lower) and isinstance(lower, Call) and lower.name not in _DESCENDANT
