"""Rules for joins: products become joins, conditions move to a branch or into the join, keys are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dovetail.xml.algebra.expressions import Call, Constant, Expression, is_call, parts, variables
from dovetail.xml.algebra.matching import conjunction, conjuncts, rewrite_first
from dovetail.xml.algebra.operators import (
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Equality,
    Join,
    Operator,
    Select,
    Subplan,
    Unnest,
    above,
    available,
    chain,
    defined,
    expressions,
    inputs,
    stacked,
    used,
)
from dovetail.xml.algebra.properties import NUMBERS, TEXTS, Facts


def introduce_join(plan: Operator) -> Operator | None:
    """DATASCAN(b) over a plan that scans as well becomes JOIN(true) { DATASCAN(b) } { that plan }, a cross product.

    So does a run of operators that reads a document by doc() and takes it apart, if it uses nothing from below.
    Condition: the plan below gives many tuples from a source of its own; otherwise there is nothing to join. Right
    because the source gives the same items for each tuple below, and JOIN gives its inner tuples for each outer one in
    turn.
    """
    return rewrite_first(plan, _introduce_join_at)


def _introduce_join_at(operator: Operator, facts: Facts) -> Operator | None:
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


def push_to_branch(plan: Operator) -> Operator | None:
    """SELECT, ASSIGN or SUBPLAN above a JOIN that uses fields of one branch only moves to the top of that branch.

    A SELECT of several conditions is split where one of them can move. An UNNEST may move to the inner branch only:
    there the order of the tuples stays (outer, inner, unnested); the last one, which feeds the result, stays.
    Condition: only ASSIGN, SELECT and SUBPLAN stand between the operator and the JOIN, and it uses none of their
    values. Right because these operators look at one tuple at a time, and a joined tuple has the fields of its side
    unchanged.
    """
    return rewrite_first(plan, _push_to_branch_at, lowest=True)


def _push_to_branch_at(operator: Operator, facts: Facts) -> Operator | None:
    join = _join_below(operator)
    if join is None:
        return None
    match operator:
        case Select(condition, below) if len(parts := conjuncts(condition)) > 1:
            sides = [_side(set(variables(part)), join) for part in parts]
            if not any(sides):
                return None
            for part in parts:
                below = Select(part, below)
            return below
        case Select() | Assign() | Subplan():
            side = _side(set(used(operator)), join)
            return _moved(operator, join, side) if side else None
        case Unnest(position=None) if used(operator) and not _is_last(operator, facts.plan):
            return _moved(operator, join, "inner") if _side(set(used(operator)), join) == "inner" else None
    return None


def _is_last(operator: Operator, plan: Operator) -> bool:
    return isinstance(plan, DistributeResult) and plan.input is operator


def _join_below(operator: Operator) -> Join | None:
    if not isinstance(operator, (Select, Assign, Subplan, Unnest)):
        return None
    for below in chain(inputs(operator)[-1]):
        if isinstance(below, Join):
            return below
        if not isinstance(below, (Select, Assign, Subplan)):
            return None
    return None


def _side(needed: set[object], join: Join) -> str:
    """The branch that has all the fields; "" if neither has. What needs no field belongs to the outer branch."""
    if needed <= available(join.outer):
        return "outer"
    return "inner" if needed <= available(join.inner) else ""


def _moved(operator: Operator, join: Join, side: str) -> Operator:
    if side == "inner":
        new = replace(join, inner=stacked([operator], join.inner))
    else:
        new = replace(join, outer=stacked([operator], join.outer))
    return stacked(above(inputs(operator)[-1], join), new)


def merge_condition(plan: Operator) -> Operator | None:
    """SELECT(c) above JOIN(j) becomes JOIN(j and c).

    Condition: c uses only fields that the JOIN gives, and nothing but ASSIGN, SELECT and SUBPLAN stands between them.
    Right because those neither add nor drop tuples that c would judge differently.
    """
    return rewrite_first(plan, _merge_condition_at, lowest=True)


def _merge_condition_at(operator: Operator, facts: Facts) -> Operator | None:
    if not isinstance(operator, Select):
        return None
    for below in chain(operator.input):
        if isinstance(below, Join) and set(variables(operator.condition)) <= available(below):
            condition = conjunction((*conjuncts(below.condition), *conjuncts(operator.condition)))
            return stacked(above(operator.input, below), replace(below, condition=condition))
        if not isinstance(below, (Select, Assign, Subplan)):
            return None
    return None


def recognise_keys(plan: Operator) -> Operator | None:
    """Each value-eq(a, b) and general-eq(a, b) that must hold, a from one branch and b from the other, becomes a key.

    The condition stays as it is, in XQuery's own terms, and still decides; a key says where to look. Condition: both
    sides are known to be compared as strings, as numbers, or as dates and the like. A general comparison is true if
    any pair of items is equal, so its key is marked as existential: a tuple is then found under each of its items.
    Right because equal values have equal keys.
    """
    return rewrite_first(plan, _recognise_keys_at)


def _recognise_keys_at(operator: Operator, facts: Facts) -> Operator | None:
    if not isinstance(operator, Join):
        return None
    found = (_key(part, operator, facts) for part in conjuncts(operator.condition))
    keys = tuple(key for key in found if key is not None)
    return replace(operator, keys=keys) if keys != operator.keys else None


def _key(part: Expression, join: Join, facts: Facts) -> Equality | None:
    match part:
        case Call("boolean", (Call("value-eq" | "general-eq") as inner,)):
            return _key(inner, join, facts)
        case Call("value-eq" | "general-eq" as name, (left, right)):
            sides = _sided(left, right, join)
            kind = _kind(name, facts.of(left).type, facts.of(right).type)
            return Equality(*sides, kind, name == "general-eq") if sides and kind else None
    return None


def _sided(left: Expression, right: Expression, join: Join) -> tuple[Expression, Expression] | None:
    """The two operands, that of the inner branch first; None if they are not from one branch each."""
    inner, outer = available(join.inner), available(join.outer)
    for one, other in ((left, right), (right, left)):
        mine, theirs = set(variables(one)), set(variables(other))
        if mine and theirs and mine <= inner and theirs <= outer:
            return one, other
    return None


_VALUES = ("boolean", "date", "dateTime", "time")


def _kind(name: str, left: str, right: str) -> Literal["string", "number", "value"] | None:
    if left in TEXTS and right in TEXTS:
        return "string"
    if left in NUMBERS and right in NUMBERS:
        return "number"
    if left == right and left in _VALUES:
        return "value"
    mixed = {left, right} & {"untypedAtomic"} and ({left, right} & set(NUMBERS))
    return "number" if name == "general-eq" and mixed else None
