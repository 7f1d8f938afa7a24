"""A nested plan that does not depend on the tuples runs once, below what multiplies them."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.operators import (
    Aggregate,
    DataScan,
    EmptyTupleSource,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Subplan,
    Unnest,
    inputs,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import chain, free, operators, stacked
from dovetail.xml.rules.matching import rewrite_first


def hoist_subplan(plan: Operator) -> Operator | None:
    """SUBPLAN{ N } over operators that multiply tuples, as DATASCAN does, moves below them or to the outer branch.

    Condition: N scans a collection and uses no field of the tuples; AGGREGATE and GROUP-BY, which drop fields, are not
    crossed. Right because N gives the same answer for every tuple, and each tuple still has it as a field.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
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
