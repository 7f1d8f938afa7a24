"""N2: what only a nested plan uses is computed inside it."""

from __future__ import annotations

from dovetail.xquery.algebra.operators import Assign, NestedTupleSource, Operator, Subplan
from dovetail.xquery.algebra.properties import Facts
from dovetail.xquery.algebra.walk import above, all_uses, defined, leaf, stacked
from dovetail.xquery.rules.matching import rewrite_first


def sink_into_subplan(plan: Operator) -> Operator | None:
    """SUBPLAN{ N } over ASSIGN or SUBPLAN giving $v becomes SUBPLAN{ N over that operator }.

    So P3 finds, inside, a sequence that is gathered and taken apart again. Condition: only N uses $v.
    Right because the operator gives one tuple for each tuple, and the nested plan runs once for each.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Subplan(nested, (Assign() | Subplan()) as below) if isinstance(leaf(nested), NestedTupleSource):
            inside = all_uses(nested)
            if all(0 < inside[v] == facts.uses[v] for v in defined(below)):
                moved = stacked([below], leaf(nested))
                return Subplan(stacked(above(nested, leaf(nested)), moved), below.input)
    return None
