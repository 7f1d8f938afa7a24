"""Conversions of what already has the type go."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Expression, Name, rebuilt
from dovetail.xml.algebra.operators import Operator
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.property_types import is_subtype
from dovetail.xml.algebra.walk import expressions, with_expressions
from dovetail.xml.rules.matching import rewrite_everywhere


def remove_conversion(plan: Operator) -> Operator | None:
    """OP($v1: treat(e, T)) becomes OP($v1: e); likewise promote, data, casts and boolean.

    Condition: the static type of e is already T; for data: e is atomic; for boolean: e is exactly one boolean; for a
    cast such as xs:string: e has that type. The argument of `collection` is left to `introduce_scan`, which takes
    the whole call, as in the source. Right because each of them gives back what already has its type.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    old = expressions(operator)
    new = tuple(_without(expression, facts) for expression in old)
    return None if new == old else with_expressions(operator, lambda e: _without(e, facts))


def _without(expression: Expression, facts: Facts) -> Expression:
    if isinstance(expression, Call) and expression.name == "collection":
        return expression
    return rebuilt(expression, lambda part: _inner(part, facts))


def _inner(part: Expression, facts: Facts) -> Expression:
    match part:
        case Call("treat" | "promote", (inner, Name(kind))) if is_subtype(facts.of(inner).type, kind):
            return inner
        case Call("data", (inner,)) if facts.of(inner).atomic:
            return inner
        case Call("boolean", (inner,)) if facts.of(inner).type == "boolean" and facts.of(inner).cardinality == "one":
            return inner
        case Call(name, (inner,)) if name == f"xs:{facts.of(inner).type}" and facts.of(inner).at_most_one():
            return inner
    return part
