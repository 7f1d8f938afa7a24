"""Child steps right above a DATASCAN are taken by the scan."""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import Call, Constant, Expression, Variable
from dovetail.xml.algebra.functions import STEPS
from dovetail.xml.algebra.operators import Aggregate, DataScan, Operator, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import exchanged, operators, renamed
from dovetail.xml.rules.matching import is_downward


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
