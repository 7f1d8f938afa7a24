"""Tasks of a query: functions from batches to batches, closed over values. Nothing here knows Spark.

A scan task reads files. A task above a join runs the chain on the rows that Spark joined. The last task runs the whole
plan, or the rest of it over the rows of its parts.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.operators import DistributeResult
from dovetail.xml.evaluate.plans import RemoteTuples
from dovetail.xml.execute.job import File, Job
from dovetail.xml.execute.parts import JoinWork
from dovetail.xml.execute.result import Row
from dovetail.xml.execute.rows import Fields, Sent, written
from dovetail.xml.execute.scan_task import scanned
from dovetail.xml.execute.scan_work import ScanWork
from dovetail.xml.execute.wire import Form, Values, batched, decoded
from dovetail.xml.syntax.tree import deep_stack

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ScanTasks:
    """The tasks of a scan. The files of each are packed by themselves: a task gets all of it, and unpacks its own."""

    job: Job
    work: ScanWork
    packed: tuple[bytes, ...]


def packed_apart(packed: Iterable[tuple[File, ...]]) -> tuple[bytes, ...]:
    """The files of each partition by themselves and small."""
    return tuple(zlib.compress(pickle.dumps([(file.number, file.uri, file.size) for file in run])) for run in packed)


def scan_files(tasks: ScanTasks, batches: Batches, metrics: Metrics) -> Batches:
    """The rows of the files of the partitions whose numbers come in."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            files = pickle.loads(zlib.decompress(tasks.packed[number]))  # noqa: S301  (by the driver)
            with deep_stack():
                yield from scanned(tasks.job, tasks.work, [File(*one) for one in files], metrics)


_ORDER = Variable(1 << 62)
"""Stands for the order numbers of a row among the variables of its tuple; no plan counts this far."""


@dataclass(frozen=True, slots=True)
class JoinTasks:
    """The tasks above a join: the chain, and how its rows come in and go out."""

    job: Job
    work: JoinWork
    forms: tuple[tuple[Variable, Form], ...]
    orders: tuple[str, ...]
    schema: pa.Schema


def run_joined(tasks: JoinTasks, batches: Batches) -> Batches:
    """The chain above a join, on the rows that Spark joined. Fields get one more order number among equal ones."""
    work, runner = tasks.work, tasks.job.runner(Metrics())
    with deep_stack():
        given = RemoteTuples((_ORDER, *(variable for variable, _ in tasks.forms)), _joined(tasks, batches))
        found = runner.prepared(work.plan, (_ORDER, *work.wanted.expressions), given=[given])()
        tuples: Iterator[Any] = ((order, values) for order, *values in found)
        forms: list[Form] = []
        if isinstance(work.wanted, Fields):
            tuples, forms = _numbered(tuples), ["items" for _ in work.wanted.variables]
        yield from written(work.wanted, forms, runner, tuples, tasks.schema)


def _joined(tasks: JoinTasks, batches: Batches) -> Iterator[list[Any]]:
    for batch in batches:
        cells = [batch[f"v{variable.number}"].to_pylist() for variable, _ in tasks.forms]
        orders = zip(*(batch[name].to_pylist() for name in tasks.orders), strict=True)
        for order, *row in zip(orders, *cells, strict=True):
            yield [order, *(decoded(form, cell) for (_, form), cell in zip(tasks.forms, row, strict=True))]


def _numbered(tuples: Iterable[tuple[Any, list[Values]]]) -> Iterator[tuple[Any, list[Values]]]:
    last, number = None, 0
    for order, values in tuples:
        last, number = order, number + 1 if order == last else 0
        yield (*order, number), values


@dataclass(frozen=True, slots=True)
class WholeTask:
    """The only task of a query that is not divided."""

    job: Job
    plan: DistributeResult
    row: Row


def run_whole(task: WholeTask, batches: Batches, metrics: Metrics) -> Batches:
    """The whole query in this task; documents are read one by one."""
    for _ in batches:
        items = task.job.runner(metrics).items(task.plan, task.row.variables)
        yield from batched(map(task.row.cells, items), task.row.schema)


@dataclass(frozen=True, slots=True)
class LastTask:
    """The task that runs the rest of a plan over the rows that its parts sent."""

    job: Job
    rest: DistributeResult
    sent: tuple[Sent, ...]
    row: Row


CUT = "cut"
MARKER = -1
"""Stands for the number of a part in a row that belongs to none."""


def run_rest(task: LastTask, batches: Batches) -> Batches:
    """The answer of the rest of a plan; rows come sorted by part and order.

    All rows are held at once. More of them than the job's memory is `BudgetExceeded`.
    """
    runner = task.job.runner(Metrics())
    held = MemoryBudget(task.job.memory, "last task").reserve("rows of other tasks")
    found: list[list[Any]] = [[] for _ in task.sent]
    for batch in batches:
        _hold(held, batch)
        cells = {name: batch[name].to_pylist() for name in batch.schema.names}
        for row, number in enumerate(cells[CUT]):
            if number != MARKER:
                found[number].append(task.sent[number].read(cells, row))
    given = [sent.given(runner, rows) for sent, rows in zip(task.sent, found, strict=True)]
    items = runner.items(task.rest, task.row.variables, given)
    yield from batched(map(task.row.cells, items), task.row.schema)


def _hold(held: Reservation, batch: pa.RecordBatch) -> None:
    if not held.try_grow(nbytes(batch)):
        raise BudgetExceeded(
            f"the last task of the query already holds {format_bytes(held.used)} of rows that other tasks sent, and "
            f"memory={format_bytes(held.budget.limit)} is the limit; give more memory, or select, aggregate or return "
            "less before what one task must do: order by, group by, conditions between collections without an equality."
        )


def retype(row: Row, forms: dict[Variable, Form], batches: Batches) -> Batches:
    """Values of variables that tasks sent as typed columns."""
    for batch in batches:
        yield row.typed(batch, forms)
