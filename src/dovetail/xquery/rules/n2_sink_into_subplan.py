"""N2: what only a nested plan uses is computed inside it."""

from __future__ import annotations

from dovetail.xquery.algebra.operators import Assign, GroupBy, NestedTupleSource, Operator, Subplan
from dovetail.xquery.algebra.properties import Facts
from dovetail.xquery.algebra.walk import above, all_uses, chain, defined, leaf, stacked
from dovetail.xquery.rules.matching import rewrite_first


def sink_into_subplan(plan: Operator) -> Operator | None:
    """SUBPLAN{ N } over ASSIGN or SUBPLAN giving $v becomes SUBPLAN{ N over that operator }.

    So P3 finds, inside, a sequence that is gathered and taken apart again. Condition: only N uses $v, and not above
    a GROUP-BY, where the field would be gone.
    Right because the operator gives one tuple for each tuple, and the nested plan runs once for each.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Subplan(nested, (Assign() | Subplan()) as below) if isinstance(leaf(nested), NestedTupleSource):
            inside = all_uses(_before_groups(nested))
            if all(0 < inside[v] == facts.uses[v] for v in defined(below)):
                moved = stacked([below], leaf(nested))
                return Subplan(stacked(above(nested, leaf(nested)), moved), below.input)
    return None


def _before_groups(nested: Operator) -> Operator:
    """The part of a nested plan that sees the fields of its lowest operators: from the lowest GROUP-BY down, or all."""
    groups = [operator for operator in chain(nested) if isinstance(operator, GroupBy)]
    return groups[-1] if groups else nested
