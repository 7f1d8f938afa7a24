"""P9: what nobody uses goes, copies and constants are written where they are used."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xquery.algebra.expressions import Constant, Expression, Variable
from dovetail.xquery.algebra.operators import Aggregate, Assign, GroupBy, Operator, Subplan
from dovetail.xquery.algebra.properties import Facts
from dovetail.xquery.algebra.walk import exchanged, operators, renamed


def clean_up(plan: Operator) -> Operator | None:
    """Unused ASSIGN, SUBPLAN and fields of GROUP-BY are removed; ASSIGN($v1: $v0) and constants are inlined.

    Condition: for removal, that nothing uses the variable; a constant stays where a result is distributed, because
    there only a variable can stand. Right because expressions have no effects, and a copy has the value of its
    original wherever it can be seen: what hides one (AGGREGATE, GROUP-BY) hides both.
    """
    facts = Facts(plan)
    for operator in operators(plan):
        new = _cleaned(plan, operator, facts)
        if new is not None:
            return new
    return None


def _cleaned(plan: Operator, operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Assign(variable, value, below):
            if not facts.uses[variable]:
                return exchanged(plan, operator, below)
            if _inlines(variable, value, plan):
                return renamed(exchanged(plan, operator, below), {variable: value})
        case Subplan(Aggregate(variable, _, _), below) if not facts.uses[variable]:
            return exchanged(plan, operator, below)
        case GroupBy():
            kept = tuple(field for field in operator.gathered if facts.uses[field.variable])
            if kept != operator.gathered:
                return exchanged(plan, operator, replace(operator, gathered=kept))
    return None


def _inlines(variable: Variable, value: Expression, plan: Operator) -> bool:
    if isinstance(value, Constant):
        return not (hasattr(plan, "variable") and plan.variable == variable)
    return isinstance(value, Variable)
