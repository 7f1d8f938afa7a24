"""Runs plans inside a task: a whole plan, the rest of one, or the chain over a scan or a join.

The operators become clauses of `Tuples`, their expressions closures over its frame. Nodes of scans and tuples of other
tasks may come from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dovetail.errors import PlanError, XQueryError
from dovetail.xml.algebra.expressions import NOWHERE, Call, Constant, Expression, Place, Variable, node_test
from dovetail.xml.algebra.matching import is_one_tuple
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Equality,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    Subplan,
    Unnest,
    inputs,
)
from dovetail.xml.evaluate.axes import step
from dovetail.xml.evaluate.calls import Static
from dovetail.xml.evaluate.compiler import Context, Frame, Items, Run, Scope, Slots, compile_expr, located
from dovetail.xml.evaluate.flwor import Field, Key, Tuples, kept, restore
from dovetail.xml.syntax.tree import deep_stack
from dovetail.xml.xdm.markup import copy_into
from dovetail.xml.xdm.nodes import new_tree
from dovetail.xml.xdm.operators import KEYS
from dovetail.xml.xdm.values import atomise

Function = Callable[[Sequence[Items]], Items]


@dataclass(frozen=True, slots=True)
class Given(NestedTupleSource):
    """In the rest of a plan, or in the chain above a join: tuples that come from other tasks."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class RemoteTuples:
    """Tuples of other tasks: their variables, and for each tuple the values of these."""

    variables: tuple[Variable, ...]
    rows: Iterable[Sequence[Items]]


class Runner:
    """Compiles and runs plans and expressions for one task; a node keeps its identity in all of them."""

    def __init__(self, static: Static, context: Context) -> None:
        self.static, self.context = static, context

    def _scope(self) -> Scope:
        return Scope(self.static, Slots(4), focus=1)

    def function(
        self, expression: Expression, variables: Sequence[Variable] = ()
    ) -> Callable[[Sequence[Items]], Items]:
        """An expression as a function of the values of its variables."""
        scope = self._scope()
        for variable in variables:
            scope, _ = scope.bind(variable)
        run = compile_expr(expression, scope).run
        frame = self.context.frame(scope.slots.used)

        def call(values: Sequence[Items]) -> Items:
            frame[4 : 4 + len(values)] = values
            return run(frame)

        return call

    def named(self, name: str, n: int, place: Place = NOWHERE) -> Function:
        """A function of XQuery with n arguments; its errors say where in the query it stands."""
        variables = tuple(map(Variable, range(n)))
        return self.function(Call(name, variables, place), variables)

    def prepared(
        self, plan: Operator, wanted: Sequence[Expression], given: Sequence[RemoteTuples] = (), fed: bool = False
    ) -> Callable[..., Iterator[list[Items]]]:
        """Starts a run of a plan, which yields the values of some expressions for each tuple.

        If it is `fed`, the nodes of its only scan are the argument of the run.
        """
        scope = self._scope()
        feed = scope.slots.take()
        tuples = _Operators(self, plan, feed if fed else None, given).of(plan, scope)
        values = [compile_expr(one, tuples.scope).run for one in wanted]
        rows = tuples.rows()

        def run(nodes: Iterable[Any] = ()) -> Iterator[list[Items]]:
            frame = self.context.frame(tuples.scope.slots.used)
            frame[feed] = nodes
            for _ in rows(frame):
                yield [value(frame) for value in values]

        return run

    def items(
        self, plan: DistributeResult, columns: tuple[Variable, ...] = (), given: Sequence[RemoteTuples] = ()
    ) -> Iterator[Any]:
        """The items of a whole plan, computed lazily; or the values of `columns`, tuple by tuple."""
        with deep_stack():
            found = self.prepared(plan.input, columns or (plan.variable,), given=given)()
        while True:
            with deep_stack():
                try:
                    values = next(found)
                except StopIteration:
                    return
            if columns:
                yield values
            else:
                yield from values[0]


