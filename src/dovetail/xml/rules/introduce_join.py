"""A source that does not depend on the tuples below it becomes a branch of a JOIN."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Constant, is_call, parts
from dovetail.xml.algebra.operators import (
    Assign,
    DataScan,
    EmptyTupleSource,
    Join,
    Operator,
    Select,
    Subplan,
    Unnest,
    inputs,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import chain, defined, expressions, stacked, used
from dovetail.xml.rules.matching import rewrite_first


def introduce_join(plan: Operator) -> Operator | None:
    """DATASCAN(b) over a plan that scans as well becomes JOIN(true) { DATASCAN(b) } { that plan }, a cross product.

    So does a run of operators that reads a document by doc() and takes it apart, if it uses nothing from below.
    Condition: the plan below gives many tuples from a source of its own; otherwise there is nothing to join. Right
    because the source gives the same items for each tuple below, and JOIN gives its inner tuples for each outer one in
    turn.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    if not isinstance(operator, (DataScan, Unnest)):
        return None
    run = _run(operator)
    if run is None:
        return None
    below = inputs(run[-1])[-1]
    return Join(Constant(True), stacked(run, EmptyTupleSource()), below) if _reads_many(below) else None


def _run(top: Operator) -> list[Operator] | None:
    """The operators from `top` down to where nothing from below is used any more; None if that never happens."""
    run, needed = list[Operator](), set[object]()
    for operator in chain(top):
        if not isinstance(operator, (DataScan, Unnest, Assign, Select, Subplan)):
            return None
        run.append(operator)
        needed |= set(used(operator))
        needed -= set(defined(operator))
        if not needed and isinstance(operator, (DataScan, Assign, Unnest)):
            return run if _reads(run) else None
    return None


def _reads(run: list[Operator]) -> bool:
    if any(isinstance(operator, DataScan) for operator in run):
        return len(run) == 1
    found = (part for operator in run for e in expressions(operator) for part in parts(e))
    return any(is_call(part, "doc") for part in found)


def _reads_many(plan: Operator) -> bool:
    return any(isinstance(operator, (DataScan, Join, Unnest)) for operator in chain(plan))
