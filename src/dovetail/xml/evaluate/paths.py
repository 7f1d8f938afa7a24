"""Paths, steps and predicates. Results of a path are in document order without duplicates; they are sorted only where
the steps can disturb that order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import DISTINCT, SORT, SORT_DISTINCT, Expression, node_test
from dovetail.xml.algebra.matching import folded
from dovetail.xml.evaluate.axes import REVERSE, step
from dovetail.xml.evaluate.compiler import Compiled, Frame, Items, Run, Scope, compile_expr, compiles, located
from dovetail.xml.syntax.tree import AxisStep, ContextItem, Expr, Filter, Literal, Path, Root
from dovetail.xml.xdm.atomic import NUMBERS
from dovetail.xml.xdm.nodes import Document, Element, in_document_order, is_node, root_of
from dovetail.xml.xdm.values import atomise, boolean

# What is known of the nodes between two steps: nothing, sorted and unique, and also none inside another.
UNKNOWN, SORTED, PEERS = 0, 1, 2
Select = Callable[[Frame, Items], Items]
State = int


# --- predicates


def predicate(expr: Expr, scope: Scope) -> Select:
    """A predicate over a whole list of items; positions count from 1 in the order given."""
    if isinstance(expr, Literal) and type(expr.value) is int:
        index = expr.value
        return lambda frame, items: items[index - 1 : index] if index > 0 else []
    inner, focus = scope.focused()
    plan = compile_expr(expr, inner)
    if plan.test is not None:
        return _filter_by_test(plan.test, focus)
    return _filter_by_value(plan.run, focus)


def _filter_by_test(test: Callable[[Frame], bool], focus: int) -> Select:
    def run(frame: Frame, items: Items) -> Items:
        frame[focus + 2] = len(items)
        kept = []
        for position, item in enumerate(items, 1):
            frame[focus], frame[focus + 1] = item, position
            if test(frame):
                kept.append(item)
        return kept

    return run


def _filter_by_value(value: Callable[[Frame], Items], focus: int) -> Select:
    def run(frame: Frame, items: Items) -> Items:
        size, kept = len(items), []
        for position, item in enumerate(items, 1):
            frame[focus], frame[focus + 1], frame[focus + 2] = item, position, size
            result = value(frame)
            if len(result) == 1 and type(result[0]) in NUMBERS:
                if result[0] == position:
                    kept.append(item)
            elif boolean(result):
                kept.append(item)
        return kept

    return run


@compiles(Filter)
def _filter(expr: Filter, scope: Scope) -> Compiled:
    base = compile_expr(expr.base, scope)
    selects = [predicate(part, scope) for part in expr.predicates]

    def run(frame: Frame) -> Items:
        items = base.run(frame)
        for select in selects:
            items = select(frame, items)
        return items

    return Compiled(run, ordered=base.ordered)


# --- steps


class _Axis:
    """A compiled axis step: all nodes of one step from all nodes of the one before."""

    __slots__ = ("axis", "find", "selects")

    def __init__(self, expr: AxisStep, scope: Scope) -> None:
        self.axis = expr.axis
        self.find = step(expr.axis, expr.test)
        self.selects = [predicate(part, scope) for part in expr.predicates]

    def run(self, frame: Frame, nodes: Items, state: State) -> tuple[Items, State]:
        if len(nodes) == 1:
            return self._from_one(frame, nodes[0])
        found: Items = []
        find, selects = self.find, self.selects
        for node in nodes:
            if not is_node(node):
                raise _not_a_node()
            part = find(node)
            for select in selects:
                part = select(frame, part)
            found += part
        return self._ordered(found, state)

    def _from_one(self, frame: Frame, node: Any) -> tuple[Items, State]:
        if not is_node(node):
            raise _not_a_node()
        found = self.find(node)
        for select in self.selects:
            found = select(frame, found)
        if self.axis in REVERSE:
            found.reverse()
        return found, _FROM_ONE.get(self.axis, SORTED)

    def _ordered(self, found: Items, state: State) -> tuple[Items, State]:
        if state == PEERS and self.axis in _FROM_PEERS:
            return found, _FROM_PEERS[self.axis]
        if state == SORTED and self.axis in ("attribute", "self"):
            return found, PEERS if self.axis == "attribute" else SORTED
        return in_document_order(found), PEERS if self.axis == "attribute" else SORTED


_FROM_ONE = {"child": PEERS, "attribute": PEERS, "self": PEERS, "parent": PEERS, "following-sibling": PEERS,
             "preceding-sibling": PEERS}  # fmt: skip
_FROM_PEERS = {"child": PEERS, "attribute": PEERS, "self": PEERS, "descendant": SORTED, "descendant-or-self": SORTED}


def _not_a_node() -> XQueryError:
    return XQueryError("XPTY0019", "a step of a path starts from an atomic value, not from a node")


class _Any:
    """A step that is any other expression, evaluated with each node as context item."""

    __slots__ = ("focus", "last", "value")

    def __init__(self, expr: Expr, scope: Scope, last: bool) -> None:
        inner, self.focus = scope.focused()
        self.value = compile_expr(expr, inner).run
        self.last = last

    def run(self, frame: Frame, nodes: Items, state: State) -> tuple[Items, State]:
        focus, found = self.focus, []
        for position, node in enumerate(nodes, 1):
            if not is_node(node):
                raise _not_a_node()
            frame[focus], frame[focus + 1], frame[focus + 2] = node, position, len(nodes)
            found += self.value(frame)
        count = sum(map(is_node, found))
        if count == len(found):
            return in_document_order(found), SORTED
        if count:
            raise XQueryError("XPTY0018", "a step of a path gives both nodes and atomic values")
        if not self.last:
            raise _not_a_node()
        return found, UNKNOWN


@compiles(Path)
def _path(expr: Path, scope: Scope) -> Compiled:
    start = compile_expr(expr.start, scope)
    exprs = folded(expr.steps)
    steps = [
        _Axis(part, scope) if isinstance(part, AxisStep) else _Any(part, scope, part is exprs[-1]) for part in exprs
    ]
    if len(steps) == 1 and isinstance(steps[0], _Axis) and not steps[0].selects and steps[0].axis == "child":
        return Compiled(_one_child(start, steps[0], expr), ordered=start.ordered)

    def run(frame: Frame) -> Items:
        nodes = start.run(frame)
        state = PEERS if start.ordered or len(nodes) < 2 else UNKNOWN
        try:
            for part in steps:
                nodes, state = part.run(frame, nodes, state)
        except XQueryError as error:
            raise located(error, expr) from None
        return nodes

    return Compiled(run, ordered=start.ordered and _keeps_peers(steps))


def _keeps_peers(steps: list[Any]) -> bool:
    return all(isinstance(part, _Axis) and _FROM_PEERS.get(part.axis) == PEERS for part in steps)


def _one_child(start: Compiled, axis: _Axis, expr: Path) -> Callable[[Frame], Items]:
    """`$x/name`, the most frequent path."""
    find, begin = axis.find, start.run

    def run(frame: Frame) -> Items:
        nodes = begin(frame)
        if len(nodes) == 1 and type(nodes[0]) is Element:
            return find(nodes[0])
        try:
            return axis.run(frame, nodes, PEERS if start.ordered or not nodes else UNKNOWN)[0]
        except XQueryError as error:
            raise located(error, expr) from None

    return run


@compiles(AxisStep)
def _lone_step(expr: AxisStep, scope: Scope) -> Compiled:
    return compile_expr(Path(ContextItem(line=expr.line, column=expr.column), (expr,)), scope)


@compiles(Root)
def _root(expr: Root, scope: Scope) -> Compiled:
    item = compile_expr(ContextItem(line=expr.line, column=expr.column), scope)

    def run(frame: Frame) -> Items:
        node = item.run(frame)[0]
        if not is_node(node):
            raise located(XQueryError("XPTY0020", "the context item of / is not a node"), expr)
        top = root_of(node)
        if type(top) is not Document:
            raise located(XQueryError("XPDY0050", "the tree of the context item has no document node"), expr)
        return [top]

    return Compiled(run, ordered=True)


# --- steps, conversions and sorting of a plan


def plan_step(axis: Any, test: Expression, start: Run) -> Run:
    """A step of a plan: its answers for each node, one after the other, not sorted."""
    find, backwards = step(axis, node_test(test)), axis in REVERSE

    def run(frame: Frame) -> Items:
        nodes = _nodes(start(frame))
        if len(nodes) == 1 and not backwards:
            return find(nodes[0])
        found: Items = []
        for node in nodes:
            some = find(node)
            found += reversed(some) if backwards else some
        return found

    return run


def _nodes(items: Items) -> Items:
    if not all(map(is_node, items)):
        raise _not_a_node()
    return items


def _sorted(items: Items) -> Items:
    count = sum(map(is_node, items))
    if 0 < count < len(items):
        raise XQueryError("XPTY0018", "a step of a path gives both nodes and atomic values")
    return in_document_order(items) if count else items


def _distinct(items: Items) -> Items:
    return list(dict.fromkeys(items)) if items and is_node(items[0]) else items


CONVERSIONS: dict[str, Callable[[Items], Items]] = {
    "treat": _nodes,
    "data": atomise,
    SORT_DISTINCT: _sorted,
    SORT: _sorted,
    DISTINCT: _distinct,
}
