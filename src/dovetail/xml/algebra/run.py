"""A plan executed as it says, tuple by tuple, on one machine.

This is the definition of what a plan means, not the way queries are run: any plan, before or after any rule, must give
the same items here. What rules promise is taken at its word: a scan with a path cuts its subtrees out of their
documents, an aggregate of two steps is computed over parts, a join with keys looks only at tuples with equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Call, Constant, Expression
from dovetail.xml.algebra.functions import node_test
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    DistributeResult,
    EmptyTupleSource,
    Exchange,
    GroupBy,
    Join,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    Subplan,
    Unnest,
)
from dovetail.xml.algebra.run_aggregates import aggregated
from dovetail.xml.algebra.run_expressions import Compiler, Items, Tuple
from dovetail.xml.algebra.run_join import joined
from dovetail.xml.evaluate.axes import step
from dovetail.xml.evaluate.blocking import group_key, order_value, sorted_tuples
from dovetail.xml.evaluate.context import Context, Environment
from dovetail.xml.evaluate.static import Static
from dovetail.xml.syntax import tree
from dovetail.xml.xdm.construct import copy_into
from dovetail.xml.xdm.nodes import new_tree


def run(plan: Operator, module: tree.Module, context: Context | None = None) -> Iterator[Any]:
    """The items of a plan's result. `module` is the query it was made from, whose functions the plan may call."""
    if not isinstance(plan, DistributeResult):
        raise PlanError("a plan that is run must end in DISTRIBUTE-RESULT.")
    runner = Runner(Compiler(Static(module), Environment(context or Context())))
    for given in runner.tuples(plan.input, {}):
        yield from given[plan.variable]


class Runner:
    """Gives the tuples of operators; `outer` is the tuple for which a nested plan runs."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self._scans: dict[int, Items] = {}
        self._runs: dict[type[Operator], Callable[[Any, Tuple], Iterator[Tuple]]] = {
            EmptyTupleSource: lambda operator, outer: iter([{}]),
            NestedTupleSource: lambda operator, outer: iter([outer]),
            DataScan: self._scan,
            Assign: self._assign,
            Unnest: self._unnest,
            Aggregate: self._aggregate,
            Subplan: self._subplan,
            Select: self._select,
            Join: self._join,
            Order: self._order,
            GroupBy: self._group,
            Exchange: lambda operator, outer: self.tuples(operator.input, outer),
        }

    def tuples(self, plan: Operator, outer: Tuple) -> Iterator[Tuple]:
        """The tuples of a plan, in order."""
        return self._runs[type(plan)](plan, outer)

    def _assign(self, operator: Assign, outer: Tuple) -> Iterator[Tuple]:
        value = self.compiler.closure(operator.expression)
        for given in self.tuples(operator.input, outer):
            yield given | {operator.variable: value(given)}

    def _select(self, operator: Select, outer: Tuple) -> Iterator[Tuple]:
        test = self.compiler.test(operator.condition)
        return (given for given in self.tuples(operator.input, outer) if test(given))

    def _unnest(self, operator: Unnest, outer: Tuple) -> Iterator[Tuple]:
        value = self.compiler.closure(operator.expression)
        for given in self.tuples(operator.input, outer):
            for position, item in enumerate(value(given), 1):
                new = given | {operator.variable: [item]}
                yield new if operator.position is None else new | {operator.position: [position]}

    def _scan(self, operator: DataScan, outer: Tuple) -> Iterator[Tuple]:
        for given in self.tuples(operator.input, outer):
            for node in self._scanned(operator):
                yield given | {operator.variable: [node]}

    def _scanned(self, operator: DataScan) -> Items:
        """The nodes of a scan: the same ones each time it is run."""
        if id(operator) not in self._scans:
            nodes = self.compiler.closure(operator.source)({})
            for name in operator.path:
                find = step("child", node_test(Constant(name)))
                nodes = [found for node in nodes for found in find(node)]
            self._scans[id(operator)] = [copy_into(new_tree(), node) for node in nodes] if operator.path else nodes
        return self._scans[id(operator)]

    def _aggregate(self, operator: Aggregate, outer: Tuple) -> Iterator[Tuple]:
        found = list(self.tuples(operator.input, outer))
        yield {operator.variable: self._gathered(operator.expression, operator.steps, found)}

    def _gathered(self, expression: Expression, steps: Any, found: list[Tuple]) -> Items:
        if not isinstance(expression, Call) or len(expression.arguments) != 1:
            raise PlanError(f"{expression} is no aggregate expression.")
        value = self.compiler.closure(expression.arguments[0])
        return aggregated(self.compiler, expression, steps, [value(given) for given in found])

    def _subplan(self, operator: Subplan, outer: Tuple) -> Iterator[Tuple]:
        for given in self.tuples(operator.input, outer):
            (answer,) = self.tuples(operator.nested, given)
            yield given | answer

    def _join(self, operator: Join, outer: Tuple) -> Iterator[Tuple]:
        inside = list(self.tuples(operator.inner, outer))
        return joined(self.compiler, operator, inside, self.tuples(operator.outer, outer))

    def _order(self, operator: Order, outer: Tuple) -> Iterator[Tuple]:
        values = [self.compiler.closure(key.expression) for key in operator.keys]
        keys = tuple(tree.OrderKey(tree.ContextItem(), key.descending, key.empty_greatest) for key in operator.keys)
        found = [([order_value(value(one)) for value in values], one) for one in self.tuples(operator.input, outer)]
        return iter(sorted_tuples(keys, found))

    def _group(self, operator: GroupBy, outer: Tuple) -> Iterator[Tuple]:
        """Fields of the tuple around a nested plan stay visible; those of the grouped tuples do not."""
        keys = [(variable, self.compiler.closure(value)) for variable, value in operator.keys]
        groups: dict[Any, tuple[Tuple, list[Tuple]]] = {}
        for given in self.tuples(operator.input, outer):
            named = {variable: group_key(value(given)) for variable, value in keys}
            same = tuple(key for key, _ in named.values())
            head = {variable: value for variable, (_, value) in named.items()}
            groups.setdefault(same, (head, []))[1].append(given)
        for head, found in groups.values():
            yield (
                outer
                | head
                | {field.variable: self._gathered(field.expression, field.steps, found) for field in operator.gathered}
            )
