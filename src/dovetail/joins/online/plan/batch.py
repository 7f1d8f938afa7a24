"""Online joins of batch DataFrames: every bucket in one task, rows arriving in the order they were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from dovetail.engine.metrics import Metrics
from dovetail.engine.packing import as_schema
from dovetail.joins.online.event_log import Event
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.running import Running
from dovetail.spark.arrow import Batches
from dovetail.spark.hosts.batch import Bucketed


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
