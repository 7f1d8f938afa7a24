"""Rules for nested plans: those that gather a sequence only to iterate over it are removed, others are moved."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import (
    AGGREGATES,
    DISTINCT,
    DOWNWARD,
    SORT,
    SORT_DISTINCT,
    Call,
    Expression,
    Variable,
    is_call,
)
from dovetail.xml.algebra.matching import (
    asks_which_node,
    everywhere,
    first,
    is_constant_collection,
    is_one_tuple,
    iterated,
)
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    EmptyTupleSource,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    Subplan,
    Unnest,
    above,
    above_in_chain,
    all_parts,
    all_uses,
    available,
    chain,
    defined,
    exchanged,
    free,
    inputs,
    leaf,
    next_number,
    operators,
    redefined,
    renamed,
    stacked,
    used,
)
from dovetail.xml.algebra.properties import Facts


@everywhere
def drop_subplan(operator: Operator, facts: Facts) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over SUBPLAN{ AGGREGATE($v1: create_sequence(e)) over N } loses the nested plan.

    What is left is the UNNEST over ASSIGN($v1: e) over N. N then reads from the SUBPLAN's input. The number $v1 is
    used again, since the sequence it named is gone. Condition: nothing else uses $v1; N consists of operators that
    work tuple by tuple, or the input is one tuple (then ORDER and GROUP-BY in N see the same tuples as before,
    provided that no field which GROUP-BY would lose is needed). Right because the items of all sequences e of the
    tuples of N, in order, are the items of the gathered sequence.
    """
    match operator:
        case Unnest(input=Subplan(Aggregate(gathered, Call("create_sequence", (item,)), below), source)):
            if iterated(operator) == gathered and facts.uses[gathered] == 1 and _may_join(below, source, facts):
                return _flat(operator, item, below, source)
    return None


def _flat(unnest: Unnest, item: Expression, below: Operator, source: Operator) -> Operator:
    (gathered,) = unnest.expression.arguments  # type: ignore[attr-defined]  # `iterate` of one variable
    lifted = stacked(above(below, leaf(below)), source)
    return Unnest(unnest.variable, unnest.expression, Assign(gathered, item, lifted))


def _may_join(below: Operator, source: Operator, facts: Facts) -> bool:
    body = above(below, leaf(below))
    if not isinstance(leaf(below), NestedTupleSource):
        return False
    if all(isinstance(operator, (Assign, Unnest, Select, Subplan, DataScan)) for operator in body):
        return True
    allowed = (Assign, Unnest, Select, Subplan, DataScan, Order, GroupBy)
    return is_one_tuple(source) and all(isinstance(o, allowed) for o in body) and _loses_nothing(body, source, facts)


def _loses_nothing(body: list[Operator], source: Operator, facts: Facts) -> bool:
    """Whether no field of the source is used except below the lowest GROUP-BY of the body, or in the source itself."""
    groups = [number for number, operator in enumerate(body) if isinstance(operator, GroupBy)]
    if not groups:
        return True
    group = body[groups[-1]]
    inside = all_uses(group)
    outside = facts.uses - inside - all_uses(source)
    hidden = available(source)
    return not any(outside[variable] for variable in hidden) and len(groups) == 1


