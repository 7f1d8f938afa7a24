"""Metrics reach the driver from batch queries and from streams, and no partition counts twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.engine.metrics import Metrics
from dovetail.spark.task import MetricsSink, _Ledger, _Unit

Batches = Iterable[pa.RecordBatch]


def _counting(sink: MetricsSink, batches: Batches) -> Iterator[pa.RecordBatch]:
    metrics = Metrics()
    for batch in batches:
        metrics.add("rows_seen", batch.num_rows, side="left")
        metrics.peak("largest_batch", batch.nbytes)
        yield batch
    sink.task(metrics)


def _counted(frame: DataFrame, sink: MetricsSink) -> DataFrame:
    return frame.mapInArrow(partial(_counting, sink), frame.schema)


@pytest.mark.slow
def test_all_tasks_of_a_query_add_up_on_the_driver(spark: SparkSession) -> None:
    sink = MetricsSink(spark)
    assert sink.collect().as_dict() == {}
    frame = _counted(spark.range(0, 1000, 1, 4), sink)
    assert frame.count() == 1000
    metrics = sink.collect()
    assert metrics.value("rows_seen", "left") == 1000
    assert metrics.tasks == 4
    assert metrics.value("largest_batch") >= 250 * 8
    assert sink.batches() == {}


def test_each_execution_of_one_frame_is_counted_apart(spark: SparkSession) -> None:
    sink = MetricsSink(spark)
    frame = _counted(spark.range(0, 300, 1, 3), sink)
    frame.count()
    frame.count()
    assert sink.collect().value("rows_seen") == 300


def test_a_sort_samples_its_input_first_and_that_run_is_not_counted_twice(spark: SparkSession) -> None:
    sink = MetricsSink(spark)
    runs = spark.sparkContext.accumulator(0)

    def counting(batches: Batches) -> Iterator[pa.RecordBatch]:
        runs.add(1)
        yield from _counting(sink, batches)

    source = spark.range(0, 300, 1, 3)
    rows = source.mapInArrow(counting, source.schema).repartitionByRange(2, "id").collect()
    assert len(rows) == 300
    assert runs.value == 6  # what a plain accumulator would have added up
    assert sink.collect().value("rows_seen") == 300


def test_a_recomputed_stage_replaces_its_own_reports(spark: SparkSession) -> None:
    ledger = _Ledger(keep=10)
    unit = _Unit("", 7)
    for attempt, rows in [(1, 10), (1, 5), (3, 15), (2, 99)]:
        ledger.record(unit, 0, attempt, _rows(rows))
    ledger.record(unit, 1, 4, _rows(1))
    assert ledger.total(unit).value("rows_seen") == 16


def test_a_failed_attempt_leaves_nothing(tmp_path: Path, spark: SparkSession) -> None:
    sink = MetricsSink(spark)

    def failing_once(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from _counting(sink, batches)
        marker = tmp_path / "failed"
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the first attempt fails after it has reported")

    frame = spark.range(0, 100, 1, 1).mapInArrow(failing_once, "id long")
    with pytest.raises(Exception, match="the first attempt fails"):
        frame.count()  # a local master does not retry
    assert sink.collect().as_dict() == {}
    assert frame.count() == 100
    assert sink.collect().value("rows_seen") == 100


def test_several_reports_of_one_task_add_up(spark: SparkSession) -> None:
    sink = MetricsSink(spark)

    def per_group(group: pa.Table) -> pa.Table:
        metrics = Metrics()
        metrics.add("groups")
        sink.task(metrics)
        return group

    frame = spark.range(0, 100, 1, 2).selectExpr("id % 10 AS id").groupBy("id").applyInArrow(per_group, "id long")
    assert frame.count() == 100
    assert sink.collect().value("groups") == 10


def test_two_sinks_do_not_mix(spark: SparkSession) -> None:
    inner, outer = MetricsSink(spark), MetricsSink(spark)
    assert _counted(_counted(spark.range(50), inner).filter("id < 20"), outer).count() == 20
    assert inner.collect().value("rows_seen") == 50
    assert outer.collect().value("rows_seen") == 20


def test_what_a_task_reported_cannot_change_afterwards() -> None:
    ledger, metrics = _Ledger(keep=10), _rows(3)
    ledger.record(_Unit("", 1), 0, 1, metrics)
    metrics.add("rows_seen", 100)
    assert ledger.total(_Unit("", 1)).value("rows_seen") == 3


def test_old_batches_are_summed_and_old_executions_dropped() -> None:
    ledger = _Ledger(keep=3)
    for number in range(10):
        ledger.record(_Unit("stream", number), 0, number, _rows(number))
        ledger.record(_Unit("", number), 0, number, _rows(1))
    assert len(ledger.units) == 3
    kept = sum(ledger.total(unit).value("rows_seen") for unit in ledger.units if unit.stream)
    assert kept + ledger.older["stream"].value("rows_seen") == sum(range(10))


def _rows(n: int) -> Metrics:
    metrics = Metrics()
    metrics.add("rows_seen", n)
    return metrics


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Callable[[int, int], DataFrame]:
    """Writes rows as one file of a streamed directory; the stream reads one file a micro-batch."""
    directory = tmp_path / "input"
    directory.mkdir()

    def write(first: int, rows: int) -> DataFrame:
        from pyarrow import parquet

        staged = tmp_path / f"{first}.parquet"
        parquet.write_table(pa.table({"id": pa.array(range(first, first + rows), pa.int64())}), staged)
        os.utime(staged, (first, first))
        staged.rename(directory / staged.name)
        return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(directory))

    return write


def test_a_stream_reports_by_batch(spark: SparkSession, feed: Callable[[int, int], DataFrame], tmp_path: Path) -> None:
    sink = MetricsSink(spark)
    stream = _counted(feed(0, 10), sink)
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        feed(100, 25)
        query.processAllAvailable()
    finally:
        query.stop()
    by_batch = {number: metrics.value("rows_seen") for number, metrics in sink.batches(str(query.id)).items()}
    assert by_batch == {0: 10, 1: 25}
    assert sink.collect().value("rows_seen") == 35


def test_a_restarted_stream_goes_on_counting(
    spark: SparkSession, feed: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    sink = MetricsSink(spark)
    for first in (0, 100):
        stream = _counted(feed(first, 10), sink)
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()
    assert sink.collect().value("rows_seen") == 20
    assert sorted(sink.batches()) == [0, 1]


class _Counter(StatefulProcessor):
    """Counts the rows of a group over all batches in its state, and those of the batch in metrics."""

    def __init__(self, sink: MetricsSink) -> None:
        self._sink = sink

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies

        count = sum(len(frame) for frame in rows)
        before = self._seen.get()
        total = (before[0] if before else 0) + count
        self._seen.update((total,))
        metrics = Metrics()
        metrics.add("rows_seen", count)
        self._sink.task(metrics)
        yield pd.DataFrame({"id": [key[0]], "n": [total]})

    def close(self) -> None:
        pass


def test_stateful_processors_report_too(
    spark: SparkSession, feed: Callable[[int, int], DataFrame], tmp_path: Path
) -> None:
    sink = MetricsSink(spark)
    feed(0, 10)
    groups = feed(100, 25).selectExpr("id % 3 AS id").groupBy("id")
    counted = groups.transformWithStateInPandas(_Counter(sink), "id long, n long", "update", "none")
    query = (
        counted.writeStream.outputMode("update")
        .format("memory")
        .queryName("stateful_counts")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert {number: metrics.value("rows_seen") for number, metrics in sink.batches().items()} == {0: 10, 1: 25}
    totals = spark.sql("SELECT max(n) AS n FROM stateful_counts GROUP BY id").collect()
    assert sum(row.n for row in totals) == 35
