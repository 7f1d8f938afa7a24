"""Literals, variables and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import (
    Compiled,
    Frame,
    Items,
    Run,
    Scope,
    Test,
    compile_expr,
    compiles,
    located,
    of_test,
)
from dovetail.xml.syntax.tree import (
    Arithmetic,
    Comparison,
    ContextItem,
    Expr,
    Literal,
    Logical,
    Range,
    Sequence,
    SimpleMap,
    StringConcat,
    Unary,
    VariableRef,
)
from dovetail.xml.xdm.atomic import INTEGERS, NUMBERS, UntypedAtomic, negated
from dovetail.xml.xdm.markup import text_of
from dovetail.xml.xdm.nodes import Element, is_node, path_key
from dovetail.xml.xdm.operators import TESTS, arithmetic, compare, general
from dovetail.xml.xdm.values import atom, atomise, cast, type_name, untyped_to_double


@compiles(Literal)
def _literal(expr: Literal, scope: Scope) -> Compiled:
    value = expr.value
    return Compiled(lambda frame: [value])


@compiles(VariableRef)
def _variable(expr: VariableRef, scope: Scope) -> Compiled:
    slot = scope.variables.get(expr.name)
    if slot is not None:
        place = slot
        return Compiled(lambda frame: frame[place])
    value = scope.static.global_value(expr)
    return Compiled(lambda frame: value(frame[0]))


@compiles(ContextItem)
def _context_item(expr: ContextItem, scope: Scope) -> Compiled:
    if scope.focus is None:
        raise located(XQueryError("XPDY0002", "there is no context item inside a declared function"), expr)
    focus = scope.focus

    def run(frame: Frame) -> Items:
        item = frame[focus]
        if item is None:
            raise located(XQueryError("XPDY0002", "the query was given no context item"), expr)
        return [item]

    return Compiled(run)


@compiles(Sequence)
def _sequence(expr: Sequence, scope: Scope) -> Compiled:
    plans = [compile_expr(item, scope) for item in expr.items]
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


@compiles(Logical)
def _logical(expr: Logical, scope: Scope) -> Compiled:
    left, right = _located_truth(expr.left, scope), _located_truth(expr.right, scope)
    if expr.op == "and":
        return of_test(lambda frame: left(frame) and right(frame))
    return of_test(lambda frame: left(frame) or right(frame))


def _located_truth(expr: Expr, scope: Scope) -> Test:
    """The truth of an operand; a test says itself where it failed."""
    plan = compile_expr(expr, scope)
    return plan.test if plan.test is not None else _at(expr, plan.truth())


def _at(expr: Expr, test: Test) -> Test:
    def located_test(frame: Frame) -> bool:
        try:
            return test(frame)
        except XQueryError as error:
            raise located(error, expr) from None

    return located_test


# --- comparisons


@compiles(Comparison)
def _comparison(expr: Comparison, scope: Scope) -> Compiled:
    left, right = compile_expr(expr.left, scope), compile_expr(expr.right, scope)
    if expr.kind == "node":
        return Compiled(_node_comparison(expr, left.run, right.run))
    if expr.kind == "general":
        return of_test(_at(expr, _general(expr.op, left.run, right.run)))
    if isinstance(expr.right, Literal) and type(expr.right.value) is str:
        return _with_text(expr, left.run, expr.right.value)
    return _value_comparison(expr, left.run, right.run)


def _value_comparison(expr: Comparison, left: Run, right: Run) -> Compiled:
    op = expr.op

    def run(frame: Frame) -> Items:
        try:
            first, second = atom(left(frame), f"the left side of {op}"), atom(right(frame), f"the right side of {op}")
            return [] if first is None or second is None else [compare(op, first, second)]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run, lambda frame: run(frame) == [True])


def _text_test(run: Run, left: Run, test: Callable[[Any, Any], bool], text: str) -> Test:
    def found(frame: Frame) -> bool:
        items = left(frame)
        if len(items) == 1 and type(items[0]) is Element and len(items[0]) == 0:
            return test(items[0].text or "", text)
        return run(frame) == [True]

    return found


def _with_text(expr: Comparison, left: Run, text: str) -> Compiled:
    """A value comparison with a string literal: no conversion is needed for untyped text."""
    op, test = expr.op, TESTS[expr.op]

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


def _general(op: str, left: Run, right: Run) -> Test:
    def test(frame: Frame) -> bool:
        lefts, rights = atomise(left(frame)), atomise(right(frame))
        if op == "=" and len(lefts) * len(rights) > 64 and _all_text(lefts) and _all_text(rights):
            return not set(map(str.__str__, lefts)).isdisjoint(map(str.__str__, rights))
        return general(op, lefts, rights)

    return test


def _all_text(values: Items) -> bool:
    return all(type(value) is UntypedAtomic or type(value) is str for value in values)


_PLACES: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda left, right: bool(left == right),
    "<<": lambda left, right: path_key(left) < path_key(right),
    ">>": lambda left, right: path_key(left) > path_key(right),
}


def _node_comparison(expr: Comparison, left: Run, right: Run) -> Run:
    test = _PLACES[expr.op]

    def run(frame: Frame) -> Items:
        first, second = left(frame), right(frame)
        for side in (first, second):
            if len(side) > 1 or not all(map(is_node, side)):
                raise located(XQueryError("XPTY0004", f"{expr.op} needs one node on each side"), expr)
        return [test(first[0], second[0])] if first and second else []

    return run


# --- arithmetic


@compiles(Arithmetic)
def _arithmetic(expr: Arithmetic, scope: Scope) -> Compiled:
    left, right, op = compile_expr(expr.left, scope).run, compile_expr(expr.right, scope).run, expr.op

    def run(frame: Frame) -> Items:
        try:
            first, second = atom(left(frame), f"the left side of {op}"), atom(right(frame), f"the right side of {op}")
            return [] if first is None or second is None else [arithmetic(op, first, second)]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run)


@compiles(Unary)
def _unary(expr: Unary, scope: Scope) -> Compiled:
    operand, negative = compile_expr(expr.operand, scope).run, expr.op == "-"

    def run(frame: Frame) -> Items:
        try:
            value = untyped_to_double(atom(operand(frame), f"the operand of {expr.op}"))
        except XQueryError as error:
            raise located(error, expr) from None
        if value is None:
            return []
        if type(value) not in NUMBERS:
            raise located(XQueryError("XPTY0004", f"{expr.op} needs a number, given {type_name(value)}"), expr)
        return [negated(value) if negative else value]

    return Compiled(run)


@compiles(Range)
def _range(expr: Range, scope: Scope) -> Compiled:
    first, last = compile_expr(expr.first, scope).run, compile_expr(expr.last, scope).run

    def bounds(frame: Frame) -> range:
        try:
            low, high = _whole(first(frame)), _whole(last(frame))
        except XQueryError as error:
            raise located(error, expr) from None
        return range(0) if low is None or high is None else range(low, high + 1)

    return Compiled(lambda frame: list(bounds(frame)), stream=lambda frame: iter(bounds(frame)))


def _whole(items: Items) -> int | None:
    value = atom(items, "a bound of a range")
    if type(value) is UntypedAtomic:
        value = cast(value, "integer")
    if value is not None and type(value) not in INTEGERS:
        raise XQueryError("XPTY0004", f"the bounds of a range are integers, given {type_name(value)}")
    return value  # type: ignore[no-any-return]  # an integer, as just checked


@compiles(StringConcat)
def _concat(expr: StringConcat, scope: Scope) -> Compiled:
    left, right = compile_expr(expr.left, scope).run, compile_expr(expr.right, scope).run

    def text(items: Items) -> str:
        value = atom(items, "an operand of ||")
        return "" if value is None else text_of(value)

    def run(frame: Frame) -> Items:
        try:
            return [text(left(frame)) + text(right(frame))]
        except XQueryError as error:
            raise located(error, expr) from None

    return Compiled(run)


@compiles(SimpleMap)
def _simple_map(expr: SimpleMap, scope: Scope) -> Compiled:
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