@everywhere
def drop_aggregate(operator: Operator, facts: Facts) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over AGGREGATE($v1: create_sequence($v0)) becomes the UNNEST over ASSIGN($v1: $v0).

    Condition: nothing else uses $v1. Right because the sequence is the values of $v0 one after the other, and taking
    each value apart where it is gives the same items in the same order; without tuples there are no items either way.
    """
    match operator:
        case Unnest(variable, iterate, Aggregate(gathered, Call("create_sequence", (item,)), below)):
            if iterated(operator) == gathered and facts.uses[gathered] == 1:
                return Unnest(variable, iterate, Assign(gathered, item, below))
    return None


@first
def sink_into_subplan(operator: Operator, facts: Facts) -> Operator | None:
    """SUBPLAN{ N } over ASSIGN or SUBPLAN giving $v becomes SUBPLAN{ N over that operator }, one or several of them.

    So `drop_subplan` finds, inside, a sequence that is gathered and taken apart again. Condition: only N uses $v, and
    not above a GROUP-BY, where the field would be gone.
    Right because the operator gives one tuple for each tuple, and the nested plan runs once for each.
    """
    if not isinstance(operator, Subplan) or not isinstance(operator.input, (Assign, Subplan)):
        return None
    if not isinstance(leaf(operator.nested), NestedTupleSource):
        return None
    nested, sunk = operator.nested, list[Operator]()
    below: Operator = operator.input
    inside = all_uses(_before_groups(nested))
    while isinstance(below, (Assign, Subplan)) and all(0 < inside[v] == facts.uses[v] for v in defined(below)):
        sunk.append(below)
        inside += used(below)
        below = below.input
    if not sunk:
        return None
    return Subplan(stacked([*above(nested, leaf(nested)), *sunk], leaf(nested)), below)


def _before_groups(nested: Operator) -> Operator:
    """The part of a nested plan that sees the fields of its lowest operators: from the lowest GROUP-BY down, or all."""
    groups = [operator for operator in chain(nested) if isinstance(operator, GroupBy)]
    return groups[-1] if groups else nested


@first
def hoist_subplan(operator: Operator, facts: Facts) -> Operator | None:
    """SUBPLAN{ N } over operators that multiply tuples, as DATASCAN does, moves below them or to the outer branch.

    Condition: N scans a collection and uses no field of the tuples; AGGREGATE and GROUP-BY, which drop fields, are not
    crossed. Right because N gives the same answer for every tuple, and each tuple still has it as a field.
    """
    if not isinstance(operator, Subplan) or free(operator.nested) or not _scans(operator.nested):
        return None
    crossed = list[Operator]()
    for below in chain(operator.input):
        if isinstance(below, Join):
            new = replace(below, outer=Subplan(operator.nested, below.outer))
            return stacked(crossed, new)
        if isinstance(below, (EmptyTupleSource, NestedTupleSource, GroupBy, Aggregate)):
            break
        crossed.append(below)
    if not any(isinstance(one, (DataScan, Unnest)) for one in crossed):
        return None
    return stacked(crossed, Subplan(operator.nested, inputs(crossed[-1])[-1]))


def _scans(nested: Operator) -> bool:
    return any(isinstance(operator, DataScan) for operator in operators(nested))


_DOWN = (*DOWNWARD, "treat", "iterate", "create_sequence", SORT_DISTINCT, SORT, DISTINCT)


@first
def sort_by_document(operator: Operator, facts: Facts) -> Operator | None:
    """ASSIGN($v2: sort($v1)) over a SUBPLAN that gathers $v1 from a collection: each document is sorted.

    The part of the nested plan above the scan of documents gets a nested plan of its own, whose answer is sorted.
    Condition: nothing else uses $v1, and only downward steps lead from a document to what is gathered. Right because
    documents come in document order, each once, and every node that is gathered lies in its own document.
    """
    match operator:
        case Assign(_, Call(name, (Variable() as gathered,)), Subplan(Aggregate() as inner) as subplan):
            if name not in (SORT_DISTINCT, SORT, DISTINCT) or inner.variable != gathered or facts.uses[gathered] != 1:
                return None
            source = _documents(inner.input, facts)
            if source is not None and _is_gathered_below(inner.expression, source, facts):
                return _split_by_document(operator, subplan, inner, source, Variable(next_number(facts.plan)))
    return None


def _documents(nested: Operator, facts: Facts) -> Unnest | DataScan | None:
    """The operator that gives whole documents of a collection, if it is the lowest that multiplies tuples."""
    if not isinstance(leaf(nested), NestedTupleSource):
        return None
    body = above(nested, leaf(nested))
    if not all(isinstance(operator, (Unnest, DataScan, Assign, Select, Subplan)) for operator in body):
        return None
    sources = [operator for operator in body if isinstance(operator, (Unnest, DataScan))]
    lowest = sources[-1] if sources else None
    return lowest if lowest is not None and _gives_documents(lowest, facts) else None


def _gives_documents(operator: Unnest | DataScan, facts: Facts) -> bool:
    if isinstance(operator, DataScan):
        return not operator.path
    match operator:
        case Unnest(_, Call("iterate", (Variable() as value,)), _, None):
            defined = facts.definitions.get(value)
            return isinstance(defined, Assign) and is_constant_collection(defined.expression)
    return False


def _is_gathered_below(aggregate: Expression, source: Unnest | DataScan, facts: Facts) -> bool:
    match aggregate:
        case Call("create_sequence", (item,)):
            return _leads_to(item, source.variable, facts)
    return False


def _leads_to(item: Expression, document: Variable, facts: Facts) -> bool:
    """Whether downward steps lead from the document to the item, over any number of variables."""
    while isinstance(item, Call) and item.name in _DOWN:
        item = item.arguments[0]
    if item == document or not isinstance(item, Variable):
        return item == document
    match facts.definitions.get(item):
        case Assign(_, expression) | Unnest(_, expression) | Aggregate(_, expression):
            return _leads_to(expression, document, facts)
    return False


def _split_by_document(
    assign: Assign, subplan: Subplan, inner: Aggregate, source: Unnest | DataScan, fresh: Variable
) -> Operator:
    upper = above(inner.input, source)
    one = Subplan(Aggregate(inner.variable, inner.expression, stacked(upper, NestedTupleSource())), source)
    sorted_one = Assign(fresh, assign.expression, one)
    return Subplan(Aggregate(assign.variable, Call("create_sequence", (fresh,)), sorted_one), subplan.input)


def read_again(plan: Operator) -> Operator | None:
    """The topmost operator that uses a gathered sequence gets a SUBPLAN of its own below it, a copy with new numbers.

    So each of them can be streamed and aggregated incrementally, instead of one sequence that holds the collection.
    Condition: the sequence comes from a collection by a SUBPLAN that runs once, several operators use it, all of them
    take its items one by one, and nothing distinguishes nodes from their copies. Right because a collection does not
    change while a query runs, so that a second reading gives equal items.
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
    return any(is_call(part, "collection") for part in all_parts(subplan.nested))


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
