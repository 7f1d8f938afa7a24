"""Tasks of online joins: what they are told, and how one joins buckets of batch DataFrames, in the order of reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.metrics import Metrics
from dovetail.engine.packing import CHUNK_BYTES, as_schema
from dovetail.errors import DataError
from dovetail.joins.online.bucket_join import BucketJoin
from dovetail.joins.online.bucket_rule import BucketRule, MultiBucketRule
from dovetail.joins.online.event_log import Event
from dovetail.joins.online.lateness import Lateness
from dovetail.joins.online.request import Terms
from dovetail.joins.online.running import Running
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.batch import Bucketed
from dovetail.spark.hosts.exchange import Exchange
from dovetail.spark.task import MetricsSink, state_partitions

CHANGE_COLUMN = "_change_type"
"""What feeds of changes call the column that tells inserted rows from others; others cannot be joined."""


@dataclass(frozen=True, slots=True)
class OnlineTask:
    """One planned online join as its tasks see it.

    Without `buckets`, a stream has as many as its checkpoint has partitions. With `marked` the last column of each
    input says where it ends. `answers` are the columns that the join gives, `output` those that Spark shall see.
    """

    plan: str
    join: BucketJoin
    request: Terms
    buckets: int | None
    marked: bool
    answers: pa.Schema
    output: pa.Schema
    sink: MetricsSink
    lateness: Lateness | None = None

    calls_all: ClassVar[bool] = False
    chunk_bytes: ClassVar[int] = CHUNK_BYTES

    def spread(self) -> BucketRule | MultiBucketRule:
        """Which buckets rows belong to, the same in every micro-batch and after every restart."""
        return self.join.spread(self.buckets or state_partitions())

    def exchange(self) -> AbstractContextManager[Exchange]:
        """The buckets of rows; rows without a key are in none."""
        return nullcontext(self.spread())

    def take_rows(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the types of the join; `DataError` if there are some that change or delete others."""
        name = self.join.names[side]
        rows = as_schema(batch, self.join.schemas[name])
        _check_appended(name, rows)
        return rows


def _check_appended(name: str, rows: pa.RecordBatch) -> None:
    """What was given for rows that change or are deleted later cannot be taken back."""
    if CHANGE_COLUMN not in rows.schema.names:
        return
    kinds = set(pc.unique(rows.column(CHANGE_COLUMN)).to_pylist()) - {"insert", None}
    if kinds:
        raise DataError(
            f"{name} has rows with {CHANGE_COLUMN} {sorted(map(str, kinds))}; online joins take rows that are only "
            f"added: filter the input by {CHANGE_COLUMN} = 'insert', or drop that column to join each row as a new one."
        )


def join_buckets(task: OnlineTask, packets: Bucketed) -> Batches:
    """The answers of a partition: the rows of each of its buckets, one bucket after the other."""
    running: Running | None = None
    current, dropped = -1, [0] * len(task.join.names)
    try:
        for bucket, packet in packets:
            dropped[packet.side] += packet.dropped
            if packet.rows is None:
                continue
            if running is None or bucket != current:
                yield from _finished(task, running)
                running, current = Running(task.join), bucket
            yield from _answers(task, running.apply(Event("push", packet.side, rows=packet.rows)))
        yield from _finished(task, running)
        task.sink.task(counts_by_side("null_keys", task.join.names, dropped))
    finally:
        if running is not None:
            running.close()


def counts_by_side(name: str, sides: Sequence[str], counts: Sequence[int]) -> Metrics:
    """Rows of each side under one name."""
    metrics = Metrics()
    for side, n in zip(sides, counts, strict=True):
        metrics.add(name, int(n), side)
    return metrics


def _finished(task: OnlineTask, running: Running | None) -> Batches:
    if running is None:
        return
    with closing(running.operator) as operator:
        yield from _answers(task, running.apply(Event("finish")))
        peak = operator.budget.peak
    operator.metrics.peak("memory_peak", peak)
    rows = sum(operator.metrics.value("rows", name) for name in task.join.names)
    operator.metrics.peak("bucket_rows", rows, unit="rows")
    task.sink.task(operator.metrics)


def _answers(task: OnlineTask, batches: Iterator[pa.RecordBatch]) -> Batches:
    for batch in batches:
        if batch.num_rows:
            yield as_schema(batch, task.output)
