"""A sequence that is read from a collection and used at several places is read for each of them."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Variable, is_call, parts
from dovetail.xml.algebra.functions import AGGREGATES
from dovetail.xml.algebra.operators import Aggregate, Assign, NestedTupleSource, Operator, Subplan, Unnest, inputs
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import (
    above_in_chain,
    defined,
    exchanged,
    expressions,
    next_number,
    operators,
    redefined,
    renamed,
    stacked,
    used,
)
from dovetail.xml.rules.matching import asks_which_node, is_one_tuple


def read_again(plan: Operator) -> Operator | None:
    """The topmost operator that uses a gathered sequence gets a SUBPLAN of its own below it, a copy with new numbers.

    So each of them can be streamed and aggregated while it comes, instead of one sequence that holds the collection.
    Condition: the sequence comes from a collection by a SUBPLAN that runs once, several operators use it, all of them
    take its items one by one, and nothing tells nodes from their copies. Right because a collection does not change
    while a query runs, so that a second reading gives equal items.
    """
    if asks_which_node(plan):
        return None
    facts = Facts(plan)
    for operator in operators(plan):
        match operator:
            case Subplan(Aggregate(gathered, _, _), below) if facts.uses[gathered] > 1 and is_one_tuple(below):
                users = [one for one in above_in_chain(plan, operator) if used(one)[gathered]]
                if _is_read(operator) and len(users) > 1 and all(_takes_items(one, gathered) for one in users):
                    return _with_copy(plan, users[0], operator, gathered)
    return None


def _is_read(subplan: Subplan) -> bool:
    found = (part for one in operators(subplan.nested) for e in expressions(one) for part in parts(e))
    return any(is_call(part, "collection") for part in found)


def _takes_items(operator: Operator, gathered: Variable) -> bool:
    """Whether the operator uses the sequence once, as an aggregate does or UNNEST."""
    if used(operator)[gathered] != 1:
        return False
    match operator:
        case Assign(_, Call(name, (value,))):
            return name in AGGREGATES and value == gathered
        case Unnest(_, Call("iterate", (value,))):
            return value == gathered
        case Subplan(Aggregate(_, _, Unnest(_, Call("iterate", (value,)), NestedTupleSource()))):
            return value == gathered
    return False


def _with_copy(plan: Operator, user: Operator, source: Subplan, gathered: Variable) -> Operator:
    fresh = next_number(plan)
    inside = sorted({variable for one in operators(source.nested) for variable in defined(one)})
    numbers = {old: Variable(fresh + place) for place, old in enumerate(inside)}
    below = inputs(user)[-1]
    copy = Subplan(redefined(source.nested, numbers), below)
    with_own = renamed(exchanged(user, below, NestedTupleSource()), {gathered: numbers[gathered]})
    return exchanged(plan, user, stacked([with_own], copy))
