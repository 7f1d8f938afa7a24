"""Rules for paths: conversions and sorts that change nothing, steps merged, copies and constants inlined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from dovetail.xml.algebra.expressions import (
    DISTINCT,
    SORT,
    SORT_DISTINCT,
    STEPS,
    Call,
    Constant,
    Expression,
    Name,
    Variable,
    base_of_steps,
    is_step,
    rebuilt,
    substituted,
)
from dovetail.xml.algebra.matching import everywhere, is_constant_collection, iterated, upwards
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    GroupBy,
    NestedTupleSource,
    Operator,
    Subplan,
    Unnest,
    expressions,
    operators,
    renamed,
    with_expressions,
)
from dovetail.xml.algebra.properties import Facts, is_subtype


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
    new = everywhere(partial(_cleaned, copies))(plan)
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


@everywhere
def remove_conversion(operator: Operator, facts: Facts) -> Operator | None:
    """OP($v1: treat(e, T)) becomes OP($v1: e); likewise promote, data, casts and boolean.

    Condition: the static type of e is already T; for data: e is atomic; for boolean: e is exactly one boolean; for a
    cast such as xs:string: e has that type. The argument of `collection` is left to `introduce_scan`, which takes
    the whole call, as in the source. Right because each of them returns a value of its type unchanged.
    """
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


@everywhere
def remove_sort(operator: Operator, facts: Facts) -> Operator | None:
    """ASSIGN($v1: sort-distinct($v0)) becomes ASSIGN($v1: $v0), or keeps the half of the work that is still needed.

    Condition: the static properties say that $v0 is in document order and without duplicates (or has at most one item,
    or only atomic values). If it is only in order, duplicates are removed; if it is only without duplicates, it is
    sorted. Right because sorting a sorted sequence, or removing duplicates where there are none, changes nothing; and
    in a sorted sequence duplicates are adjacent.
    """
    match operator:
        case Assign(_, Call(name, (inner,))) if name in (SORT_DISTINCT, SORT, DISTINCT):
            new = _needed(name, inner, facts)
            return replace(operator, expression=new) if new != operator.expression else None
    return None


def _needed(name: str, inner: Expression, facts: Facts) -> Expression:
    known = facts.of(inner)
    done = known.atomic or (known.node and known.at_most_one())
    sort = name != DISTINCT and not (done or (known.node and known.ordered))
    distinct = name != SORT and not (done or (known.node and known.unique))
    if not sort and not distinct:
        return inner
    return Call(SORT_DISTINCT if sort and distinct else SORT if sort else DISTINCT, (inner,))


@everywhere
def inline_single_item(operator: Operator, facts: Facts) -> Operator | None:
    """SUBPLAN{ AGGREGATE($v2: create_sequence(e($v1))) over UNNEST($v1: iterate($v0)) } becomes ASSIGN($v2: e($v0)).

    Condition: $v0 is exactly one item. Right because the nested plan then has one tuple, in which $v1 is $v0, and the
    sequence gathered from one tuple is its value.
    """
    match operator:
        case Subplan(Aggregate(gathered, Call("create_sequence", (item,)), Unnest() as unnest), below):
            whole = iterated(unnest)
            inner = isinstance(unnest.input, NestedTupleSource)
            if whole is not None and inner and facts.of(whole).cardinality == "one":
                return Assign(gathered, substituted(item, {unnest.variable: whole}), below)
    return None


@everywhere
def copy_single_item(operator: Operator, facts: Facts) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over the UNNEST or DATASCAN that gives $v1 becomes ASSIGN($v2: $v1); a position is 1.

    Other operators may stand between them, unless this UNNEST feeds the result: there the plans of the source keep it.
    Condition: an UNNEST or DATASCAN gives $v1, one item a tuple. Right because one item gives one tuple with that item.
    """
    match operator:
        case Unnest(variable, Call("iterate", (Variable() as value,)), below, position) if _is_single(
            operator, value, facts
        ):
            copy = Assign(variable, value, below)
            return copy if position is None else Assign(position, Constant(1), copy)
    return None


