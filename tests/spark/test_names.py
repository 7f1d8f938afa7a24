"""Names of columns: another case is the same name, as for Spark, unless spark.sql.caseSensitive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail import MasterStore
from dovetail.errors import PlanError
from dovetail.functions import FINITE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: dict[str, dict[str, Any]] = {
    "asof_join": {"on": "start"},
    "band_join": {"within": ("start", "start", 0, 1)},
    "interval_window": {"width": 2},
    "interval_pivot": {"width": 2},
    "interval_topk": {"k": 1},
}


@pytest.fixture
def case_counts(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


def plain(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 2, 0), (5, 9, 1)], "start int, end int, v int")


def twice(spark: SparkSession, name: str) -> DataFrame:
    """Rows with a column whose name is that of `start` or `end` in another case."""
    return plain(spark).toDF("start", "end", name)


@pytest.mark.parametrize("function", FINITE)
@pytest.mark.parametrize("name", ["START", "End"])
def test_columns_that_differ_in_case_alone_are_refused_with_both_names(
    spark: SparkSession, function: str, name: str
) -> None:
    inputs = FINITE[function].inputs
    for wrong in inputs:
        frames = [twice(spark, name) if each == wrong else plain(spark) for each in inputs]
        with pytest.raises(PlanError, match=rf"'(start|end)', '{name}'.*differ in case alone.*caseSensitive") as caught:
            getattr(dovetail, function)(*frames, **OPTIONS.get(function, {}))
        assert caught.value.argument == wrong


def test_streamed_functions_and_stores_refuse_them_too(spark: SparkSession, tmp_path: Path) -> None:
    store = MasterStore.build(plain(spark), tmp_path / "rows.pages", key="start")
    wrong, message = twice(spark, "START"), "'start', 'START'.*differ in case alone"
    calls: list[Callable[[], Any]] = [
        lambda: dovetail.online_join(plain(spark), wrong, on="end"),
        lambda: dovetail.online_multijoin({"a": plain(spark), "b": wrong}, on=[("a.v", "b.end")]),
        lambda: dovetail.enrich(wrong, store, on=[("end", "start")]),
        lambda: MasterStore.build(wrong, tmp_path / "wrong.pages", key="end"),
        lambda: MasterStore.build(wrong, tmp_path / "wrong.pages", bounds=("end", "start")),
    ]
    for call in calls:
        with pytest.raises(PlanError, match=message):
            call()


@pytest.mark.usefixtures("case_counts")
def test_where_case_counts_they_are_two_columns(spark: SparkSession) -> None:
    merged = dovetail.interval_merge(twice(spark, "START"))
    assert sorted(map(tuple, merged.select("start", "end").collect())) == [(1, 2), (5, 9)]
    for call in (
        lambda: dovetail.interval_merge(plain(spark), on="V"),
        lambda: dovetail.online_join(plain(spark), plain(spark), on="V"),
        lambda: MasterStore.build(plain(spark), "never", key="V"),
    ):
        with pytest.raises(PlanError, match="'V'"):
            call()


def test_online_joins_find_columns_in_any_case(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1, 10, 12), (2, 20, 25)], "K int, t int, u int")
    right = spark.createDataFrame([(1, 11), (2, 40)], "k int, S int")
    assert rows(dovetail.online_join(left, right, on="k", within=("T", "s", 0, 5))) == [(1, 10, 12, 11)]
    assert dovetail.online_join(left, right, on="k").columns == ["K", "t", "u", "S"]
    pairs = dovetail.online_join(
        left, right, on=[("k", "K")], relation="overlapping", left_interval=("T", "U"), right_interval="s"
    )
    assert rows(pairs.select("t", "S")) == [(10, 11)]
    for how in ("left", "right", "full", "left_semi", "left_anti"):
        found = dovetail.online_join(left, right.filter("k = 2"), on="k", how=how, memory="1MB")
        assert rows(found.select("K")) == rows(left.join(right.filter("k = 2"), "K", how).select("K")), how
    many = dovetail.online_multijoin({"a": left, "b": right}, on=[("a.k", "b.K"), ("a.T", "b.s", 0, 5)])
    assert rows(many.select("t", "S")) == [(10, 11)]
    with pytest.raises(PlanError, match="no column"):
        dovetail.online_join(left, right, on="key")


def test_a_stream_is_joined_by_names_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    left = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=20, numPartitions=1).load()
    other = left.select(F.col("value").alias("VALUE"), F.col("timestamp").alias("At"))
    named = left.select("value", F.col("timestamp").alias("at_left")).withWatermark("at_left", "1 minute")
    joined = dovetail.online_join(
        named,
        other.withWatermark("At", "1 minute"),
        on="Value",
        within=("AT_LEFT", "at", timedelta(seconds=-1), timedelta(seconds=1)),
    )
    assert joined.isStreaming
    assert joined.columns == ["value", "at_left", "At"]


def test_enrich_and_stores_find_columns_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    prices = spark.createDataFrame([("a", 1, 5, 10), ("a", 5, None, 11)], "Sku string, From int, Until int, price int")
    orders = spark.createDataFrame([("a", 3), ("a", 7), ("b", 3)], "SKU string, At int")
    store = MasterStore.build(prices, tmp_path / "prices.pages", key="SKU")
    assert store.key == ("Sku",)
    found = dovetail.enrich(orders, store, on="sku", at="at", valid=("FROM", "until"), memory="4MB")
    assert found.columns[0] == "SKU"
    assert rows(found.select("At", "price")) == [(3, 10), (7, 11)]
    ranged = MasterStore.build(prices, tmp_path / "ranges.pages", key="sku", bounds=("from", "UNTIL"))
    found = dovetail.enrich(orders, ranged, on=["sKu", ("AT", ("FROM", "until"))], closed="left", memory="4MB")
    assert rows(found.select("At", "price")) == [(3, 10), (7, 11)]
    often = MasterStore.build(prices, tmp_path / "often.pages", key="sku", order="frequency", frequency="PRICE")
    assert often.key == ("Sku",)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)
