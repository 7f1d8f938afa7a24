"""The operators of a plan inside a task: scans are fed from outside, tuples of other tasks are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dovetail.xml.algebra.expressions import Constant, Variable
from dovetail.xml.algebra.functions import node_test
from dovetail.xml.algebra.operators import DataScan, DistributeResult, Operator, Subplan, inputs
from dovetail.xml.algebra.run import Runner
from dovetail.xml.algebra.run_expressions import Compiler, Tuple
from dovetail.xml.evaluate.axes import step
from dovetail.xml.execute.parts import Given
from dovetail.xml.rules.matching import is_one_tuple
from dovetail.xml.syntax.stack import deep_stack
from dovetail.xml.xdm.construct import copy_into
from dovetail.xml.xdm.nodes import new_tree

Feed = Callable[[], Iterable[Any]]


class TaskRunner(Runner):
    """Runs a plan with the nodes of its scan from `feed`, and the tuples of its parts from `given`."""

    def __init__(self, compiler: Compiler, feed: Feed | None = None, given: Sequence[Iterable[Tuple]] = ()) -> None:
        super().__init__(compiler)
        self.feed, self._given = feed, given
        self._once: set[int] = set()
        self._runs[Given] = self._tuples_given

    def items(self, plan: DistributeResult, columns: tuple[Variable, ...] = ()) -> Iterator[Any]:
        """The items of a whole plan, each found when it is asked for; or the values of `columns`, tuple by tuple."""
        self._once = {id(scan) for scan in run_once(plan)}
        found = self._rows(plan, columns) if columns else self._items(plan)
        while True:
            with deep_stack():
                try:
                    item = next(found)
                except StopIteration:
                    return
            yield item

    def _items(self, plan: DistributeResult) -> Iterator[Any]:
        for given in self.tuples(plan.input, {}):
            yield from given[plan.variable]

    def _rows(self, plan: DistributeResult, columns: tuple[Variable, ...]) -> Iterator[Any]:
        return ([given[one] for one in columns] for given in self.tuples(plan.input, {}))

    def _tuples_given(self, operator: Given, outer: Tuple) -> Iterator[Tuple]:
        return (outer | given for given in self._given[operator.number])

    def _scan(self, operator: DataScan, outer: Tuple) -> Iterator[Tuple]:
        if self.feed is None and id(operator) not in self._once:
            yield from super()._scan(operator, outer)
            return
        for given in self.tuples(operator.input, outer):
            for node in self._streamed(operator) if self.feed is None else self.feed():
                yield given | {operator.variable: [node]}

    def _streamed(self, operator: DataScan) -> Iterator[Any]:
        """The nodes of a scan that runs once: no document is kept."""
        name = operator.source.arguments[0].value if operator.source.arguments else None  # type: ignore[attr-defined]  # a constant, by `introduce_scan`
        for document in self.compiler.environment.stream_collection(name):
            yield from on_path(document, operator.path)


def on_path(document: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The nodes that a DATASCAN with this path gives for one document: the document itself, or subtrees cut out."""
    nodes = [document]
    for name in path:
        find = step("child", node_test(Constant(name)))
        nodes = [found for node in nodes for found in find(node)]
    for node in nodes:
        yield copy_into(new_tree(), node) if path else node


def run_once(plan: Operator) -> Iterator[DataScan]:
    """The scans that run for one tuple only, however the plan goes."""
    if isinstance(plan, DataScan) and is_one_tuple(plan.input):
        yield plan
    for below in inputs(plan):
        nested = isinstance(plan, Subplan) and below is plan.nested
        if not nested or is_one_tuple(plan.input):  # type: ignore[attr-defined]  # a SUBPLAN has an input
            yield from run_once(below)