class _Operators:
    """Compiles the operators of one plan."""

    def __init__(self, runner: Runner, plan: Operator, feed: int | None, given: Sequence[RemoteTuples]) -> None:
        self.runner, self.feed, self.given = runner, feed, given
        self._once = {id(scan) for scan in run_once(plan)}

    def of(self, plan: Operator, scope: Scope) -> Tuples:
        """The tuples of a plan; those of a nested plan for the tuple that the frame holds."""
        match plan:
            case Given(number):
                return self._remote(self.given[number], scope)
            case EmptyTupleSource() | NestedTupleSource():
                return Tuples(scope)
            case Aggregate():
                tuples = Tuples(scope)
                tuples.let(plan.variable, self._aggregate(plan, scope))
                return tuples
            case Join():
                return self._join(plan, scope)
        tuples = self.of(plan.input, scope)  # type: ignore[attr-defined]  # all others have one input
        self._add(plan, tuples)
        return tuples

    def _add(self, operator: Operator, tuples: Tuples) -> None:
        match operator:
            case Assign(variable, expression):
                tuples.let(variable, compile_expr(expression, tuples.scope).run)
            case Select(condition):
                tuples.where(compile_expr(condition, tuples.scope).truth())
            case Unnest(variable, expression, _, position):
                tuples.unnest(compile_expr(expression, tuples.scope).each(), variable, position)
            case DataScan():
                tuples.unnest(self._scanned(operator, tuples.scope), operator.variable)
            case Subplan(Aggregate() as nested):
                tuples.let(nested.variable, self._aggregate(nested, tuples.scope))
            case Order():
                keys = [
                    Key(compile_expr(key.expression, tuples.scope).run, key.descending, key.empty_greatest)
                    for key in operator.keys
                ]
                tuples.order(keys, operator.place)
            case GroupBy():
                self._group(operator, tuples)
            case _:
                raise PlanError(f"{type(operator).__name__} cannot be run inside a plan.")

    def _remote(self, given: RemoteTuples, scope: Scope) -> Tuples:
        tuples = Tuples(scope)
        places = [tuples.bind(variable) for variable in given.variables]

        def rows(frame: Frame) -> Iterator[None]:
            for values in given.rows:
                for slot, value in zip(places, values, strict=True):
                    frame[slot] = value
                yield

        return Tuples(tuples.scope, rows, tuples.bound)

    # --- scans

    def _scanned(self, scan: DataScan, scope: Scope) -> Callable[[Frame], Iterable[Any]]:
        """The nodes of a scan: fed from outside; streamed if it runs once; else the same ones each time."""
        if self.feed is not None:
            feed = self.feed
            return lambda frame: frame[feed]
        if id(scan) in self._once:
            return lambda frame: self._streamed(scan)
        source, found = compile_expr(scan.source, scope).run, list[Items]()

        def nodes(frame: Frame) -> Items:
            if not found:
                found.append([node for document in source(frame) for node in on_path(document, scan.path)])
            return found[0]

        return nodes

    def _streamed(self, scan: DataScan) -> Iterator[Any]:
        name = scan.source.arguments[0].value if scan.source.arguments else None  # type: ignore[attr-defined]  # a constant, by `introduce_scan`
        try:
            for document in self.runner.context.stream_collection(name):
                yield from on_path(document, scan.path)
        except XQueryError as error:
            raise located(error, scan.source) from None

    # --- aggregates and groups

    def _aggregate(self, operator: Aggregate, scope: Scope) -> Run:
        """The aggregate over all tuples below, as an expression."""
        tuples = self.of(operator.input, scope)
        value, finish = self._gathered(operator.expression, tuples.scope)
        rows = tuples.rows()

        def run(frame: Frame) -> Items:
            items: Items = []
            for _ in rows(frame):
                items += value(frame)
            return items if finish is None else finish(items)

        return run

    def _gathered(self, expression: Expression, scope: Scope) -> tuple[Run, Callable[[Items], Items] | None]:
        """The value of each tuple for an aggregate, and the function over all of them: numbers are kept, not nodes."""
        if not isinstance(expression, Call) or len(expression.arguments) != 1:
            raise PlanError(f"{expression} is no aggregate expression.")
        value = compile_expr(expression.arguments[0], scope).run
        if expression.name == "create_sequence":
            return value, None
        if expression.name == "count":
            return (lambda frame: [len(value(frame))]), lambda items: [sum(items)]
        function = self.runner.named(expression.name, 1, expression.place)
        return (lambda frame: atomise(value(frame))), lambda items: function([items])

    def _group(self, operator: GroupBy, tuples: Tuples) -> None:
        keys = [compile_expr(value, tuples.scope).run for _, value in operator.keys]
        gathered = [self._gathered(one.expression, tuples.scope) for one in operator.gathered]
        before = dict(tuples.bound)
        named = [(tuples.bind(variable), value) for (variable, _), value in zip(operator.keys, keys, strict=True)]
        fields = [Field(tuples.bind(one.variable), *how) for one, how in zip(operator.gathered, gathered, strict=True)]
        tuples.group(named, fields, operator.place)
        for variable in before:
            del tuples.bound[variable]

    # --- joins

    def _join(self, join: Join, scope: Scope) -> Tuples:
        """A hash table over the inner tuples for each key that the plan names; the condition decides."""
        inner, outer = self.of(join.inner, scope), self.of(join.outer, scope)
        both = replace(scope, variables={**inner.scope.variables, **outer.scope.variables})
        test = compile_expr(join.condition, both).truth()
        keys = [(k, compile_expr(k.inner, inner.scope).run, compile_expr(k.outer, outer.scope).run) for k in join.keys]
        inside, outside, places = inner.rows(), outer.rows(), inner.places

        def rows(frame: Frame) -> Iterator[None]:
            tables = [_Table(key) for key, _, _ in keys]
            held = []
            for number, _ in enumerate(inside(frame)):
                held.append(kept(frame, places))
                for table, (_, value, _) in zip(tables, keys, strict=True):
                    table.add(number, value(frame))
            for _ in outside(frame):
                numbers: Iterable[int] = range(len(held))
                for table, (_, _, value) in zip(tables, keys, strict=True):
                    numbers = table.narrowed(numbers, value(frame))
                for number in numbers:
                    restore(frame, places, held[number])
                    if test(frame):
                        yield

        return Tuples(both, rows, {**inner.bound, **outer.bound})


