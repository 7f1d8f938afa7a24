"""A nested plan that gathers what is taken apart right above it goes."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Expression
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    GroupBy,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    Subplan,
    Unnest,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import above, all_uses, available, leaf, stacked
from dovetail.xml.rules.matching import is_one_tuple, iterated, rewrite_everywhere


def drop_subplan(plan: Operator) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over SUBPLAN{ AGGREGATE($v1: create_sequence(e)) over N } loses the nested plan.

    What is left is the UNNEST over ASSIGN($v1: e) over N.     N then reads from the SUBPLAN's input. The number $v1 is
    used again, since the sequence it named is gone. Condition: nothing else uses $v1; N consists of operators that
    work tuple by tuple, or the input is one tuple (then ORDER and GROUP-BY in N see the same tuples as before,
    provided that no field which GROUP-BY would lose is needed). Right because the items of all sequences e of the
    tuples of N, in order, are the items of the gathered sequence.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
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
