"""Master data that fits in memory is joined by a plain hash join, and the plan says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.oracle import bag as plain_bag

from dovetail import MasterStore, enrich, plan_enrich
from dovetail.errors import PlanError


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> MasterStore:
    rows = spark.range(5_000).selectExpr("id as k", "concat('row ', id) as text")
    return MasterStore.build(rows, tmp_path / "m.pages", key="k")


def test_auto_takes_a_hash_join_and_explains_it(spark: SparkSession, store: MasterStore) -> None:
    stream = spark.range(20_000).selectExpr("id", "(id * 7) % 6000 as k")
    plan = plan_enrich(stream, store, on="k", how="left", memory="64MB")
    said = plan.explain()
    assert "HashJoin: on k, left" in said
    assert "sizes: the master data fits in memory" in said
    assert "prices: a plain hash join runs in place of these semi-stream joins" in said
    expected = [(n, (n * 7) % 6000, f"row {(n * 7) % 6000}" if (n * 7) % 6000 < 5_000 else None) for n in range(20_000)]
    got = [tuple(row) for row in plan.frame().select("id", "k", "text").collect()]
    assert plain_bag(got) == plain_bag(expected)


def test_auto_takes_a_semi_stream_join_where_memory_is_short(spark: SparkSession, store: MasterStore) -> None:
    stream = spark.range(20_000).selectExpr("id", "(id * 7) % 6000 as k")
    assert "HashJoin" not in plan_enrich(stream, store, on="k", memory="1MB").explain()


def test_a_named_hash_join_that_does_not_fit_is_refused(spark: SparkSession, store: MasterStore) -> None:
    stream = spark.range(10).selectExpr("id as k")
    with pytest.raises(PlanError, match="cannot hold all 5,000 master rows"):
        enrich(stream, store, on="k", algorithm="hash_join", memory="256KB")


def test_a_stream_goes_on_where_the_master_data_outgrows_memory(spark: SparkSession, tmp_path: Path) -> None:
    master = spark.range(2_000).selectExpr("id as k", "concat('row ', id) as text")
    store = MasterStore.build(master, tmp_path / "m.pages", key="k")
    spark.range(300).selectExpr("id", "id * 5 as k").write.parquet(f"{tmp_path}/in")
    stream = spark.readStream.schema("id long, k long").parquet(f"{tmp_path}/in")
    plan = plan_enrich(stream, store, on="k", how="left", memory="2MB")
    assert "HashJoin" in plan.explain()

    def run() -> None:
        writer = plan.frame().writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        writer.trigger(availableNow=True).start(f"{tmp_path}/out").awaitTermination()

    run()
    larger = spark.range(60_000).selectExpr("id as k", "concat('new ', id) as text")
    MasterStore.build(larger, tmp_path / "m.pages", key="k")
    spark.range(300, 600).selectExpr("id", "id * 5 as k").write.mode("append").parquet(f"{tmp_path}/in")
    run()
    expected = [(n, n * 5, ("row" if n < 300 else "new") + f" {n * 5}") for n in range(600)]
    got = [tuple(row) for row in spark.read.parquet(f"{tmp_path}/out").select("id", "k", "text").collect()]
    assert plain_bag(got) == plain_bag(expected)