def on_path(document: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The nodes that a DATASCAN with this path gives for one document: the document itself, or subtrees cut out."""
    nodes = [document]
    for name in path:
        find = step("child", node_test(Constant(name)))
        nodes = [found for node in nodes for found in find(node)]
    for node in nodes:
        yield copy_into(new_tree(), node) if path else node


def run_once(plan: Operator) -> Iterator[DataScan]:
    """The scans that run for one tuple only, in every run of the plan."""
    if isinstance(plan, DataScan) and is_one_tuple(plan.input):
        yield plan
    for below in inputs(plan):
        nested = isinstance(plan, Subplan) and below is plan.nested
        if not nested or is_one_tuple(plan.input):  # type: ignore[attr-defined]  # a SUBPLAN has an input
            yield from run_once(below)


# --- tables of a join

Keys = set[Hashable] | None
"""The keys of a tuple; None: it may match any other, and only the condition can tell."""


class _Table:
    """Numbers of the inner tuples by one key."""

    def __init__(self, key: Equality) -> None:
        self.key = key
        self.found: dict[Hashable, set[int]] = {}
        self.unknown: set[int] = set()

    def add(self, number: int, items: Items) -> None:
        keys = _keys(self.key, items)
        if keys is None:
            self.unknown.add(number)
        for one in keys or ():
            self.found.setdefault(one, set()).add(number)

    def narrowed(self, numbers: Iterable[int], items: Items) -> Iterable[int]:
        """Those of the numbers whose tuples may match an outer tuple with these items, in order."""
        keys = _keys(self.key, items)
        if keys is None:
            return numbers
        hits = self.unknown.union(*(self.found.get(one, set()) for one in keys)) if keys else set()
        return sorted(hits) if type(numbers) is range else [number for number in numbers if number in hits]


def _keys(key: Equality, items: Items) -> Keys:
    """A value comparison of more than one item is an error, which the condition raises on comparison."""
    if len(items) > 1 and not key.existential:
        return None
    change = KEYS[key.kind]
    try:
        return {found for item in items if (found := change(item)) is not None}
    except XQueryError:
        return None
