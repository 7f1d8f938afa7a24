"""Runs tuples through the clauses of FLWOR expressions and the operators of plans, in the same way.

A tuple is a state of the frame: the values at the places of its variables. Each clause sets the frame to one tuple
after another, as they are asked for; only `order` and `group` hold tuples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.compiler import (
    Compiled,
    Convert,
    Frame,
    Items,
    Placed,
    Run,
    Scope,
    Test,
    checked,
    compile_expr,
    compiles,
    converter,
    located,
)
from dovetail.xml.syntax import tree
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.operators import comparable, key_of
from dovetail.xml.xdm.values import atom

Rows = Callable[[Frame], Iterator[None]]
"""Sets the frame to one tuple after another."""
Step = Callable[[Frame], Any]
"""Changes a tuple in place; False: the tuple is dropped."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of `order`."""

    value: Run
    descending: bool = False
    empty_greatest: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of `group`: the items of `value` over all tuples of a group, changed by `finish`."""

    slot: int
    value: Run
    finish: Callable[[Items], Items] | None = None


def one_tuple(frame: Frame) -> Iterator[None]:
    """The tuple that the frame holds already."""
    yield


class Tuples:
    """Clauses put together from the first to the last; `scope` has the names that the next one may use.

    `bound` holds the variables of these clauses and their places. Assignments and conditions between two other clauses
    run together: each loop over tuples takes a part of the C stack while the clauses before it compute.
    """

    def __init__(self, scope: Scope, rows: Rows = one_tuple, bound: dict[Hashable, int] | None = None) -> None:
        self.scope, self.bound = scope, dict(bound or {})
        self._rows, self._steps = rows, list[Step]()

    @property
    def places(self) -> tuple[int, ...]:
        """The places of a tuple's variables."""
        return tuple(self.bound.values())

    def bind(self, name: Hashable) -> int:
        """The place of a further variable."""
        self.scope, slot = self.scope.bind(name)
        self.bound[name] = slot
        return slot

    def rows(self) -> Rows:
        """All clauses so far."""
        if self._steps:
            self._rows, self._steps = _stepped(self._rows, tuple(self._steps)), []
        return self._rows

    def _loop(self, rows: Rows) -> None:
        self.scope.slots.loops += 1
        self._rows = rows

    def let(self, name: Hashable, value: Run) -> None:
        """One more variable with the value of an expression."""
        slot = self.bind(name)

        def assign(frame: Frame) -> bool:
            frame[slot] = value(frame)
            return True

        self._steps.append(assign)

    def where(self, test: Test) -> None:
        """Only the tuples for which the test is true."""
        self._steps.append(test)

    def check(self, name: Hashable, check: Callable[[Items], Items] | None) -> None:
        """The value of a variable is passed to a function that raises an error if it is wrong."""
        if check is not None:
            slot = self.bound[name]
            self._steps.append(lambda frame: (check(frame[slot]), True))

    def unnest(
        self,
        each: Callable[[Frame], Iterable[Any]],
        name: Hashable,
        position: Hashable | None = None,
        allowing_empty: bool = False,
    ) -> None:
        """A tuple for each item; `position` counts the items of one tuple from 1."""
        before = self.rows()
        slot = self.bind(name)
        at = None if position is None else self.bind(position)

        def plain(frame: Frame) -> Iterator[None]:
            for _ in before(frame):
                for item in each(frame):
                    frame[slot] = [item]
                    yield

        def numbered(frame: Frame) -> Iterator[None]:
            for _ in before(frame):
                number = 0
                for number, item in enumerate(each(frame), 1):
                    frame[slot] = [item]
                    if at is not None:
                        frame[at] = [number]
                    yield
                if number == 0 and allowing_empty:
                    frame[slot] = []
                    if at is not None:
                        frame[at] = [0]
                    yield

        self._loop(plain if at is None and not allowing_empty else numbered)

    def count(self, name: Hashable) -> None:
        """The number of each tuple, from 1."""
        before, slot = self.rows(), self.bind(name)

        def rows(frame: Frame) -> Iterator[None]:
            for number, _ in enumerate(before(frame), 1):
                frame[slot] = [number]
                yield

        self._loop(rows)

    def order(self, keys: list[Key], place: Placed) -> None:
        """The tuples sorted by the keys; tuples with equal keys keep their order. Errors of keys get the `place`."""
        before, places = self.rows(), self.places
        compare = _comparison([ordering(key.descending, key.empty_greatest) for key in keys])

        def rows(frame: Frame) -> Iterator[None]:
            found = []
            for _ in before(frame):
                try:
                    found.append(([_order_value(key.value(frame)) for key in keys], kept(frame, places)))
                except XQueryError as error:
                    raise located(error, place) from None
            try:
                found.sort(key=cmp_to_key(compare))
            except XQueryError as error:
                raise located(error, place) from None
            for _, values in found:
                restore(frame, places, values)
                yield

        self._loop(rows)

    def group(self, keys: list[tuple[int, Run]], fields: list[Field], place: Placed) -> None:
        """A tuple for each group, in the order of their first tuples: its keys, and its fields."""
        before, places = self.rows(), tuple(slot for slot, _ in keys)

        def key_of_tuple(frame: Frame) -> tuple[Any, ...]:
            same = []
            try:
                for slot, value in keys:
                    key, frame[slot] = _group_key(value(frame))
                    same.append(key)
            except XQueryError as error:
                raise located(error, place) from None
            return tuple(same)

        def rows(frame: Frame) -> Iterator[None]:
            groups: dict[Any, tuple[tuple[Any, ...], list[Items]]] = {}
            for _ in before(frame):
                key = key_of_tuple(frame)
                if key not in groups:
                    groups[key] = kept(frame, places), [[] for _ in fields]
                for items, field in zip(groups[key][1], fields, strict=True):
                    items += field.value(frame)
            for named, gathered in groups.values():
                restore(frame, places, named)
                for items, field in zip(gathered, fields, strict=True):
                    frame[field.slot] = items if field.finish is None else field.finish(items)
                yield

        self._loop(rows)


