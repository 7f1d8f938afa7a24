"""A SELECT above a JOIN becomes part of its condition."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import variables
from dovetail.xml.algebra.operators import Assign, Join, Operator, Select, Subplan
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import above, available, chain, stacked
from dovetail.xml.rules.matching import conjunction, conjuncts, rewrite_first


def merge_condition(plan: Operator) -> Operator | None:
    """SELECT(c) above JOIN(j) becomes JOIN(j and c).

    Condition: c uses only fields that the JOIN gives, and nothing but ASSIGN, SELECT and SUBPLAN stands between them.
    Right because those neither add nor drop tuples that c would judge differently.
    """
    return rewrite_first(plan, _local, lowest=True)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    if not isinstance(operator, Select):
        return None
    for below in chain(operator.input):
        if isinstance(below, Join) and set(variables(operator.condition)) <= available(below):
            condition = conjunction((*conjuncts(below.condition), *conjuncts(operator.condition)))
            return stacked(above(operator.input, below), replace(below, condition=condition))
        if not isinstance(below, (Select, Assign, Subplan)):
            return None
    return None
