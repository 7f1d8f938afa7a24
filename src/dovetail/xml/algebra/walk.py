"""Ways through a plan: all its operators, the variables they use and define, and plans with a part exchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from dovetail.xml.algebra.expressions import Expression, Variable, parts, substituted, variables
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Equality,
    Gathered,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    SortKey,
    Subplan,
    Unnest,
    inputs,
    with_inputs,
)

Change = Callable[[Expression], Expression]


def operators(plan: Operator) -> Iterator[Operator]:
    """Every operator from the top down, nested plans before what lies below them."""
    waiting = [plan]
    while waiting:
        yield (operator := waiting.pop())
        waiting.extend(reversed(inputs(operator)))


def chain(plan: Operator) -> Iterator[Operator]:
    """The operators from the top down along `input`, without nested plans and without the branches of a JOIN."""
    while True:
        yield plan
        if isinstance(plan, (EmptyTupleSource, NestedTupleSource, Join)):
            return
        plan = inputs(plan)[-1]


def expressions(operator: Operator) -> tuple[Expression, ...]:
    """The expressions that stand in this operator itself."""
    match operator:
        case Assign() | Unnest() | Aggregate():
            return (operator.expression,)
        case Select():
            return (operator.condition,)
        case Join():
            return (operator.condition,)
        case Order():
            return tuple(key.expression for key in operator.keys)
        case GroupBy():
            return (*(value for _, value in operator.keys), *(field.expression for field in operator.gathered))
        case DistributeResult():
            return (operator.variable,)
        case DataScan():
            return (operator.source,)
    return ()


def all_parts(plan: Operator) -> Iterator[Expression]:
    """Every expression in the plan and everything inside it."""
    return (part for operator in operators(plan) for expression in expressions(operator) for part in parts(expression))


def with_expressions(operator: Operator, change: Change) -> Operator:
    """The same operator with each of its expressions changed."""
    match operator:
        case Assign() | Unnest() | Aggregate():
            return replace(operator, expression=change(operator.expression))
        case Select():
            return replace(operator, condition=change(operator.condition))
        case Join():
            keys = tuple(Equality(change(k.inner), change(k.outer), k.kind, k.existential) for k in operator.keys)
            return replace(operator, condition=change(operator.condition), keys=keys)
        case Order():
            return replace(operator, keys=tuple(_sort_key(key, change) for key in operator.keys))
        case GroupBy():
            fields = tuple(Gathered(f.variable, change(f.expression), f.steps) for f in operator.gathered)
            return replace(operator, keys=tuple((v, change(e)) for v, e in operator.keys), gathered=fields)
        case DistributeResult():
            new = change(operator.variable)
            return replace(operator, variable=new) if isinstance(new, Variable) else operator
    return operator


def _sort_key(key: SortKey, change: Change) -> SortKey:
    return SortKey(change(key.expression), key.descending, key.empty_greatest)


def defined(operator: Operator) -> tuple[Variable, ...]:
    """The variables that this operator adds to its tuples."""
    match operator:
        case DataScan() | Assign() | Aggregate():
            return (operator.variable,)
        case Unnest():
            return (operator.variable,) if operator.position is None else (operator.variable, operator.position)
        case Subplan():
            return defined(operator.nested)
        case GroupBy():
            return (*(variable for variable, _ in operator.keys), *(field.variable for field in operator.gathered))
    return ()


def used(operator: Operator) -> Counter[Variable]:
    """How often the operator itself, with its nested plan if it is a SUBPLAN, uses each variable of its input."""
    uses = Counter(variable for expression in expressions(operator) for variable in variables(expression))
    if isinstance(operator, Subplan):
        uses += all_uses(operator.nested)
    return uses


def all_uses(plan: Operator) -> Counter[Variable]:
    """How often each variable is used in the whole plan."""
    return Counter(part for part in all_parts(plan) if isinstance(part, Variable))


def free(plan: Operator) -> set[Variable]:
    """The variables that a (nested) plan uses and does not define."""
    inside = {variable for operator in operators(plan) for variable in defined(operator)}
    return set(all_uses(plan)) - inside


def available(plan: Operator) -> set[Variable]:
    """The fields of the tuples that this plan gives, those of a NESTED-TUPLE-SOURCE aside."""
    found: set[Variable] = set()
    for operator in chain(plan):
        found.update(defined(operator))
        if isinstance(operator, (Aggregate, GroupBy)):
            return found
        if isinstance(operator, Join):
            return found | available(operator.inner) | available(operator.outer)
    return found


def exchanged(plan: Operator, old: Operator, new: Operator) -> Operator:
    """The plan with one operator (this very object) and all below it exchanged."""
    if plan is old:
        return new
    below = inputs(plan)
    changed = tuple(exchanged(one, old, new) for one in below)
    return plan if all(a is b for a, b in zip(below, changed, strict=True)) else with_inputs(plan, changed)


def rewritten(plan: Operator, change: Change) -> Operator:
    """The plan with every expression in it changed."""
    below = tuple(rewritten(one, change) for one in inputs(plan))
    return with_inputs(with_expressions(plan, change), below)


def renamed(plan: Operator, values: Mapping[Variable, Expression]) -> Operator:
    """The plan with uses of variables replaced by expressions."""
    return rewritten(plan, lambda expression: substituted(expression, values))


def next_number(plan: Operator) -> int:
    """A variable number that the plan does not use yet."""
    seen = {v.number for operator in operators(plan) for v in defined(operator)}
    return max(seen | {v.number for v in all_uses(plan)}, default=0) + 1


def leaf(plan: Operator) -> Operator:
    """What a chain starts from: a tuple source, or the JOIN it stands on."""
    *_, last = chain(plan)
    return last


def above(plan: Operator, stop: Operator) -> list[Operator]:
    """The operators of the chain from the top down to, not including, `stop`."""
    found = []
    for operator in chain(plan):
        if operator is stop:
            break
        found.append(operator)
    return found


def stacked(upper: list[Operator], bottom: Operator) -> Operator:
    """Operators, given from the top down, put on a new bottom."""
    for operator in reversed(upper):
        bottom = with_inputs(operator, (*inputs(operator)[:-1], bottom))
    return bottom


def above_in_chain(plan: Operator, operator: Operator) -> list[Operator]:
    """What stands above an operator in its own chain, from the top down; a nested plan is a chain of its own."""
    for top in (
        plan,
        *(one for outer in operators(plan) if isinstance(outer, (Subplan, Join)) for one in inputs(outer)),
    ):
        body = list(chain(top))
        for place, one in enumerate(body):
            if one is operator:
                return body[:place]
    return []


def redefined(plan: Operator, numbers: Mapping[Variable, Variable]) -> Operator:
    """The plan with variables of its own renamed, where they are defined and where they are used."""
    below = tuple(redefined(one, numbers) for one in inputs(plan))
    return with_inputs(_with_defined(with_expressions(plan, lambda e: substituted(e, numbers)), numbers), below)


def _with_defined(operator: Operator, numbers: Mapping[Variable, Variable]) -> Operator:
    match operator:
        case DataScan() | Assign() | Aggregate():
            return replace(operator, variable=numbers.get(operator.variable, operator.variable))
        case Unnest(variable, _, _, position):
            at = None if position is None else numbers.get(position, position)
            return replace(operator, variable=numbers.get(variable, variable), position=at)
        case GroupBy():
            keys = tuple((numbers.get(variable, variable), value) for variable, value in operator.keys)
            fields = tuple(replace(one, variable=numbers.get(one.variable, one.variable)) for one in operator.gathered)
            return replace(operator, keys=keys, gathered=fields)
    return operator
