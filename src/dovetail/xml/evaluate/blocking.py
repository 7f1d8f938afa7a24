"""The clauses of FLWOR that need all tuples before they give the first: order by, group by, count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cmp_to_key
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import compile_expr
from dovetail.xml.evaluate.plan import Frame, Items, Scope, located
from dovetail.xml.evaluate.types import converter
from dovetail.xml.syntax.names import QName
from dovetail.xml.syntax.tree import CountClause, GroupClause, OrderClause, OrderKey, VariableRef
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.compare import comparable, key_of
from dovetail.xml.xdm.values import atom

Push = Callable[[Frame, Items], None]
Bound = dict[QName, int]  # variables of a tuple and their places
Arrange = Callable[[Frame, Items], Iterator[None]]  # sets the frame to one tuple after another
Block = tuple[Push, Arrange, Scope, Bound]  # what keeps tuples, what arranges them, and the names known afterwards
BLOCKING = (OrderClause, GroupClause, CountClause)


def _kept(frame: Frame, places: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(frame[slot] for slot in places)


def _restore(frame: Frame, places: tuple[int, ...], values: tuple[Any, ...]) -> None:
    for slot, value in zip(places, values, strict=True):
        frame[slot] = value


def _count(clause: CountClause, scope: Scope, bound: Bound) -> Block:
    inner, slot = scope.bind(clause.variable)
    places = tuple(bound.values())

    def arrange(frame: Frame, tuples: Items) -> Iterator[None]:
        for number, values in enumerate(tuples, 1):
            _restore(frame, places, values)
            frame[slot] = [number]
            yield

    return lambda frame, out: out.append(_kept(frame, places)), arrange, inner, {**bound, clause.variable: slot}


# --- order by


def order_value(items: Items) -> Any:
    """The value of a sort key: one atomic value or None; untyped values are strings."""
    value = atom(items, "a key of order by")
    return str(value) if type(value) is UntypedAtomic else value


def ordering(key: OrderKey) -> Callable[[Any, Any], int]:
    """A comparison of two values of one key; the empty sequence and NaN stand at the end that was asked for."""
    empty = 1 if key.empty_greatest else -1

    def compare(left: Any, right: Any) -> int:
        ranks = _rank(left, empty), _rank(right, empty)
        if ranks[0] != ranks[1]:
            return -1 if ranks[0] < ranks[1] else 1
        if ranks[0]:
            return 0
        first, second = comparable(left, right, "lt")
        return -1 if first < second else int(first > second)

    return (lambda left, right: compare(right, left)) if key.descending else compare


def _rank(value: Any, empty: int) -> int:
    if value is None:
        return 2 * empty
    return empty if isinstance(value, float) and math.isnan(value) else 0


def sorted_tuples(keys: tuple[OrderKey, ...], tuples: list[tuple[list[Any], Any]]) -> list[Any]:
    """Tuples in the order of their keys; tuples with equal keys keep their order."""
    tests = [ordering(key) for key in keys]

    def compare(left: tuple[list[Any], Any], right: tuple[list[Any], Any]) -> int:
        for test, first, second in zip(tests, left[0], right[0], strict=True):
            result = test(first, second)
            if result:
                return result
        return 0

    return [kept for _, kept in sorted(tuples, key=cmp_to_key(compare))]


def _order(clause: OrderClause, scope: Scope, bound: Bound) -> Block:
    keys = [compile_expr(key.expr, scope).run for key in clause.keys]
    places = tuple(bound.values())

    def keep(frame: Frame, out: Items) -> None:
        try:
            out.append(([order_value(key(frame)) for key in keys], _kept(frame, places)))
        except XQueryError as error:
            raise located(error, clause) from None

    def arrange(frame: Frame, tuples: Items) -> Iterator[None]:
        try:
            ordered = sorted_tuples(clause.keys, tuples)
        except XQueryError as error:
            raise located(error, clause) from None
        for values in ordered:
            _restore(frame, places, values)
            yield

    return keep, arrange, scope, bound


# --- group by


def group_key(items: Items) -> tuple[Any, Items]:
    """What two tuples of one group agree on, and the value that the group's variable gets."""
    value = atom(items, "a key of group by")
    if value is None:
        return (), []
    if type(value) is UntypedAtomic:
        value = str(value)
    return key_of(value), [value]


def _group(clause: GroupClause, scope: Scope, bound: Bound) -> Block:
    keys = []
    inner, grouped = scope, dict(bound)
    for key in clause.keys:
        if key.value is None and key.variable not in grouped:
            raise located(XQueryError("XQST0094", f"${key.variable} is not bound in this FLWOR expression"), clause)
        value = compile_expr(key.value or VariableRef(key.variable), inner).run
        check = None if key.type is None else converter(key.type, f"${key.variable}")
        inner, slot = inner.bind(key.variable)
        grouped[key.variable] = slot
        keys.append((value, check, slot))
    slots = {slot for _, _, slot in keys}
    others = tuple(slot for slot in grouped.values() if slot not in slots)

    def keep(frame: Frame, out: Items) -> None:
        try:
            found = []
            for value, check, slot in keys:
                same, frame[slot] = group_key(check(value(frame)) if check else value(frame))
                found.append((same, frame[slot]))
            out.append((found, _kept(frame, others)))
        except XQueryError as error:
            raise located(error, clause) from None

    places = tuple(slot for _, _, slot in keys)
    return keep, lambda frame, tuples: _groups(frame, tuples, places, others), inner, grouped


def _groups(frame: Frame, tuples: Items, keys: tuple[int, ...], others: tuple[int, ...]) -> Iterator[None]:
    """Groups in the order of their first tuples; other variables hold their values of all tuples of the group."""
    groups: dict[Any, tuple[tuple[Any, ...], list[Items]]] = {}
    for found, values in tuples:
        key = tuple(same for same, _ in found)
        if key not in groups:
            groups[key] = tuple(value for _, value in found), [[] for _ in others]
        for gathered, value in zip(groups[key][1], values, strict=True):
            gathered += value
    for named, gathered in groups.values():
        _restore(frame, keys, named)
        _restore(frame, others, tuple(gathered))
        yield


BLOCKS: dict[type, Callable[[Any, Scope, Bound], Block]] = {
    CountClause: _count,
    OrderClause: _order,
    GroupClause: _group,
}
