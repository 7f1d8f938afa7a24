"""The one task that runs what cannot be divided: the whole plan, or the rest of it over the tuples of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.operators import Aggregate, DistributeResult
from dovetail.xml.execute.aggregate import combined
from dovetail.xml.execute.job import Job
from dovetail.xml.execute.runner import RemoteTuples
from dovetail.xml.execute.scan_task import STATE
from dovetail.xml.execute.wire import Form, decoded

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
