"""A scan knows that its collection lies in parts."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import Constant
from dovetail.xml.algebra.operators import DataScan, Operator, Partitioning
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.rules.matching import rewrite_first


def partition_scan(plan: Operator) -> Operator | None:
    """DATASCAN gets its partition properties: each partition holds documents of the directory, none of them twice.

    The listings do not show them. Condition: the collection is a named directory. Right because a document is never
    cut: what is computed from one document is computed in one partition.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case DataScan(partitioning=None) if operator.source.arguments:
            (name,) = operator.source.arguments
            if isinstance(name, Constant):
                return replace(operator, partitioning=Partitioning(str(name.value)))
    return None
