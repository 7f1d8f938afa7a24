"""Literals, variables, operators and calls: those of the syntax tree, and those of plans by the same functions.

An operator of a query and a call of the same name in a plan are compiled by one function: both have a name, arguments
and a place. Steps, conversions and sorting have forms of their own in a plan. All other calls of a plan are calls of
functions of XQuery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import SEQUENCE, STEPS, Call, Constant, Evaluate, Variable
from dovetail.xml.evaluate.compiler import (
    Compiled,
    Frame,
    Items,
    Result,
    Run,
    Scope,
    Test,
    at_place,
    compile_expr,
    compiles,
    located,
    of_test,
)
from dovetail.xml.evaluate.paths import CONVERSIONS, plan_step
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import FN, SYMBOLS, XS, Expr, QName
from dovetail.xml.xdm.atomic import INTEGERS, NUMBERS, UntypedAtomic, negated
from dovetail.xml.xdm.markup import text_of
from dovetail.xml.xdm.nodes import Element, in_document_order, is_node, path_key
from dovetail.xml.xdm.operators import TESTS, arithmetic, compare, general
from dovetail.xml.xdm.values import atom, atomise, cast, type_name, untyped_to_double

Applied = tree.Operation | Call
"""An operator with its operands, of a query or of a plan."""


@compiles(tree.Literal)
@compiles(Constant)
def _literal(expr: tree.Literal | Constant, scope: Scope) -> Compiled:
    value = expr.value
    return Compiled(lambda frame: [value])


@compiles(Variable)
def _plan_variable(expr: Variable, scope: Scope) -> Compiled:
    slot = scope.variables[expr]
    return Compiled(lambda frame: frame[slot])


@compiles(tree.VariableRef)
def _variable(expr: tree.VariableRef, scope: Scope) -> Compiled:
    slot = scope.variables.get(expr.name)
    if slot is not None:
        place = slot
        return Compiled(lambda frame: frame[place])
    value = scope.static.global_value(expr)
    return Compiled(lambda frame: value(frame[0]))


@compiles(tree.ContextItem)
def _context_item(expr: tree.ContextItem, scope: Scope) -> Compiled:
    if scope.focus is None:
        raise located(XQueryError("XPDY0002", "there is no context item inside a declared function"), expr)
    focus = scope.focus

    def run(frame: Frame) -> Items:
        item = frame[focus]
        if item is None:
            raise located(XQueryError("XPDY0002", "the query was given no context item"), expr)
        return [item]

    return Compiled(run)


@compiles(tree.Sequence)
def _sequence(expr: tree.Sequence, scope: Scope) -> Compiled:
    return _concatenation([compile_expr(item, scope) for item in expr.items])


def _concatenation(plans: list[Compiled]) -> Compiled:
    runs = [plan.run for plan in plans]

    def run(frame: Frame) -> Items:
        items: Items = []
        for part in runs:
            items += part(frame)
        return items

    def stream(frame: Frame) -> Iterator[Any]:
        for plan in plans:
            yield from plan.each()(frame)

    return Compiled(run, stream=stream if any(plan.stream for plan in plans) else None)


@compiles(tree.SimpleMap)
def _simple_map(expr: tree.SimpleMap, scope: Scope) -> Compiled:
    left = compile_expr(expr.left, scope).run
    inner, focus = scope.focused()
    right = compile_expr(expr.right, inner).run

    def run(frame: Frame) -> Items:
        items, found = left(frame), []
        for position, item in enumerate(items, 1):
            frame[focus], frame[focus + 1], frame[focus + 2] = item, position, len(items)
            found += right(frame)
        return found

    return Compiled(run)


# --- operators


@compiles(tree.Operation)
def _operation(expr: tree.Operation, scope: Scope) -> Compiled:
    return _OPERATORS[expr.name](expr, scope)


def _without_data(expr: Any) -> Any:
    """An operand of what takes typed values itself."""
    while isinstance(expr, Call) and expr.name == "data":
        expr = expr.arguments[0]
    return expr


def _operand(expr: Any, scope: Scope) -> Run:
    return compile_expr(_without_data(expr), scope).run


def _operands(expr: Applied, scope: Scope) -> tuple[Run, Run]:
    left, right = expr.arguments
    return _operand(left, scope), _operand(right, scope)


def _logical(expr: Applied, scope: Scope) -> Compiled:
    tests, every = [_located_truth(one, scope) for one in expr.arguments], expr.name == "and"
    if len(tests) == 2:
        left, right = tests
        if every:
            return of_test(lambda frame: left(frame) and right(frame))
        return of_test(lambda frame: left(frame) or right(frame))

    def test(frame: Frame) -> bool:
        for one in tests:
            if one(frame) != every:
                return not every
        return every

    return of_test(test)


def _located_truth(expr: Any, scope: Scope) -> Test:
    """The truth of an operand; a test says itself where it failed."""
    plan = compile_expr(expr, scope)
    if plan.test is not None:
        return plan.test
    return at_place(expr, plan.truth()) if isinstance(expr, Expr) else plan.truth()


# --- comparisons


def _comparison(expr: Applied, scope: Scope) -> Compiled:
    left, right = _operands(expr, scope)
    text = _text_constant(expr.arguments[1])
    if text is not None:
        return _with_text(expr, left, text)
    run = _of_two(expr, left, right, compare)
    return Compiled(run, lambda frame: run(frame) == [True])


def _of_two(expr: Applied, left: Run, right: Run, apply: Callable[[str, Any, Any], Any]) -> Run:
    """A function of the typed values of two operands; nothing if one of them is nothing."""
    op = SYMBOLS[expr.name]

    def run(frame: Frame) -> Items:
        try:
            first, second = atom(left(frame), f"the left side of {op}"), atom(right(frame), f"the right side of {op}")
            return [] if first is None or second is None else [apply(op, first, second)]
        except XQueryError as error:
            raise located(error, expr) from None

    return run


def _text_constant(expr: Any) -> str | None:
    expr = _without_data(expr)
    return expr.value if isinstance(expr, (tree.Literal, Constant)) and type(expr.value) is str else None


def _text_test(run: Run, left: Run, test: Callable[[Any, Any], bool], text: str) -> Test:
    def found(frame: Frame) -> bool:
        items = left(frame)
        if len(items) == 1 and type(items[0]) is Element and len(items[0]) == 0:
            return test(items[0].text or "", text)
        return run(frame) == [True]

    return found


def _with_text(expr: Applied, left: Run, text: str) -> Compiled:
    """A value comparison with a string literal: no conversion is needed for untyped text."""
    op, test = SYMBOLS[expr.name], TESTS[SYMBOLS[expr.name]]

    def run(frame: Frame) -> Items:
        items = left(frame)
        if len(items) == 1 and type(items[0]) is Element and len(items[0]) == 0:
            return [test(items[0].text or "", text)]
        try:
            value = atom(items, f"the left side of {op}")
            return [] if value is None else [compare(op, value, text)]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run, _text_test(run, left, test, text))


def _general(expr: Applied, scope: Scope) -> Compiled:
    op, (left, right) = expr.name.removeprefix("general-"), _operands(expr, scope)

    def test(frame: Frame) -> bool:
        lefts, rights = atomise(left(frame)), atomise(right(frame))
        if op == "eq" and len(lefts) * len(rights) > 64 and _all_text(lefts) and _all_text(rights):
            return not set(map(str.__str__, lefts)).isdisjoint(map(str.__str__, rights))
        return general(op, lefts, rights)

    return of_test(at_place(expr, test))


def _all_text(values: Items) -> bool:
    return all(type(value) is UntypedAtomic or type(value) is str for value in values)


_PLACES: dict[str, Callable[[Any, Any], bool]] = {
    "node-is": lambda left, right: bool(left == right),
    "node-before": lambda left, right: path_key(left) < path_key(right),
    "node-after": lambda left, right: path_key(left) > path_key(right),
}


def _node_comparison(expr: Applied, scope: Scope) -> Compiled:
    left, right = (compile_expr(one, scope).run for one in expr.arguments)
    test, op = _PLACES[expr.name], SYMBOLS[expr.name]

    def run(frame: Frame) -> Items:
        first, second = left(frame), right(frame)
        for side in (first, second):
            if len(side) > 1 or not all(map(is_node, side)):
                raise located(XQueryError("XPTY0004", f"{op} needs one node on each side"), expr)
        return [test(first[0], second[0])] if first and second else []

    return Compiled(run)


def _set_operation(expr: Applied, scope: Scope) -> Compiled:
    left, right = (compile_expr(one, scope).run for one in expr.arguments)
    op = expr.name

    def run(frame: Frame) -> Items:
        first, second = left(frame), right(frame)
        if not all(map(is_node, first)) or not all(map(is_node, second)):
            raise located(XQueryError("XPTY0004", f"{op} needs nodes on both sides"), expr)
        if op == "union":
            return in_document_order(first + second)
        others = set(second)
        return in_document_order(node for node in first if (node in others) == (op == "intersect"))

    return Compiled(run)


# --- arithmetic


def _arithmetic(expr: Applied, scope: Scope) -> Compiled:
    return Compiled(_of_two(expr, *_operands(expr, scope), arithmetic))


def _sign(expr: Applied, scope: Scope) -> Compiled:
    operand, op = _operand(expr.arguments[0], scope), SYMBOLS[expr.name]

    def run(frame: Frame) -> Items:
        value = untyped_to_double(atom(operand(frame), f"the operand of {op}"))
        if value is None:
            return []
        if type(value) not in NUMBERS:
            raise XQueryError("XPTY0004", f"{op} needs a number, given {type_name(value)}")
        return [negated(value) if op == "-" else value]

    return Compiled(at_place(expr, run))


def _range(expr: Applied, scope: Scope) -> Compiled:
    first, last = _operands(expr, scope)

    def run(frame: Frame) -> range:
        low, high = _whole(first(frame)), _whole(last(frame))
        return range(0) if low is None or high is None else range(low, high + 1)

    bounds = at_place(expr, run)
    return Compiled(lambda frame: list(bounds(frame)), stream=lambda frame: iter(bounds(frame)))


def _whole(items: Items) -> int | None:
    value = atom(items, "a bound of a range")
    if type(value) is UntypedAtomic:
        value = cast(value, "integer")
    if value is not None and type(value) not in INTEGERS:
        raise XQueryError("XPTY0004", f"the bounds of a range are integers, given {type_name(value)}")
    return value  # type: ignore[no-any-return]  # an integer, as just checked


def _concat(expr: Applied, scope: Scope) -> Compiled:
    left, right = _operands(expr, scope)

    def text(items: Items) -> str:
        value = atom(items, "an operand of ||")
        return "" if value is None else text_of(value)

    return Compiled(at_place(expr, lambda frame: [text(left(frame)) + text(right(frame))]))


_OPERATORS: dict[str, Callable[[Applied, Scope], Compiled]] = {
    **dict.fromkeys(("and", "or"), _logical),
    **dict.fromkeys(tree.VALUE.values(), _comparison),
    **dict.fromkeys(tree.GENERAL.values(), _general),
    **dict.fromkeys(tree.NODE.values(), _node_comparison),
    **dict.fromkeys(tree.SETS, _set_operation),
    **dict.fromkeys(tree.ARITHMETIC.values(), _arithmetic),
    **dict.fromkeys(("minus", "plus"), _sign),
    "to": _range,
    "string-concat": _concat,
}


# --- calls of a plan


@compiles(Call)
def _call(expr: Call, scope: Scope) -> Compiled:
    name, arguments = expr.name, expr.arguments
    if name in _OPERATORS:
        return _OPERATORS[name](expr, scope)
    if name == SEQUENCE:
        return _concatenation([compile_expr(one, scope) for one in arguments])
    if name in ("iterate", "promote"):  # doc and collection convert their arguments themselves
        return compile_expr(arguments[0], scope)
    if name in STEPS:
        return Compiled(plan_step(name, arguments[1], compile_expr(arguments[0], scope).run))
    if name in CONVERSIONS:
        change, run = CONVERSIONS[name], compile_expr(arguments[0], scope).run
        return Compiled(lambda frame: change(run(frame)))
    return compile_expr(_function(expr), scope)


def _function(expr: Call) -> tree.FunctionCall:
    """The call of a function of XQuery. Constructors of types take the typed value themselves."""
    uri, local = (XS, expr.name[3:]) if expr.name.startswith("xs:") else (FN, expr.name)
    arguments: Any = [_without_data(one) if uri == XS else one for one in expr.arguments]
    return tree.FunctionCall(QName(uri, local), tuple(arguments), line=expr.line, column=expr.column)


@compiles(Evaluate)
def _piece(piece: Evaluate, scope: Scope) -> Compiled:
    """A piece of the query sees the variables that the plan binds for it, and no others of the plan."""
    inner, sets = replace(scope, variables={}), list[tuple[int, Callable[[list[Any]], Any]]]()
    for name, value in piece.bindings:
        run = compile_expr(value, scope).run
        if name == ".":
            inner, focus = inner.focused()
            sets += [(focus, lambda frame, run=run: run(frame)[0]), (focus + 1, lambda _: 1), (focus + 2, lambda _: 1)]  # type: ignore[misc]  # a default
        elif isinstance(value, Variable):
            inner = replace(inner, variables={**inner.variables, variable_name(name): scope.variables[value]})
        else:
            inner, slot = inner.bind(variable_name(name))
            sets.append((slot, run))
    body = compile_expr(piece.tree, inner)
    return _after(sets, body) if sets else body


def _after(sets: list[tuple[int, Callable[[list[Any]], Any]]], body: Compiled) -> Compiled:
    """The body, computed after places of the frame are set."""

    def prepared(inner: Callable[[Frame], Result]) -> Callable[[Frame], Result]:
        def call(frame: Frame) -> Result:
            for slot, value in sets:
                frame[slot] = value(frame)
            return inner(frame)

        return call

    test = None if body.test is None else prepared(body.test)
    return Compiled(prepared(body.run), test, None if body.stream is None else prepared(body.stream))


def variable_name(name: str) -> QName:
    """The variable that a key of `Evaluate.bindings` stands for."""
    uri, local = name[2:].rsplit("}", 1) if name.startswith("Q{") else ("", name)
    return QName(uri, local)
