"""Paths as plans. A step from a sequence is done in three stages: go through it, gather what is found, sort it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.xml.algebra.expressions import Call, Expression, Variable, call, is_call
from dovetail.xml.algebra.functions import SORT_DISTINCT, test_name
from dovetail.xml.algebra.operators import NestedTupleSource
from dovetail.xml.algebra.properties import single, stepped
from dovetail.xml.algebra.scope import Bound, Chain, Scope, Value, treated
from dovetail.xml.algebra.tree_facts import is_truth, uses_position
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.names import KindTest, QName

if TYPE_CHECKING:
    from dovetail.xml.algebra.normalise import Normaliser

_BEFORE = QName("", "before")


def path(to: Normaliser, node: tree.Path, scope: Scope, chain: Chain, stream: bool, atomised: bool = False) -> Value:
    """The nodes of a path in document order; atomised if asked for."""
    steps = folded(node.steps)
    start = _one_item(node.start, scope)
    if start is not None and _is_simple(steps):
        return _simple(to, start, steps, chain, atomised)
    if start is not None and not stream and not to.reads(node):
        value = to.evaluated(node, scope, chain)
    else:
        current = to.variable(node.start, scope, chain, stream=True)
        for step in steps:
            current = _step(to, current, step, scope, chain)
        value = Value(current)
    return Value(call("data", value.expression), value.number) if atomised else value


def mapped(to: Normaliser, node: tree.SimpleMap, scope: Scope, chain: Chain) -> Value:
    """`left ! right`: what the right side gives for each item of the left one, not sorted."""
    if uses_position(node.right):
        return to.evaluated(node, scope, chain)
    items = to.variable(node.left, scope, chain, stream=True)
    nested = Chain(NestedTupleSource())
    item = nested.unnest(to.numbers.take(), call("iterate", items))
    found = to.value(node.right, scope.focused(item), nested, stream=True).expression
    return Value(chain.gather(to.numbers.take(), found, nested))


def folded(steps: tuple[tree.Expr, ...]) -> tuple[tree.Expr, ...]:
    """`//name` as one step on the axis descendant, unless a predicate counts positions."""
    found: list[tree.Expr] = []
    for step in steps:
        if found and _is_any_descendant(found[-1]) and isinstance(step, tree.AxisStep) and _is_countless_child(step):
            found[-1] = replace(step, axis="descendant")
        else:
            found.append(step)
    return tuple(found)


def _is_any_descendant(step: tree.Expr) -> bool:
    every = isinstance(step, tree.AxisStep) and step.axis == "descendant-or-self" and step.test == KindTest("node")
    return every and not step.predicates  # type: ignore[attr-defined]  # `every` says that it is an AxisStep


def _is_countless_child(step: tree.AxisStep) -> bool:
    return step.axis == "child" and all(map(_is_filter, step.predicates))


def _is_filter(predicate: tree.Expr) -> bool:
    return is_truth(predicate) and not uses_position(predicate)


def _one_item(start: tree.Expr, scope: Scope) -> Bound | None:
    """What a path starts from, if that is one item for sure."""
    match start:
        case tree.VariableRef(name):
            bound = scope.names.get(name)
            return bound if bound is not None and bound.single else None
        case tree.ContextItem() if scope.focus is not None:
            return Bound(scope.focus, single=True, node=is_call(scope.focus, "treat"))
    return None


def _is_simple(steps: tuple[tree.Expr, ...]) -> bool:
    """Whether steps from one node find nodes in document order, each once, without anything being sorted."""
    known = single("element_node")
    for step in steps:
        if not isinstance(step, tree.AxisStep) or step.predicates:
            return False
        known = stepped(step.axis, test_name(step.test), known)
    return known.ordered and known.unique


def _simple(to: Normaliser, start: Bound, steps: tuple[tree.Expr, ...], chain: Chain, atomised: bool) -> Value:
    expression = start.value
    for number, step in enumerate(steps):
        assert isinstance(step, tree.AxisStep)  # noqa: S101  (`_is_simple` has looked)
        checked = treated(expression) if number == 0 else expression
        expression = call(step.axis, checked, test_name(step.test))
    if atomised:
        expression = call("data", expression)
    number = to.numbers.take()
    return Value(chain.assign(number, expression) if start.node else expression, number)


def _step(to: Normaliser, current: Variable, step: tree.Expr, scope: Scope, chain: Chain) -> Variable:
    """Each step has a focus of its own: size (not kept), item, position (not kept)."""
    if not isinstance(step, tree.AxisStep) and uses_position(step):
        rest = tree.Path(tree.VariableRef(_BEFORE), (step,))
        return chain.assign(to.numbers.take(), to.piece(rest, scope.binding(_BEFORE, Bound(current))))
    to.numbers.take()
    nested = Chain(NestedTupleSource())
    item = nested.unnest(to.numbers.take(), call("iterate", current))
    to.numbers.take()
    found = _found(to, item, step, scope, nested)
    gathered = chain.gather(to.numbers.take(), found, nested)
    return chain.assign(to.numbers.take(), call(SORT_DISTINCT, gathered))


def _found(to: Normaliser, item: Variable, step: tree.Expr, scope: Scope, nested: Chain) -> Expression:
    if not isinstance(step, tree.AxisStep):
        return to.value(step, scope.focused(treated(item)), nested, stream=True).expression
    if all(map(_is_filter, step.predicates)):
        nodes = call(step.axis, treated(item), test_name(step.test))
        return _filtered(to, nodes, step.predicates, scope, nested) if step.predicates else nodes
    return to.piece(tree.Path(tree.ContextItem(), (step,)), scope.focused(treated(item)))


def _filtered(
    to: Normaliser, nodes: Call, predicates: tuple[tree.Expr, ...], scope: Scope, nested: Chain
) -> Expression:
    """Conditions in brackets as SELECT over the nodes of the step."""
    all_nodes = nested.assign(to.numbers.take(), nodes)
    node = nested.unnest(to.numbers.take(), call("iterate", all_nodes))
    for predicate in predicates:
        nested.select(to.condition(predicate, scope.focused(treated(node)), nested))
    return node
