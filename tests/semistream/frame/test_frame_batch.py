"""enrich on batch DataFrames equals Spark's own join, for every algorithm, kind of join, and type of key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.semistream.frame.cases import bag, master_table, page_store, rows_of, stream_table

from dovetail import dead_letter, enrich, plan_enrich
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.sizes import Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frames")


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(stream_table()).repartition(3).cache()


@pytest.fixture(scope="module")
def store(place: Path) -> MasterStore:
    return page_store(place / "by_k.pages", only(master_table(), "k"))


def only(table: pa.Table, *keys: str) -> pa.Table:
    return table.select([*keys, "text"])


def spark_join(stream: DataFrame, master: pa.Table, on: Any, how: str) -> DataFrame:
    other = stream.sparkSession.createDataFrame(master)
    return stream.join(other, on, how)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_every_algorithm_equals_sparks_join(place: Path, stream: DataFrame, store: MasterStore, algorithm: str) -> None:
    if "x_hybridjoin" in algorithm:
        table = master_table()
        store = page_store(place / f"{algorithm}.pages", only(table, "k"), order="frequency")
    out = enrich(stream, store, on="k", how="left", algorithm=algorithm, memory="1MB", columns=["id", "k", "text"])
    expected = spark_join(stream, only(master_table(), "k"), "k", "left").select("id", "k", "text")
    assert bag(out) == bag(expected)


@pytest.mark.parametrize(("how", "exchange"), [("inner", "master"), ("left_semi", "none"), ("left_anti", "master")])
def test_every_kind_of_join(stream: DataFrame, store: MasterStore, how: str, exchange: str) -> None:
    out = enrich(stream, store, on="k", how=how, algorithm="cachejoin", memory="1MB", exchange=exchange, tune="off")
    expected = spark_join(stream, only(master_table(), "k"), "k", how)
    assert sorted(out.columns) == sorted(expected.columns)
    assert bag(out.select(expected.columns)) == bag(expected)


@pytest.mark.parametrize("key", ["name", "price", "day", "at"])
def test_every_type_of_key(place: Path, stream: DataFrame, key: str) -> None:
    master = only(master_table(), key)
    store = page_store(place / f"by_{key}.pages", master, key)
    out = enrich(stream, store, on=key, how="left", algorithm="hybridjoin", memory="1MB", tune="off")
    assert bag(out.select("id", key, "text")) == bag(spark_join(stream, master, key, "left").select("id", key, "text"))


def test_the_time_zone_of_the_session_changes_nothing(place: Path, stream: DataFrame) -> None:
    spark, master = stream.sparkSession, only(master_table(), "at")
    store = page_store(place / "zone.pages", master, "at")
    expected = bag(spark_join(stream, master, "at", "inner").select("id", "text"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        out = enrich(stream, store, on="at", memory="1MB")
        assert bag(out.select("id", "text")) == expected
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_composite_keys_under_other_names(place: Path, stream: DataFrame) -> None:
    master = only(master_table(), "name", "day").rename_columns(["label", "day", "text"])
    store = page_store(place / "composite.pages", master, ["label", "day"])
    out = enrich(stream, store, on=["day", ("name", "label")], algorithm="cachejoin", memory="1MB", tune="off")
    other = stream.sparkSession.createDataFrame(master).withColumnRenamed("day", "d")
    expected = stream.join(other, (stream.name == other.label) & (stream.day == other.d)).drop("d")
    assert out.columns == expected.columns
    assert bag(out) == bag(expected)


@pytest.mark.parametrize(
    ("given", "stored"),
    [("k", "short"), ("k", "price"), ("price", "k"), ("CAST(half AS FLOAT)", "half")],
)
def test_keys_of_different_types_meet_as_in_spark(place: Path, stream: DataFrame, given: str, stored: str) -> None:
    master = only(master_table(), stored).rename_columns(["key", "text"])
    store = page_store(place / f"{stored}_for_{len(given)}.pages", master, "key")
    rows = stream.selectExpr("id", f"{given} AS mine").unionByName(
        stream.selectExpr("id", f"{given} * 1 AS mine").limit(0)
    )
    out = enrich(rows, store, on=[("mine", "key")], how="left", algorithm="hybridjoin", memory="1MB", tune="off")
    other = stream.sparkSession.createDataFrame(master)
    expected = rows.join(other, rows.mine == other.key, "left")
    assert out.columns == expected.columns
    assert bag(out) == bag(expected)
    assert expected.where("key IS NOT NULL").count() > 0


def test_names_that_clash_get_suffixes_and_odd_names_are_fine(place: Path, spark: SparkSession) -> None:
    master = pa.table({"k": [1, 2], "a.b": ["x", "y"], "text": ["one", "two"], "`q`": [1.5, 2.5]})
    store = page_store(place / "odd.pages", master)
    rows = spark.createDataFrame(pa.table({"k": [2, 3], "text": ["mine", "too"], "`q` r": [True, False]}))
    out = enrich(rows, store, on="k", how="left", suffixes=("", "_2"), algorithm="inlj")
    assert out.columns == ["k", "text", "`q` r", "a.b", "text_2", "`q`"]
    assert bag(out) == {(2, "mine", True, "y", "two", 2.5): 1, (3, "too", False, None, None, None): 1}
    some = enrich(rows, store, on="k", columns=["text_master", "text"], algorithm="inlj")
    assert bag(some) == {("two", "mine"): 1}


def test_rows_without_a_match_become_dead_letters_once(
    place: Path, stream: DataFrame, store: MasterStore, tmp_path: Path
) -> None:
    letters = tmp_path / "letters"
    out = enrich(stream, store, on="k", on_miss=dead_letter(letters), algorithm="cachejoin", memory="1MB", tune="off")
    expected = spark_join(stream, only(master_table(), "k"), "k", "inner")
    assert bag(out.select(expected.columns)) == bag(expected)
    unmatched = spark_join(stream, only(master_table(), "k"), "k", "left_anti").select(stream.columns)
    found = stream.sparkSession.read.parquet(str(letters))
    assert bag(found.select(stream.columns)) == bag(unmatched)
    assert not [file for file in letters.iterdir() if file.name.startswith("_")]


def test_a_batch_reads_the_version_of_when_it_was_planned(place: Path, spark: SparkSession) -> None:
    def at(word: str) -> MasterStore:
        return page_store(place / "moving.pages", pa.table({"k": [1, 2], "word": [word, word]}))

    rows = spark.createDataFrame(pa.table({"k": [1, 2, 3]}))
    before = enrich(rows, at("old"), on="k", algorithm="cachejoin", memory="1MB")
    assert bag(before) == {(1, "old"): 1, (2, "old"): 1}
    after = enrich(rows, at("new"), on="k", algorithm="cachejoin", memory="1MB")
    assert bag(after) == {(1, "new"): 1, (2, "new"): 1}
    assert bag(before) == {(1, "old"): 1, (2, "old"): 1}


@pytest.mark.parametrize("tune", ["measure", {"waiting": 50, "per_segment": 2}, Sizes(cached=7)])
def test_sizes_change_nothing_in_the_answer(stream: DataFrame, store: MasterStore, tune: Any) -> None:
    plan = plan_enrich(stream, store, on="k", algorithm="cachejoin", memory="1MB", tune=tune)
    expected = spark_join(stream, only(master_table(), "k"), "k", "inner").select("id", "text")
    assert bag(plan.frame().select("id", "text")) == bag(expected)
    metrics = plan.metrics()
    assert metrics.value("rows") == stream.count()
    assert metrics.value("answered_by_cache") + metrics.value("answered_by_page") + metrics.value("misses") == 3000
    assert metrics.value("memory_peak") <= 1 << 20
    assert "measured" in metrics.notes[0]


def test_explain_tells_memory_rates_and_losers(stream: DataFrame, store: MasterStore) -> None:
    plan = plan_enrich(stream, store, on="k", memory="1MB")
    text = plan.explain()
    for words in ("Enrich: how=inner", "memory: ", "predicted service rate", "prices:", "meshjoin", "skew: ", "2,"):
        assert words in text
    assert "measured service rate" not in text
    plan.frame().write.format("noop").mode("overwrite").save()
    assert "measured service rate" in plan.explain()
    named = plan_enrich(stream, store, on="k", algorithm="hybridjoin", memory="1MB").explain()
    assert "HybridJoin: on k" in named
    assert "prices:" in named


def test_a_large_batch_is_priced_for_the_rows_of_a_task(spark: SparkSession, store: MasterStore) -> None:
    """As Spark counts them, or by the bytes that it thinks they have; both cores have their share."""
    counted = spark.range(60_000)
    guessed = counted.where("id % 2 = 0").selectExpr("id", "id + 1 AS other")
    batches = []
    for rows in (counted, guessed):
        price = plan_enrich(rows, store, on=[("id", "k")], memory="1MB").decision.price
        assert price is not None
        assert price.batch is not None
        batches.append(price.batch.rows)
    assert batches[0] == 30_000
    assert 10_000 <= batches[1] <= 60_000


def test_nothing_to_do(spark: SparkSession, store: MasterStore, stream: DataFrame) -> None:
    assert bag(enrich(stream.limit(0), store, on="k", memory="1MB")) == {}
    limited = enrich(stream, store, on="k", how="left_semi", algorithm="hybridjoin", memory="1MB").limit(3)
    assert sum(rows_of(limited.toArrow()).values()) == 3
