"""`online_join` of batch DataFrames against the oracle, and what is refused before a job starts."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import Feed, bag, expected, side_table

import dovetail
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.online.api import online_join, plan_online_join
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.spark.hosts.exchange import label

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT, RIGHT = side_table("a", 500, 60, seed=4), side_table("b", 700, 60, seed=7)
PAIRS = expected(LEFT, RIGHT)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_gives_the_join(spark: SparkSession, algorithm: str) -> None:
    left, right = spark.createDataFrame(LEFT), spark.createDataFrame(RIGHT)
    memory = "2MB" if algorithm == "shj" else "48KB"
    plan = plan_online_join(left, right, on="k", algorithm=algorithm, memory=memory, with_phase=True)
    found = plan.frame().toArrow()
    assert found.schema.names == ["k", "a", "b", "_phase"]
    assert bag(found.to_pylist()) == PAIRS
    phases, measured = Counter(found["_phase"].to_pylist()), plan.metrics()
    assert {phase: measured.value(f"results_{phase}") for phase in phases} == dict(phases)
    assert measured.value("null_keys", "right") == RIGHT["k"].null_count
    assert "2 partitions" in plan.explain()


def test_keys_of_other_names_types_and_odd_columns(spark: SparkSession) -> None:
    left = spark.createDataFrame(pa.table({"first name": ["x", "y", None, "x"], "n": [1, 2, 3, 4]}))
    right = spark.createDataFrame(pa.table({"who": ["x", "z", None], "n": [7, 8, 9], "at": [1.5, None, 2.5]}))
    out = online_join(left, right, on=[("first name", "who")], algorithm="xjoin", memory="1MB", partitions=3)
    assert out.columns == ["first name", "n", "who", "n_right", "at"]
    assert sorted(map(tuple, out.collect())) == [("x", 1, "x", 7, 1.5), ("x", 4, "x", 7, 1.5)]


def test_columns_and_suffixes(spark: SparkSession) -> None:
    left = spark.createDataFrame(
        [(1, "a", 10, True), (2, "b", 20, False)], "k int, v string, v_right int, last boolean"
    )
    right = spark.createDataFrame([(1, "x", 0.5), (1, "y", 1.5)], "k int, V string, w double")
    out = online_join(left, right, on="k", suffixes=("_l", "_r"), partitions=2, with_phase=True)
    assert out.columns == ["k", "v_l", "v_right", "last", "V_r", "w", "_phase"]
    assert sorted(map(tuple, out.drop("_phase").collect())) == [
        (1, "a", 10, True, "x", 0.5),
        (1, "a", 10, True, "y", 1.5),
    ]
    with pytest.raises(PlanError, match="would differ in case alone in the result with suffixes") as told:
        online_join(left, right, on="k")
    assert told.value.argument == "suffixes"
    some = plan_online_join(left, right, on="k", suffixes=("", "_r"), columns=["w", "v"], with_phase=True)
    assert [schema.names for schema in some.task.join.schemas.values()] == [["k", "v"], ["k", "w"]]
    assert some.frame().columns == ["w", "v", "_phase"]
    assert sorted((row.w, row.v) for row in some.frame().collect()) == [(0.5, "a"), (1.5, "a")]
    band = online_join(left, right, within=("k", 1), columns=["w"], suffixes=("_l", "_r"), partitions=1)
    assert sorted(row.w for row in band.collect()) == [0.5, 0.5, 1.5, 1.5]
    with pytest.raises(PlanError, match=r"the result has no column 'vv'.* Did you mean") as told:
        online_join(left, right, on="k", suffixes=("", "_r"), columns=["vv"])
    assert told.value.argument == "columns"


@pytest.mark.parametrize("buckets", [1, 3])
def test_a_band_alone(spark: SparkSession, buckets: int) -> None:
    rng = np.random.default_rng(1)
    times = [rng.integers(0, 10_000_000_000, 60).tolist() for _ in (0, 1)]
    tables = [
        pa.table({"at": pa.array(some, pa.timestamp("us", "UTC")), name: range(60)})
        for some, name in zip(times, ("a", "b"), strict=True)
    ]
    left, right = (spark.createDataFrame(table) for table in tables)
    band = ("at", "at", timedelta(seconds=-100), timedelta(seconds=300))
    out = online_join(left, right, within=band, memory="64KB", partitions=buckets)
    wanted = sorted(
        (a, b) for a in range(60) for b in range(60) if -100_000_000 <= times[1][b] - times[0][a] <= 300_000_000
    )
    assert sorted((row["a"], row["b"]) for row in out.collect()) == wanted


def test_empty_sides(spark: SparkSession) -> None:
    left, right = spark.createDataFrame(LEFT), spark.createDataFrame(RIGHT).limit(0)
    assert online_join(left, right, on="k").count() == 0


def test_values_that_cannot_be_parsed_and_a_hot_key(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,10\nx,11\n,12\n" + "3,7\n" * 90)
    left = spark.read.schema("k long, a long").csv(str(tmp_path))
    right = spark.createDataFrame([(k, k) for k in range(1, 10)], "k long, b long")
    plan = plan_online_join(left, right, on="k", memory="1MB", partitions=4)
    assert "one key is in one partition" in plan.explain()
    assert "measured" not in plan.explain()
    assert Counter(row["k"] for row in plan.frame().collect()) == {1: 1, 3: 90}
    assert plan.metrics().value("null_keys", "left") == 2
    spread = plan_online_join(left, right, on="k", memory="1MB", partitions=4, hot=[3])
    assert "left rows of hot keys (1) are dealt out to all, right ones go to each" in spread.explain()
    assert re.search(
        r"measured: the largest partition had 9\d of 100 rows, 3\.[6-9] times an even share", plan.explain()
    )


def test_buckets_are_spread_evenly_over_any_number_of_partitions(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(label(bucket),) for bucket in range(50)], "label long")
    assert [row[0] for row in frame.select(F.hash("label")).collect()] == list(range(50))


def given(spark: SparkSession, tmp_path: Path, **changes: Any) -> Any:
    feed = Feed(tmp_path)
    feed.add()
    left, right = feed.streams(spark)
    return online_join(left, right, **({"on": "k", "retain": "1 hour"} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"retain": None}, "two streams without an end.*retain='2 hours'.*end_of_input"),
        ({"on": "key"}, "no column"),
        ({"on": [("a", "k"), ("k", "c")]}, "no column"),
        ({"memory": "1KB"}, "too small"),
        ({"end_of_input": "last"}, "must be a Column"),
        ({"within": ("k", 0.5, 1)}, "is no band"),
    ],
)
def test_what_is_refused(spark: SparkSession, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        given(spark, tmp_path, **changes)


def test_a_stream_and_a_batch_do_not_go_together(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.add()
    with pytest.raises(PlanError, match=r"right is a stream and left is not.*dovetail\.enrich"):
        dovetail.online_join(spark.createDataFrame(LEFT), feed.streams(spark)[1], on="k", retain="1 hour")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("providerClass", "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"),
        ("checkpointFormatVersion", "1"),
    ],
)
def test_a_session_that_cannot_keep_the_state(spark: SparkSession, tmp_path: Path, name: str, value: str) -> None:
    setting = f"spark.sql.streaming.stateStore.{name}"
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    try:
        with pytest.raises(ConfigError, match=rf"{name} is '{value}'.*dovetail\.configure"):
            given(spark, tmp_path)
    finally:
        spark.conf.set(setting, before)


def test_a_watermark_without_a_band_is_not_enough(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.add()
    left, right = (
        s.withColumn("at", F.current_timestamp()).withWatermark("at", "1 minute") for s in feed.streams(spark)
    )
    with pytest.raises(PlanError, match="withWatermark on both"):
        online_join(left, right, on="k")
    plan = plan_online_join(left, right, on="k", within=("at", timedelta(minutes=5)))
    assert plan.task.lateness is not None
    assert plan.task.lateness.delays == (60_000_000, 60_000_000)
