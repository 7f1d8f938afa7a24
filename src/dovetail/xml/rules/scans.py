"""Rules for scans and aggregates, which run in partitions.

Collections become scans, which take the first steps of a path. Aggregates are computed while tuples come, in two steps.
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.expressions import (
    AGGREGATES,
    STEPS,
    Call,
    Constant,
    Expression,
    Variable,
    base_of_steps,
    is_step,
    substituted,
    with_children,
)
from dovetail.xml.algebra.matching import (
    asks_which_node,
    is_constant_collection,
    is_downward,
    iterated,
    reads_once,
    rewrite_first,
    source_name,
)
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    Gathered,
    GroupBy,
    Operator,
    Partitioning,
    Subplan,
    TwoStep,
    Unnest,
    exchanged,
    operators,
    renamed,
)
from dovetail.xml.algebra.properties import Facts


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


# --- aggregates


def aggregate_incrementally(plan: Operator) -> Operator | None:
    """ASSIGN($v2: f($v1)) over SUBPLAN{ AGGREGATE($v1: create_sequence(e)) } becomes SUBPLAN{ AGGREGATE($v2: f(e)) }.

    f is avg, count, max, min or sum. The same holds for a field of GROUP-BY, where f may also be applied to a step
    from it. Condition: nothing else uses $v1 (a field of GROUP-BY may have other uses: it stays beside the new one).
    Right because f of a sequence is f over the items of its parts, one after the other.
    """
    facts = Facts(plan)
    for operator in operators(plan):
        match operator:
            case Assign(_, Call(name, (value,))) if name in AGGREGATES:
                new = _nested(plan, operator, value, facts) or _grouped(plan, operator, value, facts)
                if new is not None:
                    return new
    return None


def _nested(plan: Operator, assign: Assign, value: Expression, facts: Facts) -> Operator | None:
    gathered = facts.definitions.get(value) if isinstance(value, Variable) else None
    match gathered:
        case Aggregate(variable, Call("create_sequence", (item,)), below) if facts.uses[variable] == 1:
            subplan = next(o for o in operators(plan) if isinstance(o, Subplan) and o.nested is gathered)
            new = Subplan(Aggregate(assign.variable, with_children(assign.expression, (item,)), below), subplan.input)
            without = exchanged(plan, assign, assign.input)
            return exchanged(without, subplan, new)
    return None


def _grouped(plan: Operator, assign: Assign, value: Expression, facts: Facts) -> Operator | None:
    written = _written_out(value, facts)
    base = base_of_steps(written)
    group = facts.definitions.get(base) if isinstance(base, Variable) else None
    if not isinstance(base, Variable) or not isinstance(group, GroupBy):
        return None
    field = next((one for one in group.gathered if one.variable == base), None)
    match field:
        case Gathered(_, Call("create_sequence", (item,))):
            added = Gathered(assign.variable, with_children(assign.expression, (substituted(written, {base: item}),)))
            without = exchanged(plan, assign, assign.input)
            return exchanged(without, group, replace(group, gathered=(*group.gathered, added)))
    return None


def _written_out(value: Expression, facts: Facts) -> Expression:
    """Steps that were assigned to variables, written as one chain."""
    match value:
        case Variable():
            defined = facts.definitions.get(value)
            steps = isinstance(defined, Assign) and is_step(defined.expression)
            return _written_out(defined.expression, facts) if steps else value  # type: ignore[union-attr]  # an Assign
        case Call(name, (inner, *rest)) if is_step(value):
            return Call(name, (_written_out(inner, facts), *rest))
    return value


STEPS_OF = {
    "count": TwoStep(("count",), "sum"),
    "avg": TwoStep(("sum", "count"), "divide"),
    "max": TwoStep(("max",), "max"),
    "min": TwoStep(("min",), "min"),
    "sum": TwoStep(("sum",), "sum"),
}


def aggregate_in_two_steps(plan: Operator) -> Operator | None:
    """AGGREGATE($v: f(e)), and f(e) in GROUP-BY, get the functions that compute f in two steps.

    Condition: f is avg, count, max, min or sum. Right because each of them can be computed from the values of the
    parts: counts and sums add up, the largest of the largest is the largest, and a mean is the sum of sums by the sum
    of counts.
    """
    return rewrite_first(plan, _aggregate_in_two_steps_at)


def _aggregate_in_two_steps_at(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Aggregate(steps=None) if (steps := _steps(operator.expression)) is not None:
            return replace(operator, steps=steps)
        case GroupBy():
            fields = tuple(replace(field, steps=_steps(field.expression)) for field in operator.gathered)
            return replace(operator, gathered=fields) if fields != operator.gathered else None
    return None


def _steps(expression: Expression) -> TwoStep | None:
    return STEPS_OF.get(expression.name) if isinstance(expression, Call) else None
