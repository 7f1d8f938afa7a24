"""Sent host: rows are answered from an index that is built once and sent to every task.

The index travels as a broadcast variable, over Spark Connect with the plan. A Python worker keeps the last index that
it opened: it answers many tasks of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.spark.frames import Batches, is_connect
from dovetail.spark.hosts.batch import task_frame
from dovetail.spark.hosts.pool import Closable, Pool
from dovetail.spark.task import MetricsSink


class OpenIndex(Closable, Protocol):
    """An index in a task."""

    @property
    def budget(self) -> MemoryBudget:
        """The budget of the task, to which it is charged."""
        ...

    @property
    def n_rows(self) -> int:
        """The number of right rows in it."""
        ...

    def answers(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The answers of left rows."""
        ...


class SentIndex(Protocol):
    """An index on its way; can be pickled."""

    def open(self) -> OpenIndex:
        """The index in a task."""
        ...


def answered(rows: DataFrame, index: SentIndex, sink: MetricsSink, output: Iterable[T.StructField]) -> DataFrame:
    """The answers of the rows, which stay where they are, as a lazy DataFrame with these columns."""
    spark = rows.sparkSession
    sent = index if is_connect(spark) else spark.sparkContext.broadcast(index)
    return task_frame(rows, _answered, _Sent(sent, uuid4().hex, is_connect(spark)), sink, output)


@dataclass(frozen=True, slots=True)
class _Sent:
    content: Any  # a broadcast variable, or the index itself
    name: str
    is_whole: bool

    def open(self) -> OpenIndex:
        index: SentIndex = self.content if self.is_whole else self.content.value
        return index.open()


_OPEN: Pool[OpenIndex] = Pool(most=1)


def _answered(task: _Sent, batches: Batches, metrics: Metrics) -> Batches:
    index: OpenIndex | None = None
    try:
        for batch in batches:
            if index is None:
                index = _OPEN.take(task.name) or task.open()
                metrics.add("placed", index.n_rows, side="right", per_task=True)
                metrics.peak("memory", index.budget.peak)
            metrics.add("placed", batch.num_rows, side="left", per_task=True)
            yield from index.answers(batch)
    finally:
        if index is not None:
            _OPEN.keep(task.name, index)
