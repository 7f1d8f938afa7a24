"""P8: taking a single item apart is a copy."""

from __future__ import annotations

from dovetail.xquery.algebra.expressions import Call, Constant
from dovetail.xquery.algebra.operators import Assign, DataScan, Operator, Unnest
from dovetail.xquery.algebra.properties import Facts
from dovetail.xquery.rules.matching import rewrite_first


def copy_single_item(plan: Operator) -> Operator | None:
    """UNNEST($v2: iterate($v1)) over the UNNEST or DATASCAN that gives $v1 becomes ASSIGN($v2: $v1); a position is 1.

    Condition: the operator below gives $v1 itself, one item a tuple. Right because one item gives one tuple with that item.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Unnest(variable, Call("iterate", (value,)), Unnest() | DataScan() as below, position):
            if value == below.variable:
                copy = Assign(variable, value, below)
                return copy if position is None else Assign(position, Constant(1), copy)
    return None
