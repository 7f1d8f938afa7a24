"""Aggregates in two steps, and the one task that combines them or runs what cannot be divided.

It runs the whole plan, or the rest of it over the tuples of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.operators import Aggregate, DistributeResult
from dovetail.xml.execute.columns import Texts
from dovetail.xml.execute.job import Job
from dovetail.xml.execute.runner import RemoteTuples, Runner
from dovetail.xml.execute.wire import STATE, Form, decoded
from dovetail.xml.kernels.plain import plain_integers
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.values import atomise

Items = list[Any]
_EXACT = 2**53


class Local:
    """The aggregate of the items seen so far, one value for each function of the local step."""

    def __init__(self, runner: Runner, aggregate: Aggregate) -> None:
        assert aggregate.steps is not None  # noqa: S101  (only such aggregates are cut)
        self._functions = [(name, _function(runner, name, aggregate)) for name in aggregate.steps.local]
        self._names = set(aggregate.steps.local)
        self._state: list[Items] = [[] for _ in self._functions]
        self._doubles: dict[str, float] = {}
        self._number = _function(runner, "sum", aggregate)
        self._counts = all(name == "count" for name, _ in self._functions)
        self.seen = 0

    def add(self, items: Items) -> None:
        """Take further items, in order."""
        if not items:
            return
        self.seen += len(items)
        if not self._counts:
            items = atomise(items)
        for place, (name, function) in enumerate(self._functions):
            if name == "count":
                self._state[place] = [self.seen]
            elif name == "sum":
                self._state[place] = function([*self._state[place], *map(self._summand, items)])
            else:
                self._state[place] = function([*self._state[place], *_different(items)])

    def add_texts(self, texts: Texts) -> bool:
        """Take one untyped text a row, or none, if all of them are whole numbers; gives whether it did.

        Sums of such numbers are exact in any order, as long as they stay below 2^53.
        """
        if self._counts:
            return False
        values, known = plain_integers(*texts.buffers())
        if not np.all(known | ~texts.present):
            return False
        values = values[texts.present]
        if len(values) == 0:
            return True
        if "sum" in self._names and np.abs(values).sum() >= _EXACT:
            return False
        given = {"sum": float(values.sum()), "max": float(values.max()), "min": float(values.min())}
        self.seen += len(values)
        for place, (name, function) in enumerate(self._functions):
            self._state[place] = [self.seen] if name == "count" else function([*self._state[place], given[name]])
        return True

    def _summand(self, item: Any) -> Any:
        if type(item) is not UntypedAtomic:
            return item
        if item not in self._doubles:
            if len(self._doubles) > 1 << 17:
                self._doubles.clear()
            (self._doubles[item],) = self._number([item])
        return self._doubles[item]

    def state(self) -> list[Items]:
        """What the combining step needs."""
        return self._state


def _different(items: Items) -> Items:
    """Untyped texts once each: the largest and the smallest of equal ones are that text."""
    return list(dict.fromkeys(items)) if {type(item) for item in items} == {UntypedAtomic} else items


def combined(runner: Runner, aggregate: Aggregate, states: list[list[Items]]) -> Items:
    """The aggregate over all partitions; those without items send nothing."""
    name, steps = aggregate.expression.name, aggregate.steps  # type: ignore[attr-defined]  # `aggregate_in_two_steps` asks for a call
    assert steps is not None  # noqa: S101  (as above)
    if not states:
        return _function(runner, name, aggregate)([])
    local = [[item for state in states for item in state[place]] for place in range(len(steps.local))]
    if steps.combine != "divide":
        return _function(runner, steps.combine, aggregate)(local[0])
    return runner.named("divide", 2)([_function(runner, "sum", aggregate)(one) for one in local])


def _function(runner: Runner, name: str, aggregate: Aggregate) -> Callable[[Items], Items]:
    function = runner.named(name, 1, aggregate.expression.place)  # type: ignore[attr-defined]  # a call, by `aggregate_in_two_steps`
    return lambda given: function([given])


CUT, COUNT, TOTAL = "cut", "n", "s"
MARKER = -1
"""Stands for the number of a part in a row that belongs to none."""


@dataclass(frozen=True, slots=True)
class Received:
    """What the rows of one part hold: variables in their forms, or the states of an aggregate.

    With `doubles` Spark computed the aggregate: the row holds the count of doubles, and their sum, largest or smallest.
    """

    forms: tuple[tuple[Variable, Form], ...] = ()
    aggregate: Aggregate | None = None
    doubles: bool = False

    def state(self, cells: dict[str, list[Any]], row: int) -> list[list[Any]] | None:
        """The local step of the aggregate that a row holds; None if it saw nothing."""
        if not self.doubles:
            return decoded("items", cells[STATE][row])
        total, count = [cells[TOTAL][row]], [cells[COUNT][row]]
        assert self.aggregate is not None  # noqa: S101  (asked by the caller)
        assert self.aggregate.steps is not None  # noqa: S101  (only such aggregates are cut)
        return [total, count][: len(self.aggregate.steps.local)] if count[0] else None


def whole_items(
    job: Job, plan: DistributeResult, metrics: Metrics, columns: tuple[Variable, ...] = ()
) -> Iterator[Any]:
    """The items of a plan that one task runs, or the values of `columns` for each tuple; documents come one by one."""
    return job.runner(metrics).items(plan, columns)


def rest_items(
    job: Job,
    rest: DistributeResult,
    received: tuple[Received, ...],
    batches: Iterator[pa.RecordBatch],
    columns: tuple[Variable, ...] = (),
) -> Iterator[Any]:
    """The items (or the values of `columns`) of the rest of a plan; rows come sorted by part and order.

    All rows are held at once. More of them than the job's memory is `BudgetExceeded`.
    """
    runner, held = job.runner(Metrics()), MemoryBudget(job.memory, "last task").reserve("rows of other tasks")
    tuples: list[list[list[Any]]] = [[] for _ in received]
    states: list[list[Any]] = [[] for _ in received]
    for batch in batches:
        _hold(held, batch)
        cells = {name: batch[name].to_pylist() for name in batch.schema.names}
        for row, number in enumerate(cells[CUT]):
            if number == MARKER:
                continue
            one = received[number]
            if one.aggregate is not None:
                states[number] += [state for state in [one.state(cells, row)] if state is not None]
            else:
                tuples[number].append([decoded(form, cells[f"v{v.number}"][row]) for v, form in one.forms])
    given = []
    for one, rows, seen in zip(received, tuples, states, strict=True):
        if one.aggregate is None:
            given.append(RemoteTuples(tuple(variable for variable, _ in one.forms), rows))
        else:
            given.append(RemoteTuples((one.aggregate.variable,), [[combined(runner, one.aggregate, seen)]]))
    return runner.items(rest, columns, given)


def _hold(held: Reservation, batch: pa.RecordBatch) -> None:
    if not held.try_grow(nbytes(batch)):
        raise BudgetExceeded(
            f"the last task of the query already holds {format_bytes(held.used)} of rows that other tasks sent, and "
            f"memory={format_bytes(held.budget.limit)} is the limit; give more memory, or select, aggregate or return "
            "less before what one task must do: order by, group by, conditions between collections without an equality."
        )
