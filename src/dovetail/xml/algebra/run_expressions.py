"""Expressions of a plan compiled: a closure that gives the items of an expression for a tuple.

Steps, conversions and sorting are done here; everything else is turned back into a tree over variables and compiled by
the evaluator, so that there is one definition of each function of XQuery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail.errors import PlanError, XQueryError
from dovetail.xml.algebra.expressions import Call, Constant, Evaluate, Expression, Variable
from dovetail.xml.algebra.functions import (
    ARITHMETIC,
    DISTINCT,
    GENERAL,
    NODE,
    SEQUENCE,
    SORT,
    SORT_DISTINCT,
    STEPS,
    VALUE,
    node_test,
)
from dovetail.xml.evaluate.axes import REVERSE, step
from dovetail.xml.evaluate.compiler import compile_expr
from dovetail.xml.evaluate.context import Environment
from dovetail.xml.evaluate.plan import Scope, Slots
from dovetail.xml.evaluate.static import Static
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.names import FN, XS, QName
from dovetail.xml.xdm.nodes import is_node
from dovetail.xml.xdm.order import in_document_order
from dovetail.xml.xdm.values import atomise, boolean

Items = list[Any]
Tuple = dict[Variable, Items]
Closure = Callable[[Tuple], Items]


class Compiler:
    """Compiles the expressions of one plan, for one run: nodes are the same nodes wherever the plan meets them."""

    def __init__(self, static: Static, environment: Environment) -> None:
        self.static, self.environment = static, environment
        self._known: dict[int, tuple[Expression, Closure]] = {}

    def closure(self, expression: Expression) -> Closure:
        """The expression as a function of a tuple; compiled once."""
        found = self._known.get(id(expression))
        if found is None:
            found = self._known[id(expression)] = (expression, self._compiled(expression))
        return found[1]

    def test(self, expression: Expression) -> Callable[[Tuple], bool]:
        """The effective boolean value of the expression."""
        value = self.closure(expression)
        return lambda given: boolean(value(given))

    def _compiled(self, expression: Expression) -> Closure:
        match expression:
            case Variable():
                return lambda given: given[expression]
            case Constant(value):
                return lambda given: [value]
            case Evaluate():
                return self._evaluated(expression)
            case Call("and" | "or" as name, arguments):
                return self._logical(name == "and", [self.test(argument) for argument in arguments])
            case Call(name, (inner, test)) if name in STEPS:
                return _stepped(name, test, self.closure(inner))
            case Call(name, arguments):
                given = [self.closure(one) for one in arguments[: _OWN.get(name, len(arguments))]]
                return self._call(name, given, expression.place)
        raise PlanError(f"{expression} has no value.")

    def _logical(self, every: bool, tests: list[Callable[[Tuple], bool]]) -> Closure:
        if every:
            return lambda given: [all(test(given) for test in tests)]
        return lambda given: [any(test(given) for test in tests)]

    def _call(self, name: str, arguments: list[Closure], place: tuple[int, int]) -> Closure:
        if name in _DIRECT:
            change, inner = _DIRECT[name], arguments[0]
            return lambda given: change(inner(given))
        if name == SEQUENCE:
            return lambda given: [item for one in arguments for item in one(given)]
        function = self.named(name, len(arguments), place)
        return lambda given: function([one(given) for one in arguments])

    def _evaluated(self, piece: Evaluate) -> Closure:
        bound = {name: self.closure(value) for name, value in piece.bindings}
        focus = bound.pop(".", None)
        function = self.function(piece.tree, [variable_name(name) for name in bound])
        values = list(bound.values())

        def run(given: Tuple) -> Items:
            item = focus(given)[0] if focus is not None else None
            return function(item, [value(given) for value in values])

        return run

    def named(self, name: str, n: int, place: tuple[int, int] = (0, 0)) -> Callable[[list[Items]], Items]:
        """A function of XQuery or of the algebra with n arguments; its errors say where in the query it stands."""
        names = [QName("", f"a{number}") for number in range(n)]
        node = called(name, [tree.VariableRef(one) for one in names])
        function = self.function(replace(node, line=place[0], column=place[1]), names)
        return lambda values: function(None, values)

    def function(self, node: tree.Expr, names: list[QName]) -> Callable[[Any, list[Items]], Items]:
        """A tree as a function of the context item (None: there is none) and of the values of variables."""
        slots = Slots(4)
        places = {name: slots.take() for name in names}
        run = compile_expr(node, Scope(self.static, slots, places, focus=1, repeated=True)).run

        def call(item: Any, values: list[Items]) -> Items:
            frame: list[Any] = [None] * slots.used
            frame[0] = self.environment
            item = self.environment.context.item if item is None else item
            if item is not None:
                frame[1:4] = item, 1, 1
            frame[4 : 4 + len(values)] = values
            return run(frame)

        return call


def variable_name(name: str) -> QName:
    """The variable that a key of `Evaluate.bindings` stands for."""
    uri, local = name[2:].rsplit("}", 1) if name.startswith("Q{") else ("", name)
    return QName(uri, local)


def _stepped(axis: str, test: Expression, inner: Closure) -> Closure:
    find, backwards = step(axis, node_test(test)), axis in REVERSE  # type: ignore[arg-type]  # a name from STEPS

    def run(given: Tuple) -> Items:
        found: Items = []
        for node in _nodes(inner(given)):
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


_OWN = {"treat": 1, "promote": 1}  # their second argument is a type
_DIRECT: dict[str, Callable[[Items], Items]] = {
    "treat": _nodes,
    "promote": lambda items: items,  # doc and collection convert their arguments themselves
    "iterate": lambda items: items,
    "data": atomise,
    "boolean": lambda items: [boolean(items)],
    SORT_DISTINCT: _sorted,
    SORT: _sorted,
    DISTINCT: _distinct,
}

_VALUE = {name: op for op, name in VALUE.items()}
_GENERAL = {name: op for op, name in GENERAL.items()}
_NODE = {name: op for op, name in NODE.items()}
_ARITHMETIC: dict[str, Any] = {name: op for op, name in ARITHMETIC.items()}


def called(name: str, arguments: list[tree.VariableRef]) -> tree.Expr:
    """A call of the algebra as a tree of XQuery."""
    for kind, names in (("value", _VALUE), ("general", _GENERAL), ("node", _NODE)):
        if name in names:
            return tree.Comparison(kind, names[name], arguments[0], arguments[1])  # type: ignore[arg-type]  # as listed
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
    uri, local = (XS, name[3:]) if name.startswith("xs:") else (FN, name)
    return tree.FunctionCall(QName(uri, local), tuple(arguments))
