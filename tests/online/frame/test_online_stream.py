"""Streams through `online_join`: several micro-batches, both ways to owe, ends, restarts, rows that are retired."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import Feed, answers, bag
from tests.semistream.frame.cases import drop_file

from dovetail.joins.online.api import online_join, plan_online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.timeout(300)


def start(out: DataFrame, place: Path, **trigger: Any) -> StreamingQuery:
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    return writer.option("path", str(place / "out")).trigger(**(trigger or {"processingTime": "0 seconds"})).start()


def run_all(out: DataFrame, place: Path) -> StreamingQuery:
    query = start(out, place, availableNow=True)
    query.awaitTermination()
    return query


def wait_for(query: StreamingQuery, place: Path, phase: str, timeout_s: float = 120) -> None:
    """Until the sink has rows of a phase."""
    end = time.monotonic() + timeout_s
    while not any(row["_phase"] == phase for row in answers(place)):
        if query.exception() is not None:
            raise AssertionError(str(query.exception()))
        assert time.monotonic() < end, f"{len(answers(place))} rows, none of phase {phase}: {query.lastProgress}"
        time.sleep(0.1)


def test_a_query_that_works_in_pauses_ends_when_all_that_was_available_is_joined(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path)
    for run in range(2):
        for _ in range(2):
            feed.add()
        left, right = feed.streams(spark)
        out = online_join(left, right, on="k", memory="8MB", retain="1 hour")
        query = start(out, tmp_path, availableNow=True)
        assert query.awaitTermination(120), f"run {run} does not end: {query.lastProgress}"
        assert query.exception() is None
        assert bag(answers(tmp_path)) == feed.expected


def test_a_slow_micro_batch_after_an_empty_one_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    feed, found = Feed(tmp_path), Counter[Any]()
    feed.add()
    for name in "ab":
        schema = pa.schema([("k", pa.int64()), (name, pa.int64()), ("last", pa.bool_())])
        drop_file(tmp_path / name, schema.empty_table(), feed.files)
    feed.files += 1
    feed.add()
    left, right = feed.streams(spark)

    def sink(frame: DataFrame, number: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        time.sleep(4 if number > 1 else 0)  # longer than a pause, after the micro-batch without rows
        found.update(bag(rows))

    out = online_join(left, right, on="k", memory="8MB", retain="1 hour")
    writer = out.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(200), f"does not end: {query.lastProgress}"
    assert found == feed.expected


def test_later_micro_batches_compile_no_code(spark: SparkSession, tmp_path: Path) -> None:
    feed, compiled = Feed(tmp_path), list[int]()
    for _ in range(4):
        feed.add()
    left, right = feed.streams(spark)
    jvm: Any = spark._jvm
    count = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount

    def sink(frame: DataFrame, number: int) -> None:
        frame.write.format("noop").mode("overwrite").save()
        compiled.append(count())

    out = online_join(left, right, on="k", memory="8MB", owed="batch", retain="1 hour")
    writer = out.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(200)
    assert len(compiled) == 4
    assert compiled[1] == compiled[3]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("algorithm", ["diner", "hmj"])
def test_every_micro_batch_ends_with_nothing_owed(spark: SparkSession, tmp_path: Path, algorithm: str) -> None:
    feed = Feed(tmp_path)
    for _ in range(3):
        feed.add()
    left, right = feed.streams(spark)
    hot = [1] if algorithm == "diner" else None  # a third of the rows of one side
    if algorithm == "hmj":
        left = left.withColumn("nested", F.struct("a"))  # answers with such a column are packed
    plan = plan_online_join(
        left, right, on="k", algorithm=algorithm, memory="64KB", owed="batch", retain="1 hour", with_phase=True, hot=hot
    )
    query = run_all(plan.frame(), tmp_path)
    found = answers(tmp_path)
    assert bag(found) == feed.expected
    assert algorithm != "hmj" or all(row["nested"] == {"a": row["a"]} for row in found)
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    assert len(progress) == 3
    first = plan.task.sink.batches(str(query.id))[0]
    assert first.value("results_arriving") > 0
    measured = plan.metrics()
    phases = Counter(row["_phase"] for row in found)
    for phase, n in phases.items():
        assert measured.value(f"results_{phase}") == n
    assert 0 < measured.value("memory_peak") <= 64 * 1024
    assert measured.value("blocks_flushed", "left") > 0
    assert measured.value("null_keys", "left") == sum(table["k"].null_count for table in feed.left)


def test_a_stream_that_stops_and_starts_gives_each_pair_once(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for part in range(3):
        feed.add()
        left, right = feed.streams(spark)
        plan = plan_online_join(left, right, on="k", memory="64KB", owed="batch", retain="1 hour")
        run_all(plan.frame(), tmp_path)  # a new plan each time: no join of the one before is taken up
        assert bag(answers(tmp_path)) == feed.expected, part
        assert plan.metrics().value("joins_rebuilt") == 2


def test_pauses_and_the_end_of_input(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path, rows=300)
    for _ in range(2):
        feed.add()
    left, right = feed.streams(spark, last=True)
    out = online_join(left, right, on="k", memory="32KB", end_of_input=F.col("last"), with_phase=True)
    query = start(out, tmp_path)
    try:
        wait_for(query, tmp_path, "reactive")
        feed.add(last=True)
        wait_for(query, tmp_path, "cleanup")
    finally:
        query.stop()
    assert bag(answers(tmp_path)) == feed.expected


def test_rows_after_the_end_fail_the_query(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.add(last=True)
    feed.add()
    left, right = feed.streams(spark, last=True)
    out = online_join(left, right, on="k", algorithm="shj", end_of_input=F.col("last"))
    with pytest.raises(StreamingQueryException, match="came after the row that end_of_input marked"):
        run_all(out, tmp_path)


@pytest.mark.slow
def test_rows_that_are_not_retained_leave_the_state(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for _ in range(3):
        feed.add()
        left, right = feed.streams(spark)
        out = online_join(left, right, on="k", memory="64KB", owed="batch", retain="1 ms")
        run_all(out, tmp_path)
    together = Counter[Any]()
    for a, b in zip(feed.left, feed.right, strict=True):
        alone = Feed(tmp_path)
        alone.left, alone.right = [a], [b]
        together += alone.expected
    found = bag(answers(tmp_path))
    assert max(found.values()) == 1
    assert found >= together
    assert found < feed.expected


@pytest.mark.slow
def test_watermarks_bound_the_state_and_late_rows_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """Six minutes, a file each; in the fourth a row comes that is two minutes late, where one is allowed."""
    minute, rng = 60_000_000, np.random.default_rng(3)
    rows: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for number in range(6):
        for name, column in rows.items():
            times = [number * minute + int(t) for t in rng.integers(0, minute, 50)]
            times += [number * minute - 2 * minute] if number == 3 else []
            column += list(enumerate(times, start=1000 * number))
            numbers = range(1000 * number, 1000 * number + len(times))
            table = pa.table({name: numbers, "at": pa.array(times, pa.timestamp("us", "UTC"))})
            drop_file(tmp_path / name, table, number)
    streams = []
    for name in rows:
        reader = spark.readStream.schema(f"{name} long, at timestamp").option("maxFilesPerTrigger", 1)
        streams.append(reader.parquet(str(tmp_path / name)).withWatermark("at", "1 minute"))
    plan = plan_online_join(
        *streams,
        within=("at", "at", timedelta(seconds=-3), timedelta(seconds=5)),
        memory="128KB",
        owed="batch",
        partitions=1,
    )
    run_all(plan.frame(), tmp_path)
    late = [3050, 3050]
    wanted = Counter(
        (a, b)
        for a, at in rows["a"]
        for b, bt in rows["b"]
        if -3_000_000 <= bt - at <= 5_000_000 and a != late[0] and b != late[1]
    )
    assert Counter((row["a"], row["b"]) for row in answers(tmp_path)) == wanted
    measured = plan.metrics()
    assert [measured.value("late_rows", side) for side in ("left", "right")] == [1, 1]
    assert measured.value("joins_rebuilt") == 1  # when the query starts; rows leave the running join


def test_threads_of_a_sink_can_use_the_answers(spark: SparkSession, tmp_path: Path) -> None:
    """Spark passes the number of partitions on to jobs of DataFrames, and to those of RDDs if threads inherit it."""
    feed, found = Feed(tmp_path), dict[str, Any]()
    feed.add()
    left, right = feed.streams(spark)

    def in_thread(function: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(function)
            return work.exception() or work.result()

    def sink(answers: DataFrame, number: int) -> None:
        found["refused"] = str(in_thread(lambda: answers.rdd.count()))
        found["inherited"] = in_thread(inheritable_thread_target(answers.sparkSession)(lambda: answers.rdd.count()))
        found["plain"] = in_thread(answers.count)

    out = online_join(left, right, on="k", memory="64KB", owed="batch", retain="1 hour")
    writer = out.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert found["plain"] == found["inherited"] == feed.expected.total()
    assert "or wrap the function: pyspark.inheritable_thread_target" in found["refused"]
