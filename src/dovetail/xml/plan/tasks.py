"""What runs inside Spark's tasks: module-level functions closed over values, batches in and batches out."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from dovetail.engine.metrics import Metrics
from dovetail.spark.metrics import MetricsSink
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.operators import DistributeResult
from dovetail.xml.execute.batching import batched
from dovetail.xml.execute.files import File
from dovetail.xml.execute.job import Job
from dovetail.xml.execute.joining import JoinedRows, JoinWork
from dovetail.xml.execute.last_task import Received, rest_items, whole_items
from dovetail.xml.execute.result import Row
from dovetail.xml.execute.scan_task import scanned, schema_of
from dovetail.xml.execute.scan_work import ScanWork
from dovetail.xml.execute.wire import Form
from dovetail.xml.syntax.stack import deep_stack

Batches = Iterator[pa.RecordBatch]


def packed_apart(packed: Iterable[tuple[File, ...]]) -> tuple[bytes, ...]:
    """The files of each partition by themselves and small: a task gets all of it, and unpacks its own part only."""
    return tuple(zlib.compress(pickle.dumps([(file.number, file.uri, file.size) for file in run])) for run in packed)


def scan_files(job: Job, work: ScanWork, packed: tuple[bytes, ...], sink: MetricsSink, batches: Batches) -> Batches:
    """The rows of the files of the partitions whose numbers come in; `packed` is what `packed_apart` gives."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            metrics = Metrics()
            files = [File(*one) for one in pickle.loads(zlib.decompress(packed[number]))]  # noqa: S301  (by the driver)
            with deep_stack():
                yield from _all_but_last(scanned(job, work, files, metrics), schema_of(work), sink, metrics)


def _all_but_last(rows: Batches, schema: pa.Schema, sink: MetricsSink, metrics: Metrics) -> Batches:
    """Every batch; what was measured is reported before the last one, as `MetricsSink.task` asks."""
    held = pa.RecordBatch.from_pylist([], schema=schema)
    for batch in rows:
        yield held
        held = batch
    sink.task(metrics)
    yield held


def run_whole(job: Job, plan: DistributeResult, row: Row, sink: MetricsSink, batches: Batches) -> Batches:
    """The whole query in this task."""
    for _ in batches:
        metrics = Metrics()
        found = batched(map(row.cells, whole_items(job, plan, metrics, row.variables)), row.schema)
        yield from _all_but_last(found, row.schema, sink, metrics)


def run_rest(job: Job, rest: DistributeResult, received: tuple[Received, ...], row: Row, batches: Batches) -> Batches:
    """What is left of the query when its parts have been computed."""
    return batched(map(row.cells, rest_items(job, rest, received, batches, row.variables)), row.schema)


def run_joined(
    job: Job,
    work: JoinWork,
    forms: dict[Variable, Form],
    orders: tuple[str, ...],
    schema: pa.Schema,
    batches: Batches,
) -> Batches:
    """The chain above a join, on the rows that Spark joined."""
    rows = JoinedRows(job, work, forms, orders)
    give: Callable[[Batches, pa.Schema], Batches] = rows.rows
    if work.wanted.items is not None:
        give = rows.items
    elif work.wanted.aggregate is not None:
        give = rows.state
    with deep_stack():
        yield from give(batches, schema)


def retype(row: Row, forms: dict[Variable, Form], batches: Batches) -> Batches:
    """Values of variables that tasks sent as typed columns."""
    for batch in batches:
        yield row.typed(batch, forms)
