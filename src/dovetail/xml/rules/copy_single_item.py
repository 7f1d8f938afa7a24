"""Taking a single item apart is a copy."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Constant, Variable
from dovetail.xml.algebra.operators import Assign, DataScan, DistributeResult, Operator, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import rewrite_everywhere


def copy_single_item(plan: Operator) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over the UNNEST or DATASCAN that gives $v1 becomes ASSIGN($v2: $v1); a position is 1.

    Other operators may stand between them, unless this UNNEST feeds the result: there the plans of the source keep it.
    Condition: an UNNEST or DATASCAN gives $v1, one item a tuple. Right because one item gives one tuple with that item.
    """
    return rewrite_everywhere(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
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
