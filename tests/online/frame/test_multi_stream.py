"""Streams through `online_multijoin`: several micro-batches, pauses, ends, restarts, rows that are retired or late."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import answers
from tests.online.frame.multi_cases import SHAPES, MultiFeed, bag_of
from tests.online.frame.test_online_stream import run_all, start, wait_for
from tests.semistream.frame.cases import drop_file

from dovetail import online_multijoin, plan_online_multijoin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def test_micro_batches_and_a_restart_from_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    feed = MultiFeed(tmp_path, "chain3", rows=60)
    feed.add()
    feed.add()
    for part in range(2):
        plan = plan_online_multijoin(
            feed.streams(spark), on=SHAPES["chain3"], memory="160KB", partitions=4, owed="batch", retain="1 hour"
        )
        query = run_all(plan.frame(), tmp_path)
        assert len([p for p in query.recentProgress if p["numInputRows"]]) == (2, 1)[part]
        assert bag_of(answers(tmp_path), feed.tables) == feed.expected(spark), part
        assert plan.metrics().value("joins_rebuilt") == 4  # once a bucket, when the query starts
        feed.add()
    measured = plan.metrics()
    assert 0 < measured.value("memory_peak") <= 160 * 1024


@pytest.mark.slow
def test_a_pause_and_the_end_of_input(spark: SparkSession, tmp_path: Path) -> None:
    feed = MultiFeed(tmp_path, "star3", rows=400, keys=150)
    feed.add()
    feed.add()
    out = online_multijoin(
        feed.streams(spark, last=True), on=SHAPES["star3"], memory="96KB", end_of_input=F.col("last"), with_phase=True
    )
    query = start(out, tmp_path)
    try:
        wait_for(query, tmp_path, "reactive")
        feed.add(last=True)
        wait_for(query, tmp_path, "cleanup")
    finally:
        query.stop()
    assert bag_of(answers(tmp_path), feed.tables) == feed.expected(spark)


@pytest.mark.slow
def test_watermarks_bound_the_state_and_late_rows_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """Six minutes, a file each; in the fourth a row of one input comes that is two minutes late."""
    minute, rows = 60_000_000, dict[str, list[tuple[int, int, int]]]()
    for number in range(6):
        for name in ("a", "b", "c"):
            times = [number * minute + 2_000_000 * n for n in range(20)]
            times += [number * minute - 2 * minute] if (number, name) == (3, "b") else []
            fresh = [(100 * number + n, n % 4, at) for n, at in enumerate(times)]
            rows.setdefault(name, []).extend(fresh)
            table = pa.table(
                {f"{name}_n": [r[0] for r in fresh], "k": [r[1] for r in fresh],
                 "at": pa.array([r[2] for r in fresh], pa.timestamp("us", "UTC"))}
            )  # fmt: skip
            drop_file(tmp_path / name, table, number)
    streams = {}
    for name in rows:
        reader = spark.readStream.schema(f"{name}_n long, k long, at timestamp").option("maxFilesPerTrigger", 1)
        streams[name] = reader.parquet(str(tmp_path / name)).withWatermark("at", "1 minute")
    near = timedelta(seconds=4)
    on: list[tuple[Any, ...]] = [
        ("a.k", "b.k"),
        ("a.at", "b.at", -near, near),
        ("b.k", "c.k"),
        ("b.at", "c.at", -near, near),
    ]
    plan = plan_online_multijoin(streams, on=on, memory="256KB", owed="batch", partitions=2)
    run_all(plan.frame(), tmp_path)
    late = 320
    wanted = Counter(
        (a, b, c)
        for a, j, t in rows["a"]
        for b, k, u in rows["b"]
        if j == k and abs(u - t) <= 4_000_000 and b != late
        for c, m, v in rows["c"]
        if k == m and abs(v - u) <= 4_000_000
    )
    assert bag_of(answers(tmp_path), rows) == wanted
    measured = plan.metrics()
    assert [measured.value("late_rows", name) for name in rows] == [0, 1, 0]
    assert measured.value("joins_rebuilt") == 2  # when the query starts; rows leave the running joins
