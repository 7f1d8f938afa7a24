"""Rules for scans: collections become scans, which take the first steps of a path and run in partitions."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import STEPS, Call, Constant, Expression, Variable
from dovetail.xml.algebra.operators import Aggregate, Assign, DataScan, Operator, Partitioning, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import exchanged, operators, renamed
from dovetail.xml.rules.matching import (
    asks_which_node,
    is_constant_collection,
    is_downward,
    iterated,
    reads_once,
    rewrite_first,
    source_name,
)


def introduce_scan(plan: Operator) -> Operator | None:
    """UNNEST($v1: iterate($v0)) with ASSIGN($v0: collection(name)) below becomes DATASCAN(collection(name), $v1).

    The ASSIGN goes if nothing else uses $v0. Condition: the name of the collection is a constant, the UNNEST counts no
    positions, and the collection is read at this place only, unless nothing tells nodes from their copies: two scans
    give two copies of each node. Right because the scan gives the documents of the collection one by one, in the order
    of the collection.
    """
    facts = Facts(plan)
    apart = not asks_which_node(plan)
    once = reads_once(plan)
    for operator in operators(plan):
        value = iterated(operator)
        defined = facts.definitions.get(value) if value is not None else None
        if not isinstance(operator, Unnest) or not isinstance(defined, Assign):
            continue
        alone = once and facts.uses[defined.variable] == 1
        if is_constant_collection(defined.expression) and (apart or alone):
            return _scanned(plan, operator, defined, facts)
    return None


def _scanned(plan: Operator, unnest: Unnest, assign: Assign, facts: Facts) -> Operator:
    alone = facts.uses[assign.variable] == 1
    below = exchanged(unnest.input, assign, assign.input) if alone else unnest.input
    read = assign.expression
    assert isinstance(read, Call)  # noqa: S101  (a call of `collection`)
    source = Call("collection", tuple(map(source_name, read.arguments)), read.place)
    new = exchanged(plan, unnest, DataScan(source, unnest.variable, (), below))
    return exchanged(new, assign, assign.input) if alone else new


def push_steps(plan: Operator) -> Operator | None:
    """UNNEST($v1: child(child($v0, "a"), "b")) over DATASCAN(source, $v0) becomes DATASCAN(source, $v0, "/a/b").

    $v0 then stands for $v1 everywhere. A path that ends in other steps keeps them in the UNNEST: only the child steps
    at its start are pushed. So are those of AGGREGATE($v1: f(child($v0, "a"))) right above the scan. Condition: steps
    are by name or `*`, nothing else uses $v0, no positions are counted, and nothing in the plan looks above the nodes
    it is given, since the scan cuts them out of their documents. Right because the scan gives exactly the nodes on the
    path, in document order, as the steps would.
    """
    if not is_downward(plan):
        return None
    facts = Facts(plan)
    for operator in operators(plan):
        match operator:
            case Unnest(_, steps, DataScan() as scan, None) if facts.uses[scan.variable] == 1:
                path, rest = _split(steps, scan.variable)
                if path:
                    return _pushed(plan, operator, replace(scan, path=scan.path + path), rest)
            case Aggregate(_, Call(name, (steps,)), DataScan() as scan) if facts.uses[scan.variable] == 1:
                path, rest = _split(steps, scan.variable)
                if path:
                    below = replace(scan, path=scan.path + path)
                    return exchanged(plan, operator, replace(operator, expression=Call(name, (rest,)), input=below))
    return None


def _pushed(plan: Operator, unnest: Unnest, scan: DataScan, rest: Expression) -> Operator:
    if rest == scan.variable:
        return renamed(exchanged(plan, unnest, scan), {unnest.variable: scan.variable})
    return exchanged(plan, unnest, replace(unnest, expression=rest, input=scan))


def _split(steps: Expression, scanned: Variable) -> tuple[tuple[str, ...], Expression]:
    """The child steps at the start of a chain, and the chain of the other steps on the scanned variable."""
    chain: list[Call] = []
    inner = steps
    while isinstance(inner, Call) and inner.name in STEPS:
        chain.append(inner)
        inner = inner.arguments[0]
    if inner != scanned:
        return (), steps
    path: list[str] = []
    while chain and (name := _simple(chain[-1])) is not None:
        path.append(name)
        chain.pop()
    pushed = steps if not chain else chain[-1].arguments[0]
    return tuple(path), _replaced(steps, pushed, scanned)


def _replaced(steps: Expression, pushed: Expression, scanned: Variable) -> Expression:
    if steps is pushed:
        return scanned
    assert isinstance(steps, Call)  # noqa: S101  (the chain above `pushed` consists of calls)
    return Call(steps.name, (_replaced(steps.arguments[0], pushed, scanned), *steps.arguments[1:]))


def _simple(step: Call) -> str | None:
    match step:
        case Call("child", (_, Constant(str() as name))) if not name.startswith("*:"):
            return name
    return None


def partition_scan(plan: Operator) -> Operator | None:
    """DATASCAN gets its partition properties: each partition holds documents of the directory, none of them twice.

    The listings do not show them. Condition: the collection is a named directory. Right because a document is never
    cut: what is computed from one document is computed in one partition.
    """
    return rewrite_first(plan, _partition_scan_at)


def _partition_scan_at(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case DataScan(partitioning=None) if operator.source.arguments:
            (name,) = operator.source.arguments
            if isinstance(name, Constant):
                return replace(operator, partitioning=Partitioning(str(name.value)))
    return None
