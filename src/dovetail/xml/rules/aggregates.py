"""Rules for aggregates: computed while tuples come, and in two steps."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import AGGREGATES, Call, Expression, Variable, is_step, substituted, with_children
from dovetail.xml.algebra.operators import Aggregate, Assign, Gathered, GroupBy, Operator, Subplan, TwoStep
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import exchanged, operators
from dovetail.xml.rules.matching import rewrite_first


def aggregate_incrementally(plan: Operator) -> Operator | None:
    """ASSIGN($v2: f($v1)) over SUBPLAN{ AGGREGATE($v1: create_sequence(e)) } becomes SUBPLAN{ AGGREGATE($v2: f(e)) }.

    f is avg, count, max, min or sum. The same holds for a field of GROUP-BY, where f may also be applied to a step
    from it. Condition: nothing else uses $v1 (a field of GROUP-BY may have other uses: it stays beside the new one).
    Right because f of a sequence is f over the items of its parts, one after the other.
    """
    facts = Facts(plan)
    for operator in operators(plan):
        match operator:
            case Assign(_, Call(name, (value,))) if name in AGGREGATES:
                new = _nested(plan, operator, value, facts) or _grouped(plan, operator, value, facts)
                if new is not None:
                    return new
    return None


def _nested(plan: Operator, assign: Assign, value: Expression, facts: Facts) -> Operator | None:
    gathered = facts.definitions.get(value) if isinstance(value, Variable) else None
    match gathered:
        case Aggregate(variable, Call("create_sequence", (item,)), below) if facts.uses[variable] == 1:
            subplan = next(o for o in operators(plan) if isinstance(o, Subplan) and o.nested is gathered)
            new = Subplan(Aggregate(assign.variable, with_children(assign.expression, (item,)), below), subplan.input)
            without = exchanged(plan, assign, assign.input)
            return exchanged(without, subplan, new)
    return None


def _grouped(plan: Operator, assign: Assign, value: Expression, facts: Facts) -> Operator | None:
    written = _written_out(value, facts)
    base = _base(written)
    group = facts.definitions.get(base) if base is not None else None
    if base is None or not isinstance(group, GroupBy):
        return None
    field = next((one for one in group.gathered if one.variable == base), None)
    match field:
        case Gathered(_, Call("create_sequence", (item,))):
            added = Gathered(assign.variable, with_children(assign.expression, (substituted(written, {base: item}),)))
            without = exchanged(plan, assign, assign.input)
            return exchanged(without, group, replace(group, gathered=(*group.gathered, added)))
    return None


def _written_out(value: Expression, facts: Facts) -> Expression:
    """Steps that were assigned to variables, written as one chain."""
    match value:
        case Variable():
            defined = facts.definitions.get(value)
            steps = isinstance(defined, Assign) and is_step(defined.expression)
            return _written_out(defined.expression, facts) if steps else value  # type: ignore[union-attr]  # an Assign
        case Call(name, (inner, *rest)) if is_step(value):
            return Call(name, (_written_out(inner, facts), *rest))
    return value


def _base(steps: Expression) -> Variable | None:
    while isinstance(steps, Call) and is_step(steps):
        steps = steps.arguments[0]
    return steps if isinstance(steps, Variable) else None


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
    return rewrite_first(plan, _aggregate_in_two_steps_at)


def _aggregate_in_two_steps_at(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Aggregate(steps=None) if (steps := _steps(operator.expression)) is not None:
            return replace(operator, steps=steps)
        case GroupBy():
            fields = tuple(replace(field, steps=_steps(field.expression)) for field in operator.gathered)
            return replace(operator, gathered=fields) if fields != operator.gathered else None
    return None


def _steps(expression: Expression) -> TwoStep | None:
    return STEPS_OF.get(expression.name) if isinstance(expression, Call) else None
