"""FLWOR expressions: each clause pushes tuples to the clause behind it; a tuple is a state of the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.blocking import BLOCKING, BLOCKS, Arrange, Bound, Push
from dovetail.xml.evaluate.compiler import compile_expr, compiles
from dovetail.xml.evaluate.plan import Frame, Items, Plan, Scope, located
from dovetail.xml.evaluate.types import Convert, matcher, mismatch, written
from dovetail.xml.syntax.names import QName, SequenceType
from dovetail.xml.syntax.tree import Clause, Flwor, ForClause, LetClause, WhereClause

Behind = Callable[[Scope, Bound], Push]
Consume = Callable[[Frame, Iterable[Any], Items], None]  # the frame holds a tuple whenever the iterable gives something


def typed(kind: SequenceType | None, name: QName, place: Clause) -> Convert | None:
    """The check of a declared type of a variable; no conversion takes place."""
    if kind is None:
        return None
    try:
        matches = matcher(kind)
    except XQueryError as error:
        raise located(error, place) from None

    def check(items: Items) -> Items:
        if not matches(items):
            raise located(mismatch(items, written(kind), f"${name}"), place)
        return items

    return check


@compiles(Flwor)
def _flwor(expr: Flwor, scope: Scope) -> Plan:
    first = expr.clauses[0]
    streams = isinstance(first, ForClause) and first.position is None and not first.allowing_empty
    if isinstance(first, ForClause) and streams and not any(isinstance(clause, BLOCKING) for clause in expr.clauses):
        return _streamed(expr, first, scope)
    consume = _compiled(expr, expr.clauses, scope, {})

    def run(frame: Frame) -> Items:
        out: Items = []
        consume(frame, (None,), out)
        return out

    return Plan(run)


def _streamed(expr: Flwor, first: ForClause, scope: Scope) -> Plan:
    """Starts with `for` and keeps no tuples: the answer can come item by item."""
    each = compile_expr(first.source, scope).each()
    inner, slot = scope.looped().bind(first.variable)
    check = typed(first.type, first.variable, first)
    push = _chain(expr.clauses[1:], inner, {first.variable: slot}, lambda last, _: _emit(expr, last))

    def run(frame: Frame) -> Items:
        out: Items = []
        for item in each(frame):
            frame[slot] = check([item]) if check else [item]
            push(frame, out)
        return out

    def stream(frame: Frame) -> Iterator[Any]:
        for item in each(frame):
            frame[slot] = check([item]) if check else [item]
            yield from _collected(push, frame)

    return Plan(run, stream=stream)


def _collected(push: Push, frame: Frame) -> Items:
    out: Items = []
    push(frame, out)
    return out


def _compiled(expr: Flwor, clauses: tuple[Clause, ...], scope: Scope, bound: Bound) -> Consume:
    """Clauses from some place to `return`; at a clause that needs all tuples, they are kept and arranged first."""
    stop = next((at for at, clause in enumerate(clauses) if isinstance(clause, BLOCKING)), None)
    if stop is None:
        push = _chain(clauses, scope, bound, lambda inner, _: _emit(expr, inner))
        return lambda frame, tuples, out: _push_all(push, frame, tuples, out)
    behind: list[tuple[Arrange, Consume]] = []

    def end(inner: Scope, held: Bound) -> Push:
        block = clauses[stop]
        keep, arrange, after, known = BLOCKS[type(block)](block, inner, held)
        behind.append((arrange, _compiled(expr, clauses[stop + 1 :], after, known)))
        return keep

    head = _chain(clauses[:stop], scope, bound, end)
    arrange, rest = behind[0]

    def consume(frame: Frame, tuples: Iterable[Any], out: Items) -> None:
        kept: Items = []
        _push_all(head, frame, tuples, kept)
        rest(frame, arrange(frame, kept), out)

    return consume


def _push_all(push: Push, frame: Frame, tuples: Iterable[Any], out: Items) -> None:
    for _ in tuples:
        push(frame, out)


def _emit(expr: Flwor, scope: Scope) -> Push:
    result = compile_expr(expr.result, scope).run

    def emit(frame: Frame, out: Items) -> None:
        out += result(frame)

    return emit


def _chain(clauses: tuple[Clause, ...], scope: Scope, bound: Bound, end: Behind) -> Push:
    """Clauses that pass tuples on one by one."""
    if not clauses:
        return end(scope, bound)
    return _CLAUSES[type(clauses[0])](clauses[0], scope, bound, lambda s, b: _chain(clauses[1:], s, b, end))


def _for(clause: ForClause, scope: Scope, bound: Bound, behind: Behind) -> Push:
    each = compile_expr(clause.source, scope).each()
    inner, slot = scope.looped().bind(clause.variable)
    check = typed(clause.type, clause.variable, clause)
    bound = {**bound, clause.variable: slot}
    at = None
    if clause.position is not None:
        inner, at = inner.bind(clause.position)
        bound = {**bound, clause.position: at}
    push = behind(inner, bound)

    def bind(frame: Frame, items: Items, position: int) -> None:
        frame[slot] = check(items) if check else items
        if at is not None:
            frame[at] = [position]

    def run(frame: Frame, out: Items) -> None:
        position = 0
        for item in each(frame):
            position += 1
            bind(frame, [item], position)
            push(frame, out)
        if position == 0 and clause.allowing_empty:
            bind(frame, [], 0)
            push(frame, out)

    return run


def _let(clause: LetClause, scope: Scope, bound: Bound, behind: Behind) -> Push:
    value = compile_expr(clause.value, scope).run
    inner, slot = scope.bind(clause.variable)
    check = typed(clause.type, clause.variable, clause)
    push = behind(inner, {**bound, clause.variable: slot})

    def run(frame: Frame, out: Items) -> None:
        items = value(frame)
        frame[slot] = check(items) if check else items
        push(frame, out)

    return run


def _where(clause: WhereClause, scope: Scope, bound: Bound, behind: Behind) -> Push:
    test = compile_expr(clause.condition, scope).truth()
    push = behind(scope, bound)

    def run(frame: Frame, out: Items) -> None:
        if test(frame):
            push(frame, out)

    return run


_CLAUSES: dict[type, Callable[[Any, Scope, Bound, Behind], Push]] = {
    ForClause: _for,
    LetClause: _let,
    WhereClause: _where,
}
