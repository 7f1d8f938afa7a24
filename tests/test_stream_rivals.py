"""Joins as the documentation of Flink, ksqlDB, Databricks, SeQuiLa and Tempo has them, with rows of our own."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail import MasterStore
from dovetail.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 3, 1, 12)


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def test_flink_joins_orders_shipped_within_four_hours(spark: SparkSession) -> None:
    """A band of times is part of the match, its bounds included; an order may be shipped several times."""
    orders = spark.createDataFrame([(1, at(0)), (2, at(0)), (3, at(0))], "id int, ordered timestamp_ntz")
    shipped = spark.createDataFrame(
        [(1, at(4)), (1, at(1)), (2, at(4.001)), (3, at(-0.001)), (4, at(1))], "id int, shipped timestamp_ntz"
    )
    band: dict[str, Any] = {"on": "id", "within": ("ordered", "shipped", "0 s", "4 h")}
    assert rows(dovetail.online_join(orders, shipped, **band).select("id", "shipped")) == [(1, at(1)), (1, at(4))]
    for how, wanted in (("left", [1, 1, 2, 3]), ("right", [1, 1, 2, 3, 4]), ("full", [1, 1, 2, 2, 3, 3, 4])):
        found = dovetail.online_join(orders, shipped, how=how, partitions=1, **band)
        assert sorted(row.id for row in found.collect()) == wanted, how


def test_flink_leaves_out_bounds_on_request(spark: SparkSession) -> None:
    """`between(-2, 1)` of a DataStream has both bounds; `lowerBoundExclusive` and its twin leave one out."""
    left = spark.createDataFrame([(0,), (5,)], "l int")
    right = spark.createDataFrame([(n,) for n in range(-3, 8)], "r int")
    for closed, low, high in (("both", -2, 1), ("right", -1, 1), ("left", -2, 0), ("neither", -1, 0)):
        found = dovetail.online_join(left, right, within=("l", "r", -2, 1), closed=closed)  # type: ignore[arg-type]
        assert rows(found) == sorted(((v, r) for v in (0, 5) for r in range(v + low, v + high + 1) if r < 8), key=str)
    with pytest.raises(PlanError, match="band from 2 to 1 is empty"):
        dovetail.online_join(left, right, within=("l", "r", 2, 1))


def test_flink_converts_by_the_rate_of_the_time_of_the_order(spark: SparkSession, tmp_path: Path) -> None:
    """FOR SYSTEM_TIME AS OF: the version that was current at the row's time; before the first there is none."""
    rates = spark.createDataFrame(
        [("eur", at(0), at(2), 110), ("eur", at(2), None, 116), ("yen", at(1), None, 1)],
        "currency string, valid_from timestamp_ntz, valid_to timestamp_ntz, rate int",
    )
    orders = spark.createDataFrame(
        [(1, "eur", at(1)), (2, "eur", at(2)), (3, "yen", at(0)), (4, "usd", at(1))],
        "id int, currency string, ordered timestamp_ntz",
    )
    store = MasterStore.build(rates, tmp_path / "rates.pages", key="currency")
    found = dovetail.enrich(orders, store, on="currency", at="ordered", how="left", memory="4MB")
    assert rows(found.select("id", "rate")) == [(1, 110), (2, 116), (3, None), (4, None)]


def test_ksqldb_pairs_by_join_type(spark: SparkSession) -> None:
    """Which rows come by type: pairs within the window always, left rows alone for left, both sides' for full."""
    kind = "k int, {0} string, {0}_at int"
    left = spark.createDataFrame([(1, "A", 2), (2, "B", 30), (3, "C", 90)], kind.format("l"))
    right = spark.createDataFrame([(1, "a", 3), (1, "b", 12), (2, "c", 55), (4, "d", 1)], kind.format("r"))
    both, alone_left, alone_right = [("A", "a"), ("A", "b")], [("B", None), ("C", None)], [(None, "c"), (None, "d")]
    for how, wanted in (
        ("inner", both),
        ("left", both + alone_left),
        ("right", both + alone_right),
        ("full", both + alone_left + alone_right),
    ):
        found = dovetail.online_join(left, right, on="k", within=("l_at", "r_at", -15, 15), how=how, memory="1MB")
        assert rows(found.select("l", "r")) == sorted(wanted, key=str), how


