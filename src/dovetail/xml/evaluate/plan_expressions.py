"""Expressions of a plan, compiled to the same closures as those of a query.

Steps, conversions and sorting have forms of their own in a plan and are compiled here. Every other call becomes the
node of the syntax tree that means the same: there is one definition of each function of XQuery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import (
    ARITHMETIC,
    DISTINCT,
    GENERAL,
    NODE,
    SEQUENCE,
    SORT,
    SORT_DISTINCT,
    STEPS,
    VALUE,
    Call,
    Constant,
    Evaluate,
    Expression,
    Variable,
    node_test,
)
from dovetail.xml.evaluate.axes import REVERSE, step
from dovetail.xml.evaluate.compiler import Compiled, Frame, Items, Run, Scope, Test, compile_expr, compiles, of_test
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.names import FN, XS, QName
from dovetail.xml.xdm.nodes import in_document_order, is_node
from dovetail.xml.xdm.values import atomise


@compiles(Variable)
def _variable(expr: Variable, scope: Scope) -> Compiled:
    slot = scope.variables[expr]
    return Compiled(lambda frame: frame[slot])


@compiles(Constant)
def _constant(expr: Constant, scope: Scope) -> Compiled:
    return compile_expr(tree.Literal(expr.value), scope)


@compiles(Call)
def _call(expr: Call, scope: Scope) -> Compiled:
    name, arguments = expr.name, expr.arguments
    if name in ("and", "or"):
        return of_test(_logical(name == "and", [compile_expr(one, scope).truth() for one in arguments]))
    if name in _AS_IT_IS:
        return compile_expr(arguments[0], scope)
    if name in STEPS:
        return Compiled(_stepped(name, arguments[1], compile_expr(arguments[0], scope).run))
    if name in _CHANGES:
        change, run = _CHANGES[name], compile_expr(arguments[0], scope).run
        return Compiled(lambda frame: change(run(frame)))
    node = called(name, [_operand(one, name) for one in arguments])
    return compile_expr(replace(node, line=expr.place[0], column=expr.place[1]), scope)


def _logical(every: bool, tests: list[Test]) -> Test:
    def test(frame: Frame) -> bool:
        for one in tests:
            if one(frame) != every:
                return not every
        return every

    return test


@compiles(Evaluate)
def _piece(piece: Evaluate, scope: Scope) -> Compiled:
    """A piece of the query sees the variables that the plan binds for it, and no others of the plan."""
    inner, sets = replace(scope, variables={}), list[tuple[int, Callable[[Frame], Any]]]()
    for name, value in piece.bindings:
        run = compile_expr(value, scope).run
        if name == ".":
            inner, focus = inner.focused()
            sets += [(focus, _first(run)), (focus + 1, _one), (focus + 2, _one)]
        elif isinstance(value, Variable):
            inner = replace(inner, variables={**inner.variables, variable_name(name): scope.variables[value]})
        else:
            inner, slot = inner.bind(variable_name(name))
            sets.append((slot, run))
    body = compile_expr(piece.tree, inner)
    return _after(sets, body) if sets else body


def _first(run: Run) -> Callable[[Frame], Any]:
    return lambda frame: run(frame)[0]


def _one(frame: Frame) -> int:
    return 1


def _after(sets: list[tuple[int, Callable[[Frame], Any]]], body: Compiled) -> Compiled:
    """The body, computed after places of the frame are set."""

    def prepare(frame: Frame) -> None:
        for slot, value in sets:
            frame[slot] = value(frame)

    def run(frame: Frame) -> Items:
        prepare(frame)
        return body.run(frame)

    if body.test is None:
        return Compiled(run)
    test = body.test

    def prepared(frame: Frame) -> bool:
        prepare(frame)
        return test(frame)

    return Compiled(run, prepared)


def variable_name(name: str) -> QName:
    """The variable that a key of `Evaluate.bindings` stands for."""
    uri, local = name[2:].rsplit("}", 1) if name.startswith("Q{") else ("", name)
    return QName(uri, local)


# --- steps, conversions, sorting


def _stepped(axis: Any, test: Expression, start: Run) -> Run:
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
        raise XQueryError("XPTY0019", "a step of a path starts from an atomic value, not from a node")
    return items


def _sorted(items: Items) -> Items:
    count = sum(map(is_node, items))
    if 0 < count < len(items):
        raise XQueryError("XPTY0018", "a step of a path gives both nodes and atomic values")
    return in_document_order(items) if count else items


def _distinct(items: Items) -> Items:
    return list(dict.fromkeys(items)) if items and is_node(items[0]) else items


_AS_IT_IS = ("iterate", "promote")  # doc and collection convert their arguments themselves
_CHANGES: dict[str, Callable[[Items], Items]] = {
    "treat": _nodes,
    "data": atomise,
    SORT_DISTINCT: _sorted,
    SORT: _sorted,
    DISTINCT: _distinct,
}


# --- calls as nodes of the syntax tree

_COMPARISONS = {
    **{name: ("value", op) for op, name in VALUE.items()},
    **{name: ("general", op) for op, name in GENERAL.items()},
    **{name: ("node", op) for op, name in NODE.items()},
}
_ARITHMETIC: dict[str, Any] = {name: op for op, name in ARITHMETIC.items()}
_TYPED = frozenset((*VALUE.values(), *GENERAL.values(), *_ARITHMETIC, "to", "minus", "plus", "string-concat"))


def _operand(expression: Expression, name: str) -> Any:
    """An argument as an operand: operators take the typed value themselves, and compare faster with a literal."""
    if isinstance(expression, Call) and expression.name == "data" and (name in _TYPED or name.startswith("xs:")):
        return _operand(expression.arguments[0], name)
    return tree.Literal(expression.value) if isinstance(expression, Constant) else expression


def called(name: str, arguments: list[Any]) -> tree.Expr:
    """A call of a plan as a node of the syntax tree over the same arguments."""
    if name in _COMPARISONS:
        return tree.Comparison(*_COMPARISONS[name], arguments[0], arguments[1])  # type: ignore[arg-type]  # as listed
    if name in _ARITHMETIC and len(arguments) == 2:
        return tree.Arithmetic(_ARITHMETIC[name], arguments[0], arguments[1])
    match name:
        case "to":
            return tree.Range(arguments[0], arguments[1])
        case "minus" | "plus":
            return tree.Unary("-" if name == "minus" else "+", arguments[0])
        case "string-concat":
            return tree.StringConcat(arguments[0], arguments[1])
        case "union" | "intersect" | "except":
            return tree.SetOperation(name, arguments[0], arguments[1])
    if name == SEQUENCE:
        return tree.Sequence(tuple(arguments))
    uri, local = (XS, name[3:]) if name.startswith("xs:") else (FN, name)
    return tree.FunctionCall(QName(uri, local), tuple(arguments))
