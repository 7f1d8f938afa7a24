"""Checks that a plan is valid: each variable is defined once, and used only where it is a field of the tuples."""

from __future__ import annotations

from collections import Counter

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Variable, variables
from dovetail.xml.algebra.operators import (
    Aggregate,
    EmptyTupleSource,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Subplan,
    defined,
    expressions,
    inputs,
    operators,
)

Fields = frozenset[Variable]


def validate(plan: Operator) -> None:
    """Raises PlanError if the plan uses a variable where it is not known, or defines one twice."""
    twice = [str(v) for v, n in Counter(v for o in operators(plan) for v in _own(o)).items() if n > 1]
    if twice:
        raise PlanError(f"the plan defines {', '.join(twice)} more than once.")
    _fields(plan, frozenset())


def _own(operator: Operator) -> tuple[Variable, ...]:
    return () if isinstance(operator, Subplan) else defined(operator)


def _fields(operator: Operator, outer: Fields) -> Fields:
    """The fields of an operator's tuples; `outer` are those of the tuple around a nested plan."""
    if isinstance(operator, EmptyTupleSource):
        return frozenset()
    if isinstance(operator, NestedTupleSource):
        return outer
    if isinstance(operator, Subplan):
        below = _fields(operator.input, outer)
        return below | _fields(operator.nested, below)
    below = frozenset[Variable]().union(*(_fields(one, outer) for one in inputs(operator)))
    missing = {variable for e in expressions(operator) for variable in variables(e)} - below
    if missing:
        shown = ", ".join(map(str, sorted(missing)))
        raise PlanError(f"{type(operator).__name__} uses {shown}, which the tuples below it do not have.")
    if isinstance(operator, (Aggregate, GroupBy)):
        return frozenset(defined(operator)) | (outer if isinstance(operator, GroupBy) else frozenset())
    return below if isinstance(operator, Join) else below | frozenset(defined(operator))
