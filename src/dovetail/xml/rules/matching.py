"""Matching for rules: a plan rewritten where a pattern fits, and questions about plans that several rules ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeGuard

from dovetail.xml.algebra.expressions import (
    DISTINCT,
    DOWNWARD,
    SORT,
    SORT_DISTINCT,
    STEPS,
    Call,
    Constant,
    Evaluate,
    Expression,
    Variable,
    is_call,
    substituted,
)
from dovetail.xml.algebra.operators import (
    Assign,
    EmptyTupleSource,
    NestedTupleSource,
    Operator,
    Subplan,
    Unnest,
    all_parts,
    chain,
    defined,
    exchanged,
    inputs,
    operators,
    with_inputs,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.tree_facts import LOOK_UP, OF_NODES, reads_data

Local = Callable[[Operator, Facts], Operator | None]


def rewrite_first(plan: Operator, local: Local, lowest: bool = False) -> Operator | None:
    """The plan with the first operator exchanged for which `local` has something new; None if there is none.

    Operators are tried from the top down, or from the bottom up if the lowest one is wanted.
    """
    facts = Facts(plan)
    found = list(operators(plan))
    for operator in reversed(found) if lowest else found:
        new = local(operator, facts)
        if new is not None:
            return exchanged(plan, operator, new)
    return None


def rewrite_everywhere(plan: Operator, local: Local) -> Operator | None:
    """The plan with every operator exchanged for which `local` has something new; None if there is none.

    Facts are those of the plan as it was: for rules that leave uses and properties of all other variables as they are.
    """
    new = _everywhere(plan, local, Facts(plan))
    return None if new is plan else new


def _everywhere(operator: Operator, local: Local, facts: Facts) -> Operator:
    while (new := local(operator, facts)) is not None:
        operator = new
    below = inputs(operator)
    changed = tuple(_everywhere(one, local, facts) for one in below)
    same = all(a is b for a, b in zip(below, changed, strict=True))
    return operator if same else with_inputs(operator, changed)


def rewrite_upwards(plan: Operator, local: Local) -> Operator | None:
    """The plan with every operator exchanged for which `local` has something new, lowest first; None if there is none.

    What is new below is known above it: for rules that leave the value of every variable as it is.
    """
    facts = Facts(plan)
    new = _upwards(plan, local, facts)
    return None if new is plan else new


def _upwards(operator: Operator, local: Local, facts: Facts) -> Operator:
    old = inputs(operator)
    below = tuple(_upwards(one, local, facts) for one in reversed(old))[::-1]
    if any(a is not b for a, b in zip(old, below, strict=True)):
        operator = with_inputs(operator, below)
    new = local(operator, facts)
    if new is None:
        return operator
    facts.definitions.update(dict.fromkeys(defined(new), new))
    return new


def iterated(operator: Operator) -> Variable | None:
    """$v1 of UNNEST($v2: iterate($v1)) without a position; None for every other operator."""
    match operator:
        case Unnest(_, Call("iterate", (Variable() as variable,)), _, None):
            return variable
    return None


def unnested(plan: Operator, variable: Variable) -> tuple[Expression, Operator] | None:
    """What an UNNEST at the top takes apart, and the operators below it; None if there is no such UNNEST."""
    match plan:
        case Unnest(found, Call("iterate", (inner,)), below, None) if found == variable:
            return inner, below
        case Unnest(found, expression, below, None) if found == variable:
            return expression, below
    return None


def assigned(
    upper: Iterable[Operator], known: Mapping[Variable, Expression] = MappingProxyType({})
) -> dict[Variable, Expression] | None:
    """The variables that ASSIGNs, given from the top down, add to known ones, written out; None for other operators."""
    values = dict(known)
    for operator in reversed(list(upper)):
        if not isinstance(operator, Assign):
            return None
        values[operator.variable] = substituted(operator.expression, values)
    return values


def is_one_tuple(plan: Operator) -> bool:
    """Whether the plan gives exactly one tuple for each tuple of its source."""
    one = (Assign, Subplan, EmptyTupleSource, NestedTupleSource)
    return all(isinstance(operator, one) for operator in chain(plan))


def source_name(expression: Expression) -> Expression:
    """The argument of doc or collection without the conversions around a constant."""
    while isinstance(expression, Call) and expression.name in ("promote", "data"):
        expression = expression.arguments[0]
    return expression


def is_constant_collection(expression: Expression) -> bool:
    """Whether the expression is `collection` of a name that is known now, or of none."""
    match expression:
        case Call("collection", ()):
            return True
        case Call("collection", (argument,)):
            return isinstance(source_name(argument), Constant)
    return False


def is_downward(plan: Operator) -> bool:
    """Whether nothing in the plan may look above the nodes it is given."""
    return not any(map(_looks_up, all_parts(plan)))


def _looks_up(part: Expression) -> bool:
    if isinstance(part, Evaluate):
        return part.upward
    if not isinstance(part, Call):
        return False
    return part.name in LOOK_UP or (part.name in STEPS and part.name not in DOWNWARD)


def reads_once(plan: Operator) -> bool:
    """Whether no collection is read at two places, nor by a piece of the query that the evaluator computes."""
    found = list(all_parts(plan))
    names = [source_name(part.arguments[0]) if part.arguments else None for part in found if _is_collection(part)]
    hidden = any(isinstance(part, Evaluate) and reads_data(part.tree) for part in found)
    return len(names) == len(set(names)) and not hidden


def _is_collection(part: Expression) -> TypeGuard[Call]:
    return isinstance(part, Call) and part.name == "collection"


def asks_which_node(plan: Operator) -> bool:
    """Whether something in the plan tells nodes from their copies: `is`, `union`, sorting and the like."""
    return any(map(_asks_which, all_parts(plan)))


def _asks_which(part: Expression) -> bool:
    if isinstance(part, Evaluate):
        return part.identity
    return is_call(part, *OF_NODES, SORT_DISTINCT, SORT, DISTINCT)


def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """The parts of a condition that must all be true; none for `true`."""
    if isinstance(condition, Call) and condition.name == "and":
        return tuple(part for argument in condition.arguments for part in conjuncts(argument))
    return () if condition == Constant(True) else (condition,)


def conjunction(found: tuple[Expression, ...]) -> Expression:
    """One condition again."""
    if not found:
        return Constant(True)
    return found[0] if len(found) == 1 else Call("and", found)
