"""Tests pieces of a query and plans for properties, and rewrites plans where a pattern matches.

For a piece of the query: free variables, data that it reads, axes that it uses. For a plan: patterns of several rules
and of the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, Protocol, TypeGuard

from dovetail.xml.algebra.expressions import (
    DISTINCT,
    DOWNWARD,
    SORT,
    SORT_DISTINCT,
    STEPS,
    Call,
    Constant,
    Evaluate,
    Expression,
    Variable,
    is_call,
    substituted,
)
from dovetail.xml.algebra.operators import (
    Assign,
    EmptyTupleSource,
    NestedTupleSource,
    Operator,
    Subplan,
    Unnest,
    all_parts,
    chain,
    defined,
    exchanged,
    inputs,
    operators,
    with_inputs,
)
from dovetail.xml.algebra.properties import ALWAYS, Facts
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import FN, KindTest, QName

LOOK_UP = {"root", "base-uri", "document-uri", "path", "id", "idref", "element-with-id", "lang", "in-scope-prefixes"}
TRUTH_FUNCTIONS = {name for name, kind in ALWAYS.items() if kind == "boolean"} - {"and", "or"} | {"true", "false"}
"""Functions that always return one boolean."""
OF_NODES = {*tree.NODE.values(), *tree.SETS}
"""Operators that depend on node identity."""
_TRUTH_OPERATORS = {"and", "or", *tree.VALUE.values(), *tree.GENERAL.values(), *tree.NODE.values()}
_FOCUS = {"position", "last"}
_OF_CONTEXT = {
    "string", "number", "data", "name", "local-name", "namespace-uri", "node-name", "normalize-space", "string-length",
    "root", "base-uri", "document-uri", "nilled", "has-children", "path", "generate-id",
}  # fmt: skip


def tree_parts(node: Any) -> Iterator[Any]:
    """Every dataclass of the tree, from the top down: expressions, clauses, tests, names."""
    if isinstance(node, tuple):
        for item in node:
            yield from tree_parts(item)
    elif is_dataclass(node) and not isinstance(node, type):
        yield node
        for one in fields(node):
            yield from tree_parts(getattr(node, one.name))


def free_variables(node: Any) -> set[QName]:
    """Every variable that the piece mentions; one that it binds itself may be among them if it has the same name."""
    return {part.name for part in tree_parts(node) if isinstance(part, tree.VariableRef)}


def called(node: Any) -> set[QName]:
    """The functions that the piece calls itself."""
    return {part.name for part in tree_parts(node) if isinstance(part, tree.FunctionCall)}


def with_callees(node: Any, module: tree.Module | None) -> list[Any]:
    """The piece and the bodies of all declared functions that it can reach."""
    bodies = {function.name: function.body for function in module.functions} if module is not None else {}
    found, names, todo = [node], set[QName](), called(node)
    while todo:
        name = todo.pop()
        if name in names or name not in bodies:
            continue
        names.add(name)
        found.append(bodies[name])
        todo |= called(bodies[name])
    return found


def inlined(call: tree.FunctionCall, module: tree.Module) -> tree.FunctionDeclaration | None:
    """The function that is called, if its body may stand in place of the call: no types to check, no recursion."""
    for function in module.functions:
        if function.name == call.name and len(function.parameters) == len(call.arguments):
            typed = function.type is not None or any(one.type is not None for one in function.parameters)
            reached = {name for piece in with_callees(function.body, module) for name in called(piece)}
            return None if typed or function.name in reached else function
    return None


def shared_nodes(module: tree.Module) -> set[QName]:
    """Global variables that declared functions use and whose values may hold nodes that the query constructs.

    Functions get them from the evaluator. A plan that computed them again would compare nodes with copies of them.
    """
    values = {one.name: one.value for one in module.variables}
    used = _used_globals([function.body for function in module.functions], values, module)
    return {name for name in used if _constructs([values[name], *_values_used(values[name], values, module)], module)}


def _used_globals(nodes: list[Any], values: dict[QName, Any], module: tree.Module) -> set[QName]:
    found, todo = set[QName](), list(nodes)
    while todo:
        mentioned = {name for piece in with_callees(todo.pop(), module) for name in free_variables(piece)}
        new = (mentioned & set(values)) - found
        found |= new
        todo += [values[name] for name in new]
    return found


def _values_used(node: Any, values: dict[QName, Any], module: tree.Module) -> list[Any]:
    return [values[name] for name in _used_globals([node], values, module)]


def _constructs(nodes: list[Any], module: tree.Module) -> bool:
    pieces = [piece for node in nodes for piece in with_callees(node, module)]
    return any(isinstance(part, _CONSTRUCTORS) for piece in pieces for part in tree_parts(piece))


def looks_up(node: Any, module: tree.Module | None = None) -> bool:
    """Whether the piece, or a function it calls, may access ancestors of its nodes."""
    return any(_looks_up(part) for piece in with_callees(node, module) for part in tree_parts(piece))


def _looks_up(part: Any) -> bool:
    if isinstance(part, tree.AxisStep):
        return part.axis not in DOWNWARD
    if isinstance(part, tree.FunctionCall):
        return part.name.uri == FN and part.name.local in LOOK_UP
    return isinstance(part, tree.Root)


def compares_nodes(node: Any, module: tree.Module | None = None) -> bool:
    """Whether the piece, or a function it calls, depends on node identity: `is`, `<<`, `union` and the like."""
    parts = (part for piece in with_callees(node, module) for part in tree_parts(piece))
    return any(isinstance(part, tree.Operation) and part.name in OF_NODES for part in parts)


def uses_position(node: Any) -> bool:
    """Whether position() or last() occurs anywhere in the piece."""
    return any(name.uri == FN and name.local in _FOCUS for name in called(node))


def reads_data(node: Any, module: tree.Module | None = None) -> bool:
    """Whether the piece, or a function it calls, reads documents or collections."""
    reads = {"doc", "collection"}
    pieces = with_callees(node, module)
    return any(name.uri == FN and name.local in reads for piece in pieces for name in called(piece))


def needs_context(node: Any) -> bool:
    """Whether the piece may use a context item, or its position, that it does not set itself."""
    return any(asks_context(part) for part in tree_parts(node)) or uses_position(node)


def asks_context(part: Any) -> bool:
    """Whether this part itself uses the context item."""
    if isinstance(part, tree.FunctionCall):
        return part.name.uri == FN and part.name.local in _OF_CONTEXT and not part.arguments
    return isinstance(part, (tree.ContextItem, tree.Root, tree.AxisStep))


def is_truth(node: tree.Expr) -> bool:
    """Whether a predicate of this form is certainly a condition, never a position."""
    if isinstance(node, tree.Path):
        return isinstance(node.steps[-1], tree.AxisStep)
    if isinstance(node, tree.FunctionCall):
        return node.name.uri == FN and node.name.local in TRUTH_FUNCTIONS
    if isinstance(node, tree.Operation):
        return node.name in _TRUTH_OPERATORS
    return isinstance(node, (tree.AxisStep, tree.InstanceOf, tree.CastableAs))


def is_filter(predicate: tree.Expr) -> bool:
    """Whether a predicate is certainly a condition and uses no position."""
    return is_truth(predicate) and not uses_position(predicate)


def folded(steps: tuple[tree.Expr, ...]) -> tuple[tree.Expr, ...]:
    """`//name` as one step on the axis descendant, unless a predicate counts positions below each parent."""
    found: list[tree.Expr] = []
    for step in steps:
        if found and found[-1] == _ANY_DESCENDANT and _is_countless(step):
            found[-1] = replace(step, axis="descendant")
        else:
            found.append(step)
    return tuple(found)


_ANY_DESCENDANT = tree.AxisStep("descendant-or-self", KindTest("node"))


def _is_countless(step: tree.Expr) -> TypeGuard[tree.AxisStep]:
    below = isinstance(step, tree.AxisStep) and step.axis in ("child", "descendant")
    return below and all(map(is_filter, step.predicates))  # type: ignore[attr-defined]  # an AxisStep, as just asked


_CONSTRUCTORS = (tree.DirectElement, tree.Computed)


# --- plans

Local = Callable[[Operator, Facts], Operator | None]
"""Replaces one operator of a plan; returns None if it stays."""


class Rule(Protocol):
    """The plan after a rule; None if the rule matches nowhere."""

    __name__: str

    def __call__(self, plan: Operator) -> Operator | None:
        """The new plan."""


def first(local: Local) -> Rule:
    """A rule that replaces the first operator for which `local` has a replacement, from the top down."""
    return _exchanging(local, list)


def lowest(local: Local) -> Rule:
    """A rule that replaces the first operator for which `local` has a replacement, from the bottom up."""
    return _exchanging(local, lambda found: list(found)[::-1])


def _exchanging(local: Local, order: Callable[[Iterable[Operator]], list[Operator]]) -> Rule:
    @wraps(local)
    def rule(plan: Operator) -> Operator | None:
        facts = Facts(plan)
        for operator in order(operators(plan)):
            new = local(operator, facts)
            if new is not None:
                return exchanged(plan, operator, new)
        return None

    return rule


def everywhere(local: Local) -> Rule:
    """A rule that replaces every operator for which `local` has a replacement.

    Facts are those of the original plan: for rules that change neither uses nor properties of other variables.
    """

    @wraps(local)
    def rule(plan: Operator) -> Operator | None:
        new = _everywhere(plan, local, Facts(plan))
        return None if new is plan else new

    return rule


def _everywhere(operator: Operator, local: Local, facts: Facts) -> Operator:
    while (new := local(operator, facts)) is not None:
        operator = new
    below = inputs(operator)
    changed = tuple(_everywhere(one, local, facts) for one in below)
    same = all(a is b for a, b in zip(below, changed, strict=True))
    return operator if same else with_inputs(operator, changed)


def upwards(local: Local) -> Rule:
    """A rule that replaces every operator for which `local` has a replacement, lowest first.

    Replacements below are visible above: for rules that change the value of no variable.
    """

    @wraps(local)
    def rule(plan: Operator) -> Operator | None:
        new = _upwards(plan, local, Facts(plan))
        return None if new is plan else new

    return rule


def _upwards(operator: Operator, local: Local, facts: Facts) -> Operator:
    old = inputs(operator)
    below = tuple(_upwards(one, local, facts) for one in reversed(old))[::-1]
    if any(a is not b for a, b in zip(old, below, strict=True)):
        operator = with_inputs(operator, below)
    new = local(operator, facts)
    if new is None:
        return operator
    facts.definitions.update(dict.fromkeys(defined(new), new))
    return new


def iterated(operator: Operator) -> Variable | None:
    """$v1 of UNNEST($v2: iterate($v1)) without a position; None for every other operator."""
    match operator:
        case Unnest(_, Call("iterate", (Variable() as variable,)), _, None):
            return variable
    return None


def unnested(plan: Operator, variable: Variable) -> tuple[Expression, Operator] | None:
    """The sequence that an UNNEST at the top iterates over, and the operators below it; None if there is none."""
    match plan:
        case Unnest(found, Call("iterate", (inner,)), below, None) if found == variable:
            return inner, below
        case Unnest(found, expression, below, None) if found == variable:
            return expression, below
    return None


def assigned(
    upper: Iterable[Operator], known: Mapping[Variable, Expression] = MappingProxyType({})
) -> dict[Variable, Expression] | None:
    """The variables that ASSIGNs, given from the top down, add to known ones, written out; None for other operators."""
    values = dict(known)
    for operator in reversed(list(upper)):
        if not isinstance(operator, Assign):
            return None
        values[operator.variable] = substituted(operator.expression, values)
    return values


def is_one_tuple(plan: Operator) -> bool:
    """Whether the plan gives exactly one tuple for each tuple of its source."""
    one = (Assign, Subplan, EmptyTupleSource, NestedTupleSource)
    return all(isinstance(operator, one) for operator in chain(plan))


def source_name(expression: Expression) -> Expression:
    """The argument of doc or collection without the conversions around a constant."""
    while isinstance(expression, Call) and expression.name in ("promote", "data"):
        expression = expression.arguments[0]
    return expression


def is_constant_collection(expression: Expression) -> bool:
    """Whether the expression is `collection` of a name that is known now, or of none."""
    match expression:
        case Call("collection", ()):
            return True
        case Call("collection", (argument,)):
            return isinstance(source_name(argument), Constant)
    return False


def is_downward(plan: Operator) -> bool:
    """Whether nothing in the plan may access ancestors of its nodes."""
    return not any(map(_call_looks_up, all_parts(plan)))


def _call_looks_up(part: Expression) -> bool:
    if isinstance(part, Evaluate):
        return part.upward
    if not isinstance(part, Call):
        return False
    return part.name in LOOK_UP or (part.name in STEPS and part.name not in DOWNWARD)


def reads_once(plan: Operator) -> bool:
    """Whether no collection is read at two places, nor by a piece of the query that the evaluator computes."""
    found = list(all_parts(plan))
    names = [source_name(part.arguments[0]) if part.arguments else None for part in found if _is_collection(part)]
    hidden = any(isinstance(part, Evaluate) and reads_data(part.tree) for part in found)
    return len(names) == len(set(names)) and not hidden


def _is_collection(part: Expression) -> TypeGuard[Call]:
    return isinstance(part, Call) and part.name == "collection"


def asks_which_node(plan: Operator) -> bool:
    """Whether something in the plan distinguishes nodes from their copies: `is`, `union`, sorting and the like."""
    return any(map(_asks_which, all_parts(plan)))


def _asks_which(part: Expression) -> bool:
    if isinstance(part, Evaluate):
        return part.identity
    return is_call(part, *OF_NODES, SORT_DISTINCT, SORT, DISTINCT)


def conjuncts(condition: Expression) -> tuple[Expression, ...]:
    """The parts of a condition that must all be true; none for `true`."""
    if isinstance(condition, Call) and condition.name == "and":
        return tuple(part for argument in condition.arguments for part in conjuncts(argument))
    return () if condition == Constant(True) else (condition,)


def conjunction(found: tuple[Expression, ...]) -> Expression:
    """The parts combined to one condition."""
    if not found:
        return Constant(True)
    return found[0] if len(found) == 1 else Call("and", found)
