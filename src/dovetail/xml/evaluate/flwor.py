"""FLWOR expressions: each clause becomes a clause of `Tuples`; `return` is computed for each tuple."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import Compiled, Frame, Items, Run, Scope, compile_expr, compiles, located
from dovetail.xml.evaluate.tuples import Field, Key, Tuples
from dovetail.xml.evaluate.types import Convert, converter, matcher, mismatch, written
from dovetail.xml.syntax.names import QName, SequenceType
from dovetail.xml.syntax.tree import (
    Clause,
    CountClause,
    Flwor,
    ForClause,
    GroupClause,
    LetClause,
    OrderClause,
    VariableRef,
    WhereClause,
)


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
def _flwor(expr: Flwor, scope: Scope) -> Compiled:
    tuples = Tuples(scope)
    for clause in expr.clauses:
        _CLAUSES[type(clause)](clause, tuples)
    rows, result = tuples.rows(), compile_expr(expr.result, tuples.scope).run

    def run(frame: Frame) -> Items:
        out: Items = []
        for _ in rows(frame):
            out += result(frame)
        return out

    def stream(frame: Frame) -> Iterator[Any]:
        for _ in rows(frame):
            yield from result(frame)

    return Compiled(run, stream=stream)


def for_clause(clause: ForClause, tuples: Tuples) -> None:
    """`for $x as type allowing empty at $i in ...`, also in a quantified expression."""
    each = compile_expr(clause.source, tuples.scope).each()
    tuples.unnest(each, clause.variable, clause.position, clause.allowing_empty)
    tuples.check(clause.variable, typed(clause.type, clause.variable, clause))


def _let(clause: LetClause, tuples: Tuples) -> None:
    tuples.let(clause.variable, compile_expr(clause.value, tuples.scope).run)
    tuples.check(clause.variable, typed(clause.type, clause.variable, clause))


def _where(clause: WhereClause, tuples: Tuples) -> None:
    tuples.where(compile_expr(clause.condition, tuples.scope).truth())


def _count(clause: CountClause, tuples: Tuples) -> None:
    tuples.count(clause.variable)


def _order(clause: OrderClause, tuples: Tuples) -> None:
    keys = [Key(compile_expr(key.expr, tuples.scope).run, key.descending, key.empty_greatest) for key in clause.keys]
    tuples.order(keys, lambda error: located(error, clause))


def _group(clause: GroupClause, tuples: Tuples) -> None:
    keys = []
    for key in clause.keys:
        if key.value is None and key.variable not in tuples.bound:
            raise located(XQueryError("XQST0094", f"${key.variable} is not bound in this FLWOR expression"), clause)
        value = compile_expr(key.value or VariableRef(key.variable), tuples.scope).run
        if key.type is not None:
            value = _converted(value, converter(key.type, f"${key.variable}"))
        keys.append((tuples.bind(key.variable), value))
    named = {slot for slot, _ in keys}
    fields = [Field(slot, _at(slot)) for slot in tuples.places if slot not in named]
    tuples.group(keys, fields, lambda error: located(error, clause))


def _converted(value: Run, convert: Convert) -> Run:
    return lambda frame: convert(value(frame))


def _at(slot: int) -> Run:
    return lambda frame: frame[slot]


_CLAUSES: dict[type, Callable[[Any, Tuples], None]] = {
    ForClause: for_clause,
    LetClause: _let,
    WhereClause: _where,
    CountClause: _count,
    OrderClause: _order,
    GroupClause: _group,
}
