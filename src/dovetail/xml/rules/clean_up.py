"""What nobody uses goes, copies and constants are written where they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from dovetail.xml.algebra.expressions import Constant, Expression, Variable
from dovetail.xml.algebra.operators import Aggregate, Assign, GroupBy, Operator, Subplan
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import operators, renamed
from dovetail.xml.rules.matching import rewrite_everywhere


def clean_up(plan: Operator) -> Operator | None:
    """Unused ASSIGN, SUBPLAN and fields of GROUP-BY are removed; ASSIGN($v1: $v0) and constants are inlined.

    Condition: for removal, that nothing uses the variable; a constant stays where a result is distributed, because
    there only a variable can stand. Right because expressions have no effects, and a copy has the value of its
    original wherever it can be seen: what hides one (AGGREGATE, GROUP-BY) hides both.
    """
    copies = {
        operator.variable: operator.expression
        for operator in operators(plan)
        if isinstance(operator, Assign) and _inlines(operator.variable, operator.expression, plan)
    }
    new = rewrite_everywhere(plan, partial(_cleaned, copies))
    return new if new is None or not copies else renamed(new, {v: _original(v, copies) for v in copies})


def _cleaned(copies: Mapping[Variable, Expression], operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Assign(variable, _, below) if not facts.uses[variable] or variable in copies:
            return below
        case Subplan(Aggregate(variable, _, _), below) if not facts.uses[variable]:
            return below
        case GroupBy():
            kept = tuple(field for field in operator.gathered if facts.uses[field.variable])
            return replace(operator, gathered=kept) if kept != operator.gathered else None
    return None


def _original(copy: Expression, copies: Mapping[Variable, Expression]) -> Expression:
    while isinstance(copy, Variable) and copy in copies:
        copy = copies[copy]
    return copy


def _inlines(variable: Variable, value: Expression, plan: Operator) -> bool:
    if isinstance(value, Constant):
        return not (hasattr(plan, "variable") and plan.variable == variable)
    return isinstance(value, Variable)
