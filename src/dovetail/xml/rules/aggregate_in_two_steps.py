"""An aggregate is computed in each partition first, then over the partitions."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import Call, Expression
from dovetail.xml.algebra.operators import Aggregate, GroupBy, Operator, TwoStep
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import rewrite_first

STEPS_OF = {
    "count": TwoStep(("count",), "sum"),
    "avg": TwoStep(("sum", "count"), "divide"),
    "max": TwoStep(("max",), "max"),
    "min": TwoStep(("min",), "min"),
    "sum": TwoStep(("sum",), "sum"),
}


def aggregate_in_two_steps(plan: Operator) -> Operator | None:
    """AGGREGATE($v: f(e)), and f(e) in GROUP-BY, get the functions that compute f in two steps.

    Condition: f is avg, count, max, min or sum. Right because each of them can be computed from the values of the
    parts: counts and sums add up, the largest of the largest is the largest, and a mean is the sum of sums by the sum
    of counts.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Aggregate(steps=None) if (steps := _steps(operator.expression)) is not None:
            return replace(operator, steps=steps)
        case GroupBy():
            fields = tuple(replace(field, steps=_steps(field.expression)) for field in operator.gathered)
            return replace(operator, gathered=fields) if fields != operator.gathered else None
    return None


def _steps(expression: Expression) -> TwoStep | None:
    return STEPS_OF.get(expression.name) if isinstance(expression, Call) else None
