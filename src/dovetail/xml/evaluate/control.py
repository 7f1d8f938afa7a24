"""Conditions, switches and caught errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.axes import name_matches
from dovetail.xml.evaluate.compiler import (
    Compiled,
    Frame,
    Items,
    Run,
    Scope,
    compile_expr,
    compiles,
    errors_at,
    located,
    matcher,
)
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import ERR, QName
from dovetail.xml.xdm.operators import same
from dovetail.xml.xdm.values import atom


class RaisedError(XQueryError):
    """An error that the query raised itself: its code is a name in any namespace, and it carries items."""

    def __init__(self, name: QName, message: str, items: Items) -> None:
        super().__init__(name.local, message)
        self.name, self.message, self.items = name, message, items


@compiles(tree.If)
def _if(expr: tree.If, scope: Scope) -> Compiled:
    condition = compile_expr(expr.condition, scope).truth()
    then, otherwise = compile_expr(expr.then, scope), compile_expr(expr.otherwise, scope)
    yes, no = then.run, otherwise.run

    def choose(frame: Frame) -> bool:
        try:
            return condition(frame)
        except XQueryError as error:
            raise located(error, expr) from None

    if then.test is not None and otherwise.test is not None:
        test, other = then.test, otherwise.test
        return Compiled(
            lambda frame: yes(frame) if choose(frame) else no(frame),
            lambda frame: test(frame) if choose(frame) else other(frame),
        )
    return Compiled(lambda frame: yes(frame) if choose(frame) else no(frame))


@compiles(tree.Switch)
def _switch(expr: tree.Switch, scope: Scope) -> Compiled:
    operand = compile_expr(expr.operand, scope).run
    cases = [
        ([compile_expr(value, scope).run for value in case.values], compile_expr(case.result, scope).run)
        for case in expr.cases
    ]
    default = compile_expr(expr.default, scope).run

    def is_case(run: Run, wanted: Any, frame: Frame) -> bool:
        value = atom(run(frame), "an operand of switch")
        return value is wanted if value is None or wanted is None else same(value, wanted)

    def run(frame: Frame) -> Items:
        try:
            wanted = atom(operand(frame), "an operand of switch")
            chosen = next(
                (result for values, result in cases if any(is_case(v, wanted, frame) for v in values)), default
            )
        except XQueryError as error:
            raise located(error, expr) from None
        return chosen(frame)

    return Compiled(run)


@compiles(tree.Typeswitch)
def _typeswitch(expr: tree.Typeswitch, scope: Scope) -> Compiled:
    operand = compile_expr(expr.operand, scope).run
    cases = [_type_case(case, expr, scope) for case in expr.cases]

    def run(frame: Frame) -> Items:
        items = operand(frame)
        for matches, slot, result in cases:
            if matches(items):
                if slot is not None:
                    frame[slot] = items
                return result(frame)
        return []

    return Compiled(run)


def _type_case(
    case: tree.TypeCase, expr: tree.Typeswitch, scope: Scope
) -> tuple[Callable[[Items], bool], int | None, Run]:
    with errors_at(expr):
        tests = [matcher(kind) for kind in case.types]
    slot = None
    if case.variable is not None:
        scope, slot = scope.bind(case.variable)
    matches = (lambda items: any(test(items) for test in tests)) if tests else (lambda items: True)
    return matches, slot, compile_expr(case.result, scope).run


_DESCRIPTION = ("code", "description", "value", "module", "line-number", "column-number", "additional")


@compiles(tree.TryCatch)
def _try(expr: tree.TryCatch, scope: Scope) -> Compiled:
    body = compile_expr(expr.body, scope).run
    inner, slots = scope, []
    for local in _DESCRIPTION:
        inner, slot = inner.bind(QName(ERR, local))
        slots.append(slot)
    catches = [(catch, compile_expr(catch.result, inner).run) for catch in expr.catches]

    def run(frame: Frame) -> Items:
        try:
            return body(frame)
        except XQueryError as error:
            for catch, result in catches:
                if _catches(catch, error):
                    for slot, value in zip(slots, _described(error), strict=True):
                        frame[slot] = value
                    return result(frame)
            raise

    return Compiled(run)


def error_name(error: XQueryError) -> QName:
    """The code of an error as a name."""
    return error.name if isinstance(error, RaisedError) else QName(ERR, error.code, "err")


def _catches(catch: tree.Catch, error: XQueryError) -> bool:
    name = error_name(error)
    return any(name_matches(test, name.uri, name.local) for test in catch.tests)


def _described(error: XQueryError) -> list[Items]:
    if isinstance(error, RaisedError):
        message, items = error.message, error.items
    else:
        message, items = str(error).removeprefix(f"[{error.code}] "), []
    return [[error_name(error)], [message] if message else [], items, [], [error.line], [error.column], []]