def _stepped(before: Rows, steps: tuple[Step, ...]) -> Rows:
    def rows(frame: Frame) -> Iterator[None]:
        for _ in before(frame):
            for step in steps:
                if not step(frame):
                    break
            else:
                yield

    return rows


def kept(frame: Frame, places: tuple[int, ...]) -> tuple[Any, ...]:
    """The values of a frame at some places."""
    return tuple([frame[slot] for slot in places])


def restore(frame: Frame, places: tuple[int, ...], values: tuple[Any, ...]) -> None:
    """Restores the values that `kept` returned."""
    for slot, value in zip(places, values, strict=True):
        frame[slot] = value


# --- sort keys and group keys


def _order_value(items: Items) -> Any:
    """The value of a sort key: one atomic value or None; untyped values are strings."""
    value = atom(items, "a key of order by")
    return str(value) if type(value) is UntypedAtomic else value


def ordering(descending: bool = False, empty_greatest: bool = False) -> Callable[[Any, Any], int]:
    """A comparison of two values of one key; the empty sequence and NaN stand at the end that the query names."""
    empty = 1 if empty_greatest else -1

    def compare(left: Any, right: Any) -> int:
        ranks = _rank(left, empty), _rank(right, empty)
        if ranks[0] != ranks[1]:
            return -1 if ranks[0] < ranks[1] else 1
        if ranks[0]:
            return 0
        first, second = comparable(left, right, "lt")
        return -1 if first < second else int(first > second)

    return (lambda left, right: compare(right, left)) if descending else compare


def _rank(value: Any, empty: int) -> int:
    if value is None:
        return 2 * empty
    return empty if isinstance(value, float) and math.isnan(value) else 0


def _comparison(tests: list[Callable[[Any, Any], int]]) -> Callable[[Any, Any], int]:
    def compare(left: tuple[list[Any], Any], right: tuple[list[Any], Any]) -> int:
        for test, first, second in zip(tests, left[0], right[0], strict=True):
            result = test(first, second)
            if result:
                return result
        return 0

    return compare


def _group_key(items: Items) -> tuple[Any, Items]:
    """The hashable key of a group, and the value that the variable of the group gets."""
    value = atom(items, "a key of group by")
    if value is None:
        return (), []
    if type(value) is UntypedAtomic:
        value = str(value)
    return key_of(value), [value]


@compiles(tree.Flwor)
def _flwor(expr: tree.Flwor, scope: Scope) -> Compiled:
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


def _for(clause: tree.ForClause, tuples: Tuples) -> None:
    each = compile_expr(clause.source, tuples.scope).each()
    tuples.unnest(each, clause.variable, clause.position, clause.allowing_empty)
    tuples.check(clause.variable, checked(clause.type, f"${clause.variable}", clause))


def _let(clause: tree.LetClause, tuples: Tuples) -> None:
    tuples.let(clause.variable, compile_expr(clause.value, tuples.scope).run)
    tuples.check(clause.variable, checked(clause.type, f"${clause.variable}", clause))


def _order(clause: tree.OrderClause, tuples: Tuples) -> None:
    keys = [Key(compile_expr(key.expr, tuples.scope).run, key.descending, key.empty_greatest) for key in clause.keys]
    tuples.order(keys, clause)


def _group(clause: tree.GroupClause, tuples: Tuples) -> None:
    keys = []
    for key in clause.keys:
        if key.value is None and key.variable not in tuples.bound:
            raise located(XQueryError("XQST0094", f"${key.variable} is not bound in this FLWOR expression"), clause)
        value = compile_expr(key.value or tree.VariableRef(key.variable), tuples.scope).run
        if key.type is not None:
            value = _converted(value, converter(key.type, f"${key.variable}"))
        keys.append((tuples.bind(key.variable), value))
    named = {slot for slot, _ in keys}
    fields = [Field(slot, _at(slot)) for slot in tuples.places if slot not in named]
    tuples.group(keys, fields, clause)


def _converted(value: Run, convert: Convert) -> Run:
    return lambda frame: convert(value(frame))


def _at(slot: int) -> Run:
    return lambda frame: frame[slot]


_CLAUSES: dict[type, Callable[[Any, Tuples], None]] = {
    tree.ForClause: _for,
    tree.LetClause: _let,
    tree.WhereClause: lambda clause, tuples: tuples.where(compile_expr(clause.condition, tuples.scope).truth()),
    tree.CountClause: lambda clause, tuples: tuples.count(clause.variable),
    tree.OrderClause: _order,
    tree.GroupClause: _group,
}