def _is_single(unnest: Unnest, value: Variable, facts: Facts) -> bool:
    source = facts.definitions.get(value)
    last = isinstance(facts.plan, DistributeResult) and facts.plan.input is unnest
    return isinstance(source, (Unnest, DataScan)) and (source is unnest.input or not last)


@everywhere
def unnest_step(operator: Operator, facts: Facts) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over ASSIGN($v1: g($v0)) becomes UNNEST($v2: g($v0)).

    Condition: g is a step, which has an unnesting form; nothing else uses $v1. Positions stay what they are.
    Right because the unnesting form gives the items of the sequence one by one, in the same order.
    """
    match operator:
        case Unnest(_, Call("iterate", (Variable() as value,)), Assign(assigned, step, below)):
            if value == assigned and facts.uses[value] == 1 and is_step(step):
                return replace(operator, expression=step, input=below)
    return None


_DESCENDANT = ("descendant", "descendant-or-self")


@everywhere
def merge_unnests(operator: Operator, facts: Facts) -> Operator | None:
    """UNNEST($v2: g2($v1)) over UNNEST($v1: g1($v0)) becomes UNNEST($v2: g2(g1($v0))), g1 in its scalar form.

    Condition: g1 is a step and no descendant step (its sequence could be the whole document), nothing else uses $v1,
    and neither of them counts positions. `iterate` is no step: it stays, so that `introduce_scan` finds it above a
    collection. Right because a step over a sequence is its answers for each item, one after the other, as the tuples
    were.
    """
    match operator:
        case Unnest(variable, upper, Unnest(middle, lower, below, None), None):
            if _fits(upper, lower) and base_of_steps(upper) == middle and facts.uses[middle] == 1:
                return Unnest(variable, substituted(upper, {middle: lower}), below)
    return None


def _fits(upper: Expression, lower: Expression) -> bool:
    return is_step(upper) and is_step(lower) and isinstance(lower, Call) and lower.name not in _DESCENDANT


@upwards
def map_steps(operator: Operator, facts: Facts) -> Operator | None:
    """SUBPLAN{ AGGREGATE($v2: create_sequence(s($v1))) over UNNEST($v1: iterate($v0)) } becomes ASSIGN($v2: s($v0)).

    The UNNEST may also be that of a step, which then becomes part of the chain. Condition: s is a chain of steps, and
    $v0 is neither a collection nor gathered by another nested plan: those are better streamed (`sink_into_subplan`).
    Right because a step over a sequence is its answers for each item, one after the other.
    """
    match operator:
        case Subplan(Aggregate(gathered, Call("create_sequence", (item,)), Unnest() as unnest), below):
            whole = _sequence(unnest)
            inner = isinstance(unnest.input, NestedTupleSource)
            if whole is not None and inner and _maps(item, unnest.variable) and not _streams(whole, facts):
                return Assign(gathered, substituted(item, {unnest.variable: whole}), below)
    return None


def _sequence(unnest: Unnest) -> Expression | None:
    """The sequence that the UNNEST iterates over: a variable, or steps from one."""
    if unnest.position is not None:
        return None
    return iterated(unnest) or (unnest.expression if is_step(unnest.expression) else None)


def _maps(item: Expression, variable: Variable) -> bool:
    while isinstance(item, Call) and item.name in (*STEPS, "treat"):
        item = item.arguments[0]
    return item == variable


def _streams(whole: Expression, facts: Facts) -> bool:
    base = base_of_steps(whole)
    match definition := facts.definition(base):
        case Assign(_, Call(name, (Variable() as inner,))) if name in (SORT_DISTINCT, SORT, DISTINCT):
            return _streams(inner, facts)
        case Assign(_, expression):
            return is_constant_collection(expression)
    return isinstance(definition, Aggregate)
