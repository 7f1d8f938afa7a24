"""One task of an as-of join: batches with the rows of both sides in, answers out, inside the budget of the task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import nbytes
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.joins.asof.spec import AsofJoin

SIDE = "__dt_side"
LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class AsofTask:
    """What a task needs to know: the join, the columns of each side by their names in the batches, and the budget.

    Columns of both sides that are of one type share a column of the batches.
    """

    spec: AsofJoin
    left: dict[str, str]
    right: dict[str, str]
    memory: int


def join_task(task: AsofTask, batches: Iterable[pa.RecordBatch], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The answers of one partition. Spark's batches are held beside the operator, which has the rest of the budget."""
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    budget = MemoryBudget(task.memory, "as-of join")
    room = min(2 * nbytes(first), task.memory // 4)
    delivered = budget.reserve("delivered batch")
    # Spark announces some columns as never null; the other side's rows have nulls there.
    schemas = {
        side: pa.schema(
            [first.schema.field(shared).with_name(name).with_nullable(True) for name, shared in own.items()]
        )
        for side, own in (("left", task.left), ("right", task.right))
    }
    operator = task.spec.open(budget.child("operator", task.memory - room), schemas)
    with operator:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            size = nbytes(batch)
            metrics.peak("delivered_batch", size)
            delivered.resize(min(size, room))
            for side, rows in _by_side(task, batch, schemas):
                metrics.add("placed", rows.num_rows, side=side, per_task=True)
                yield from operator.push(side, rows)
            delivered.resize(0)
            batch = next(batches, None)
        yield from operator.finish()
        metrics.include(operator.metrics)
        metrics.peak("memory", budget.peak)


def _by_side(
    task: AsofTask, batch: pa.RecordBatch, schemas: dict[str, pa.Schema]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each side, with its columns only; most batches are of one side and are not copied."""
    sides = np.asarray(batch[SIDE])
    for side, number, own in (("left", LEFT, task.left), ("right", RIGHT, task.right)):
        mine = sides == number
        if mine.any():
            rows = pa.RecordBatch.from_arrays([batch[shared] for shared in own.values()], schema=schemas[side])
            yield side, rows if mine.all() else rows.filter(pa.array(mine))
