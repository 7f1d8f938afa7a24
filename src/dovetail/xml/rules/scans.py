"""Rules for scans, aggregates and joins, which run in partitions.

Collections become scans, which take the first steps of a path. Aggregates are computed incrementally, in two steps.
Products become joins, conditions move to a branch or into the join, keys are found.
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
    is_call,
    is_step,
    parts,
    substituted,
    variables,
    with_children,
)
from dovetail.xml.algebra.matching import (
    asks_which_node,
    conjunction,
    conjuncts,
    first,
    is_constant_collection,
    is_downward,
    iterated,
    lowest,
    reads_once,
    source_name,
)
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Equality,
    Gathered,
    GroupBy,
    Join,
    KeyKind,
    Operator,
    Select,
    Subplan,
    TwoStep,
    Unnest,
    above,
    available,
    chain,
    defined,
    exchanged,
    expressions,
    inputs,
    operators,
    renamed,
    stacked,
    used,
)
from dovetail.xml.algebra.properties import NUMBERS, TEXTS, Facts


def introduce_scan(plan: Operator) -> Operator | None:
    """UNNEST($v1: iterate($v0)) with ASSIGN($v0: collection(name)) below becomes DATASCAN(collection(name), $v1).

    The ASSIGN goes if nothing else uses $v0. Condition: the name of the collection is a constant, the UNNEST counts no
    positions, and the collection is read at this place only, unless nothing distinguishes nodes from their copies: two
    scans return two copies of each node. Right because the scan gives the documents of the collection one by one, in
    the order of the collection.
    """
    facts = Facts(plan)
    apart = not asks_which_node(plan)
    once = reads_once(plan)
    for operator in operators(plan):
        value = iterated(operator)
        defined = facts.definition(value)
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
    are by name or `*`, nothing else uses $v0, no positions are counted, and nothing in the plan accesses ancestors of
    its nodes, since the scan cuts them out of their documents. Right because the scan gives exactly the nodes on the
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


@first
def partition_scan(operator: Operator, facts: Facts) -> Operator | None:
    """DATASCAN gets its partition properties: each partition holds documents of the directory, none of them twice.

    The listings do not show them. Condition: the collection is a named directory. Right because a document is never
    cut: what is computed from one document is computed in one partition.
    """
    match operator:
        case DataScan(Call(_, (Constant(),)), partitioned=False):
            return replace(operator, partitioned=True)
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
    match gathered := facts.definition(value):
        case Aggregate(variable, Call("create_sequence", (item,)), below) if facts.uses[variable] == 1:
            subplan = next(o for o in operators(plan) if isinstance(o, Subplan) and o.nested is gathered)
            new = Subplan(Aggregate(assign.variable, with_children(assign.expression, (item,)), below), subplan.input)
            without = exchanged(plan, assign, assign.input)
            return exchanged(without, subplan, new)
    return None


def _grouped(plan: Operator, assign: Assign, value: Expression, facts: Facts) -> Operator | None:
    written = _chain(value, facts)
    base = base_of_steps(written)
    group = facts.definition(base)
    if not isinstance(base, Variable) or not isinstance(group, GroupBy):
        return None
    field = next((one for one in group.gathered if one.variable == base), None)
    match field:
        case Gathered(_, Call("create_sequence", (item,))):
            added = Gathered(assign.variable, with_children(assign.expression, (substituted(written, {base: item}),)))
            without = exchanged(plan, assign, assign.input)
            return exchanged(without, group, replace(group, gathered=(*group.gathered, added)))
    return None


def _chain(value: Expression, facts: Facts) -> Expression:
    """Steps that were assigned to variables, written as one chain."""
    match facts.inlined(value):
        case Call(name, (inner, *rest)) as step if is_step(step):
            return Call(name, (_chain(inner, facts), *rest))
    return value


STEPS_OF = {
    "count": TwoStep(("count",), "sum"),
    "avg": TwoStep(("sum", "count"), "divide"),
    "max": TwoStep(("max",), "max"),
    "min": TwoStep(("min",), "min"),
    "sum": TwoStep(("sum",), "sum"),
}


@first
def aggregate_in_two_steps(operator: Operator, facts: Facts) -> Operator | None:
    """AGGREGATE($v: f(e)), and f(e) in GROUP-BY, get the functions that compute f in two steps.

    Condition: f is avg, count, max, min or sum. Right because each of them can be computed from the values of the
    parts: counts and sums add up, the largest of the largest is the largest, and a mean is the sum of sums by the sum
    of counts.
    """
    match operator:
        case Aggregate(steps=None) if (steps := _steps(operator.expression)) is not None:
            return replace(operator, steps=steps)
        case GroupBy():
            fields = tuple(replace(field, steps=_steps(field.expression)) for field in operator.gathered)
            return replace(operator, gathered=fields) if fields != operator.gathered else None
    return None


def _steps(expression: Expression) -> TwoStep | None:
    return STEPS_OF.get(expression.name) if isinstance(expression, Call) else None


# --- joins


@first
def introduce_join(operator: Operator, facts: Facts) -> Operator | None:
    """DATASCAN(b) over a plan that scans as well becomes JOIN(true) { DATASCAN(b) } { that plan }, a cross product.

    So does a run of operators that reads a document by doc() and takes it apart, if it uses nothing from below.
    Condition: the plan below gives many tuples from a source of its own; otherwise there is nothing to join. Right
    because the source gives the same items for each tuple below, and JOIN gives its inner tuples for each outer one in
    turn.
    """
    if not isinstance(operator, (DataScan, Unnest)):
        return None
    run = _run(operator)
    if run is None:
        return None
    below = inputs(run[-1])[-1]
    return Join(Constant(True), stacked(run, EmptyTupleSource()), below) if _reads_many(below) else None


def _run(top: Operator) -> list[Operator] | None:
    """The operators from `top` down that use nothing from below; None if there are no such operators."""
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


@lowest
def push_to_branch(operator: Operator, facts: Facts) -> Operator | None:
    """SELECT, ASSIGN or SUBPLAN above a JOIN that uses fields of one branch only moves to the top of that branch.

    A SELECT of several conditions is split where one of them can move. An UNNEST may move to the inner branch only:
    there the order of the tuples stays (outer, inner, unnested); the last one, which feeds the result, stays.
    Condition: only ASSIGN, SELECT and SUBPLAN stand between the operator and the JOIN, and it uses none of their
    values. Right because these operators look at one tuple at a time, and a joined tuple has the fields of its side
    unchanged.
    """
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
    """The branch that has all the fields; "" if neither has. Without fields it is the outer branch."""
    if needed <= available(join.outer):
        return "outer"
    return "inner" if needed <= available(join.inner) else ""


def _moved(operator: Operator, join: Join, side: str) -> Operator:
    if side == "inner":
        new = replace(join, inner=stacked([operator], join.inner))
    else:
        new = replace(join, outer=stacked([operator], join.outer))
    return stacked(above(inputs(operator)[-1], join), new)


@lowest
def merge_condition(operator: Operator, facts: Facts) -> Operator | None:
    """SELECT(c) above JOIN(j) becomes JOIN(j and c).

    Condition: c uses only fields that the JOIN gives, and nothing but ASSIGN, SELECT and SUBPLAN stands between them.
    Right because those neither add nor drop tuples for which c has another value.
    """
    if not isinstance(operator, Select):
        return None
    for below in chain(operator.input):
        if isinstance(below, Join) and set(variables(operator.condition)) <= available(below):
            condition = conjunction((*conjuncts(below.condition), *conjuncts(operator.condition)))
            return stacked(above(operator.input, below), replace(below, condition=condition))
        if not isinstance(below, (Select, Assign, Subplan)):
            return None
    return None


@first
def recognise_keys(operator: Operator, facts: Facts) -> Operator | None:
    """Each value-eq(a, b) and general-eq(a, b) that must hold, a from one branch and b from the other, becomes a key.

    The condition is unchanged, in XQuery's own terms, and still decides; a key only narrows the search. Condition: both
    sides are known to be compared as strings, as numbers, or as dates and the like. A general comparison is true if
    any pair of items is equal, so its key is marked as existential: a tuple is then found under each of its items.
    Right because equal values have equal keys.
    """
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


def _kind(name: str, left: str, right: str) -> KeyKind | None:
    kinds = {left, right}
    if kinds <= set(TEXTS):
        return "string"
    if kinds <= {"integer", "decimal"} or kinds == {"boolean"}:
        return "exact"
    if not kinds <= {*NUMBERS, "untypedAtomic"}:
        return "moment" if len(kinds) == 1 and left in ("date", "dateTime", "time") else None
    if "untypedAtomic" in kinds and name == "value-eq":
        return None
    return "number" if kinds & {"float", "numeric"} else "double"
