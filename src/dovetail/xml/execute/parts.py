"""Cuts a rewritten plan into parts that run in parallel, and a rest that one task runs over their rows.

A part is a chain of operators that look at one tuple at a time, down to a DATASCAN or to a JOIN of two parts with keys.
An AGGREGATE in two steps over a part is computed partition by partition and combined. A plan that cannot be cut this
way without changing the answer is not cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dovetail.xml.algebra.expressions import (
    SEQUENCE,
    Call,
    Evaluate,
    Expression,
    Variable,
    call,
    is_call,
    parts,
    substituted,
    variables,
    with_children,
)
from dovetail.xml.algebra.matching import (
    asks_which_node,
    assigned,
    conjunction,
    conjuncts,
    free_variables,
    is_downward,
    is_one_tuple,
    reads_data,
    tree_parts,
    unnested,
    with_callees,
)
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    Equality,
    GroupBy,
    Join,
    Operator,
    Select,
    Subplan,
    Unnest,
    above,
    all_uses,
    available,
    chain,
    expressions,
    free,
    inputs,
    leaf,
    next_number,
    operators,
    stacked,
    with_inputs,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.evaluate.plans import Given
from dovetail.xml.execute.rows import Fields, Forms, Items, State, Wanted
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import Module

PER_TUPLE = (Assign, Select, Unnest, Subplan)


@dataclass(frozen=True, slots=True)
class ScanPart:
    """A chain over one scan; `plan` is its topmost operator."""

    plan: Operator
    scan: DataScan

    @property
    def collection(self) -> str | None:
        """The name of the collection; None for the default one."""
        names = self.scan.source.arguments
        return str(names[0].value) if names else None  # type: ignore[attr-defined]  # `introduce_scan` asks for a constant


@dataclass(frozen=True, slots=True)
class JoinPart:
    """A chain over a join of two parts, found by `keys`; every condition that they do not cover is tested after it."""

    plan: Operator
    join: Join
    keys: tuple[Equality, ...]
    inner: Part
    outer: Part


Part = ScanPart | JoinPart


@dataclass(frozen=True, slots=True)
class Cut:
    """A part in a plan, and the required values of its tuples."""

    part: Part
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Whole:
    """A plan that one task runs, and why it is not cut."""

    reason: str


@dataclass(frozen=True, slots=True)
class Direct:
    """A plan whose only part gives the result."""

    cut: Cut


@dataclass(frozen=True, slots=True)
class Divided:
    """A plan in parts, and the rest that one last task runs over their rows."""

    cuts: tuple[Cut, ...]
    rest: DistributeResult


def divided(plan: DistributeResult, module: Module, columns: tuple[Variable, ...] = ()) -> Whole | Direct | Divided:
    """The largest parts that give the same answer; `columns` are further variables that the result needs."""
    whole = _part(plan.input, module)
    if whole is not None:
        return Direct(Cut(whole, Fields(columns) if columns else Items(plan.variable)))
    cuts: list[Cut] = []
    plan = _assigned(plan, plan)  # type: ignore[assignment]  # the topmost operator is no GROUP-BY
    rest = _without(plan, module, cuts)
    reason = _refusal(rest, Facts(plan), module) if cuts else "no collection is read tuple by tuple"
    if reason:
        return Whole(reason)
    used = {*all_uses(rest), *columns}
    return Divided(tuple(_reduced(cut, used) for cut in cuts), rest)  # type: ignore[arg-type]  # the topmost operator is never cut


def _assigned(plan: Operator, whole: Operator) -> Operator:
    """The plan with per-tuple expressions of each GROUP-BY computed below it: parts then return only their values."""
    plan = with_inputs(plan, tuple(_assigned(below, whole) for below in inputs(plan)))
    if not isinstance(plan, GroupBy):
        return plan
    below, number = plan.input, max(next_number(whole), next_number(plan))
    keys, fields = [], []
    for variable, value in plan.keys:
        below, number = Assign(Variable(number), value, below), number + 1
        keys.append((variable, Variable(number - 1)))
    for one in plan.gathered:
        (argument,) = one.expression.arguments  # type: ignore[attr-defined]  # an aggregate is a call
        if one.steps is not None:
            value = argument if is_call(one.expression, "count") else call("data", argument)
            below, number, argument = Assign(Variable(number), value, below), number + 1, Variable(number)
        fields.append(replace(one, expression=with_children(one.expression, (argument,))))
    return replace(plan, keys=tuple(keys), gathered=tuple(fields), input=below)


def _refusal(rest: Operator, facts: Facts, module: Module) -> str:
    if any(isinstance(operator, DataScan) for operator in operators(rest)) or _reads(rest, module):
        return "another part of the query reads documents itself"
    if asks_which_node(rest) or any(_mixes(e, facts, module) for o in operators(rest) for e in expressions(o)):
        return "nodes from different places are compared or sorted"
    return "" if is_downward(rest) else "the query looks above the nodes that it selects"


def _reduced(cut: Cut, used: set[Variable]) -> Cut:
    """The cut without the variables that only its part uses, since a row would contain all ancestors of its nodes."""
    if not isinstance(cut.wanted, Fields):
        return cut
    return replace(cut, wanted=Fields(tuple(v for v in cut.wanted.variables if v in used)))


def _without(plan: Operator, module: Module, cuts: list[Cut]) -> Operator:
    """The plan with parts replaced; they are noted in `cuts`, with all their variables."""
    if isinstance(plan, Aggregate) and plan.steps is not None:
        below = _part(plan.input, module)
        if below is not None and not _unknown(plan.expression, available(plan.input)) and _is_plain(plan, module):
            cuts.append(Cut(below, State(plan)))
            given = Given(len(cuts) - 1)
            return Aggregate(plan.variable, call("create_sequence", plan.variable), given)
    found = _part(plan, module)
    if found is not None:
        cuts.append(Cut(found, Fields(tuple(sorted(available(plan))))))
        return Given(len(cuts) - 1)
    return with_inputs(plan, tuple(_without(below, module, cuts) for below in inputs(plan)))


def _unknown(expression: Expression, known: set[Variable]) -> bool:
    return any(isinstance(part, Variable) and part not in known for part in parts(expression))


def _part(plan: Operator, module: Module) -> Part | None:
    for operator in chain(plan):
        if isinstance(operator, DataScan):
            return _scan_part(plan, operator, module)
        if isinstance(operator, Join):
            return _join_part(plan, operator, module)
        if not isinstance(operator, PER_TUPLE) or not _is_plain(operator, module):
            return None
    return None


def _scan_part(plan: Operator, scan: DataScan, module: Module) -> ScanPart | None:
    if not is_one_tuple(scan.input) or _reads(scan.input, module) or free(plan):
        return None
    return ScanPart(plan, scan) if _scans(plan) == 1 else None


def _join_part(plan: Operator, join: Join, module: Module) -> JoinPart | None:
    facts = Facts(plan)
    keys = tuple(one for one in join.keys if one.kind != "number")
    inner, outer = _part(join.inner, module), _part(join.outer, module)
    if not keys or inner is None or outer is None or free(plan) or not _is_plain(join, module):
        return None
    # Values of the join cross between tasks, and with them the nodes in them.
    upper = stacked(above(plan, join), Select(join.condition, Given()))
    mixed = any(_mixes(e, facts, module) for o in operators(upper) for e in expressions(o))
    if asks_which_node(upper) or not is_downward(upper) or mixed:
        return None
    return JoinPart(plan, join, keys, inner, outer)


def _mixes(expression: Expression, facts: Facts, module: Module) -> bool:
    """Whether a piece for the evaluator may take steps from nodes that belong together, but are copied one by one."""
    return any(isinstance(part, Evaluate) and _piece_mixes(part, facts, module) for part in parts(expression))


def _piece_mixes(piece: Evaluate, facts: Facts, module: Module) -> bool:
    inside = [part for one in with_callees(piece.tree, module) for part in tree_parts(one)]
    if not any(isinstance(part, (tree.AxisStep, tree.Path)) for part in inside):
        return False
    known = [facts.of(value) for _, value in piece.bindings]
    nodes = [one for one in known if not one.atomic]
    if any(not (one.at_most_one() or (one.ordered and one.unique and one.disjoint)) for one in nodes):
        return True
    starts = [part.start for part in inside if isinstance(part, tree.Path) and part.start is not None]
    return len(nodes) > 1 and any(len(free_variables(start)) > 1 for start in starts)


def _scans(plan: Operator) -> int:
    return sum(isinstance(operator, DataScan) for operator in operators(plan))


def _is_plain(operator: Operator, module: Module) -> bool:
    """Whether the operator reads only its tuples."""
    if isinstance(operator, Subplan) and (_scans(operator.nested) or _reads(operator.nested, module)):
        return False
    return not any(_reading(part, module) for e in expressions(operator) for part in parts(e))


def _reads(plan: Operator, module: Module) -> bool:
    return any(
        not isinstance(operator, DataScan) and _reading(part, module)
        for operator in operators(plan)
        for e in expressions(operator)
        for part in parts(e)
    )


def _reading(part: Expression, module: Module) -> bool:
    if isinstance(part, Call):
        return part.name in ("doc", "collection", "doc-available", "uri-collection")
    return isinstance(part, Evaluate) and reads_data(part.tree, module)


# --- the chain above a join


@dataclass(frozen=True, slots=True)
class JoinWork:
    """The chain above a join as a plan over the joined tuples, and the variables that it needs of them."""

    part: JoinPart
    wanted: Wanted
    plan: Operator
    needed: tuple[Variable, ...]
    typed: frozenset[Variable]
    residual: tuple[Expression, ...]


def planned_join(part: JoinPart, wanted: Wanted) -> JoinWork:
    """The work on the pairs that the keys find."""
    decided = [one for one in conjuncts(part.join.condition) if any(key.decides(one) for key in part.keys)]
    residual = tuple(one for one in conjuncts(part.join.condition) if one not in decided)
    bottom = Select(conjunction(residual), Given()) if residual else Given()
    plan = stacked(above(part.plan, part.join), bottom)
    inside = available(part.join)
    used = set(all_uses(plan)) | {one for expression in wanted.expressions for one in variables(expression)}
    typed = frozenset[Variable]()
    if isinstance(wanted, State):
        typed = _typed_only(wanted.call.arguments[0], plan)
    elif isinstance(wanted, Fields):
        typed = wanted.typed & inside
    return JoinWork(part, wanted, plan, tuple(sorted(used & inside)), typed, residual)


def _typed_only(argument: Expression, plan: Operator) -> frozenset[Variable]:
    """The variables that only an aggregate uses, by their typed value."""
    direct = {argument} if isinstance(argument, Variable) else set()
    return frozenset(direct - set(all_uses(plan)))


def spread_items(work: JoinWork, forms: Forms) -> tuple[Variable, ...] | None:
    """The columns whose strings, one after the other, are the items; None if there is more to compute."""
    if not isinstance(work.wanted, Items) or work.residual:
        return None
    found = unnested(work.plan, work.wanted.variable)
    values = None if found is None else assigned(above(found[1], leaf(found[1])))
    if found is None or values is None:
        return None
    written = substituted(found[0], values)
    parts = written.arguments if isinstance(written, Call) and written.name == SEQUENCE else (written,)
    plain = all(isinstance(one, Variable) and forms.get(one) in ("nodes", "texts") for one in parts)
    return parts if plain else None  # type: ignore[return-value]  # variables all


def double_aggregate(work: JoinWork, forms: Forms) -> Expression | None:
    """The argument of an aggregate over doubles made of untyped texts, which Spark computes; None for others."""
    if not isinstance(work.wanted, State) or work.residual or work.wanted.call.name == "count":
        return None
    values = assigned(above(work.plan, leaf(work.plan)))
    argument = None if values is None else substituted(work.wanted.call.arguments[0], values)
    return argument if argument is not None and _is_double(argument, forms) else None


def _is_double(expression: Expression, forms: Forms) -> bool:
    match expression:
        case Variable():
            return forms.get(expression) == "texts"
        case Call("add" | "subtract" | "multiply", (left, right)):
            return _is_double(left, forms) and _is_double(right, forms)
    return False