def test_databricks_range_joins_are_plain_conditions(spark: SparkSession) -> None:
    """A point in an interval with `between`, and an overlap by two strict comparisons: what Spark gives."""
    points = spark.range(60).selectExpr("id as p", "id % 7 as k")
    spans = spark.range(20).selectExpr("id * 3 as start", "id * 3 + id % 5 as end", "id as n")
    inside = dovetail.interval_join(points, spans, left_interval=("p", "p"), closed="both", how="left")
    own = points.join(spans, F.expr("p between start and end"), "left")
    assert rows(inside.select("p", "n")) == rows(own.select("p", "n"))
    others = spans.selectExpr("start + 2 as s", "end + 3 as e", "n as m")
    pairs = dovetail.interval_join(spans.where("start < end"), others.where("s < e"), right_interval=("s", "e"))
    own = spans.where("start < end").join(others.where("s < e"), F.expr("start < e and s < end"))
    assert rows(pairs.select("n", "m")) == rows(own.select("n", "m"))


def test_sequila_counts_both_bounds_and_takes_slack(spark: SparkSession) -> None:
    """Rows of 1-based files that share an end overlap; a gap widens the match, a least overlap narrows it."""
    reads = spark.createDataFrame([("chr1", 100, 200), ("chr1", 300, 310)], "c string, start int, end int")
    targets = spark.createDataFrame(
        [("chr1", 200, 250), ("chr1", 205, 260), ("chr2", 1, 999)], "c string, s int, e int"
    )
    shape: dict[str, Any] = {"on": "c", "right_interval": ("s", "e"), "closed": "both"}
    assert rows(dovetail.interval_join(reads, targets, **shape).select("start", "s")) == [(100, 200)]
    near = dovetail.interval_join(reads, targets, max_gap=5, **shape)
    assert rows(near.select("start", "s")) == [(100, 200), (100, 205)]
    assert dovetail.interval_join(reads, targets, min_overlap=1, **shape).count() == 0


def test_tempo_takes_the_last_row_at_or_before(spark: SparkSession) -> None:
    """Ties by time count; a null value is part of its row, so that of each column alone nulls are dropped first."""
    trades = spark.createDataFrame([("x", 5), ("x", 7), ("y", 5)], "s string, t int")
    quotes = spark.createDataFrame(
        [("x", 1, 10), ("x", 5, 11), ("x", 6, None), ("y", 6, 9)], "s string, u int, bid int"
    )
    whole = dovetail.asof_join(trades, quotes, on=("t", "u"), by="s", how="left")
    assert rows(whole.select("s", "t", "bid")) == [("x", 5, 11), ("x", 7, None), ("y", 5, None)]
    kept = dovetail.asof_join(trades, quotes.dropna(subset=["bid"]), on=("t", "u"), by="s", how="left")
    assert rows(kept.select("s", "t", "bid")) == [("x", 5, 11), ("x", 7, 11), ("y", 5, None)]


@pytest.mark.timeout(120)
def test_streams_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    for name, column in (("rival_bought", "a"), ("rival_paid", "b")):
        spark.range(5).selectExpr("id as k", f"id * 2 as {column}").write.saveAsTable(name, mode="overwrite")
    left, right = (spark.readStream.table(name) for name in ("rival_bought", "rival_paid"))
    try:
        joined = dovetail.online_join(left, right, on="k", retain="1 hour", partitions=2)
        query = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    finally:
        for name in ("rival_bought", "rival_paid"):
            spark.sql(f"drop table {name}")
    assert rows(spark.read.parquet(str(tmp_path / "out"))) == [(n, 2 * n, 2 * n) for n in range(5)]
