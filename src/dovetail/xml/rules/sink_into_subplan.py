"""What only a nested plan uses is computed inside it."""

from __future__ import annotations

from dovetail.xml.algebra.operators import Assign, GroupBy, NestedTupleSource, Operator, Subplan
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import above, all_uses, chain, defined, leaf, stacked, used
from dovetail.xml.rules.matching import rewrite_first


def sink_into_subplan(plan: Operator) -> Operator | None:
    """SUBPLAN{ N } over ASSIGN or SUBPLAN giving $v becomes SUBPLAN{ N over that operator }, one or several of them.

    So `drop_subplan` finds, inside, a sequence that is gathered and taken apart again. Condition: only N uses $v, and
    not above a GROUP-BY, where the field would be gone.
    Right because the operator gives one tuple for each tuple, and the nested plan runs once for each.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    if not isinstance(operator, Subplan) or not isinstance(leaf(operator.nested), NestedTupleSource):
        return None
    nested, below, sunk = operator.nested, operator.input, list[Operator]()
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
