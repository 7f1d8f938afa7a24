"""Collated keys mean what Spark's own join means by them, on every route, and values come out as they went in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import PlanError

COLLATIONS = ("UTF8_LCASE", "UNICODE_CI", "UTF8_BINARY_RTRIM", "UNICODE_CI_RTRIM", "de_CI_AI", "UNICODE")
WAYS = (
    {"algorithm": "native"},
    {"algorithm": "forward_scan"},
    {"algorithm": "sort_merge"},
    {"algorithm": "time_sweep", "route": "streaming"},
    {"algorithm": "oip"},
    {"algorithm": "dip", "partitions": 3},
    {},
)
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
TEXTS = ("Ab", "aB", "ab", "ab ", "ΑΣ", "ας", "é", "e\u0301", "e", "E", None, "")


def side(spark: SparkSession, collation: str, shift: int) -> DataFrame:
    rows = [(k, at, (at * 7 + shift) % 23, (at * 7 + shift) % 23 + 1 + at % 9) for at, k in enumerate(TEXTS * 3)]
    return spark.createDataFrame(rows, f"k string collate {collation}, v int, start int, end int")


def shown(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


def by_spark(left: DataFrame, right: DataFrame, how: str) -> DataFrame:
    """Spark's own join by the shared key k and the overlap, columns as ours."""
    other = right.select(F.col("k").alias("k2"), *(F.col(c).alias(f"{c}_right") for c in ("v", "start", "end")))
    joined = left.join(other, F.expr("k = k2 and start < end_right and start_right < end"), how)
    if how in ("left_semi", "left_anti"):
        return joined
    key = {"right": "k2", "full": "coalesce(k, k2)"}.get(how, "k")
    return joined.selectExpr(f"{key} as k", "v", "start", "end", "v_right", "start_right", "end_right")


@pytest.mark.sampled(10)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())) or "auto")
@pytest.mark.parametrize("collation", COLLATIONS)
def test_keys_match_as_spark_matches_them(spark: SparkSession, collation: str, way: dict[str, Any], how: str) -> None:
    left, right = side(spark, collation, 0), side(spark, collation, 3)
    found = dovetail.interval_join(left, right, on="k", how=how, **way)
    assert found.schema["k"].dataType == left.schema["k"].dataType
    assert shown(found) == shown(by_spark(left, right, how))


@pytest.mark.parametrize("collation", COLLATIONS[::2])
def test_counts_and_longest_overlaps_match_as_spark_matches_keys(spark: SparkSession, collation: str) -> None:
    left, right = side(spark, collation, 0), side(spark, collation, 3)
    pairs = by_spark(left, right, "inner").collect()
    assert dovetail.interval_count(left, right, on="k") == len(pairs)
    per_row = Counter((row.k, row.v) for row in pairs)
    for counted in (
        dovetail.count_overlaps(left, right, on="k"),
        dovetail.count_overlaps(left, right, on="k", condition="v <> -1"),
    ):
        assert {(r.k, r.v): r.n_overlaps for r in counted.collect()} == {
            (k, v): per_row[(k, v)] for k, v in ((r.k, r.v) for r in left.collect())
        }
    lengths = sorted((min(r.end, r.end_right) - max(r.start, r.start_right) for r in pairs), reverse=True)
    top = dovetail.interval_topk(left, right, k=5, on="k").collect()
    assert [min(r.end, r.end_right) - max(r.start, r.start_right) for r in top] == lengths[:5]


@pytest.mark.parametrize("keep", ["first", "last", "any"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_kept_matches_are_of_the_same_collated_key(spark: SparkSession, keep: str, how: str) -> None:
    left, right = side(spark, "UTF8_LCASE", 0), side(spark, "UTF8_LCASE", 3)
    matched = {(r.k, r.v) for r in by_spark(left, right, "left_semi").collect()}
    found = dovetail.interval_join(left, right, on="k", how=how, keep=keep).collect()
    assert {(r.k, r.v) for r in found if r.v_right is not None} == matched
    assert len(found) == (len(matched) if how == "inner" else len(TEXTS) * 3)


def test_sql_finds_collated_keys(spark: SparkSession) -> None:
    left, right = side(spark, "UTF8_LCASE", 0), side(spark, "UTF8_LCASE", 3)
    left.createOrReplaceTempView("collated_l")
    right.createOrReplaceTempView("collated_r")
    query = """select l.k, l.v, r.k as k2, r.v as v2 from collated_l l join collated_r r
               on l.k = r.k and l.start < r.end and r.start < l.end"""
    assert shown(dovetail.sql(spark, query)) == shown(spark.sql(query))


@pytest.mark.parametrize("way", WAYS[:2])
def test_conditions_and_payloads_keep_their_collation(spark: SparkSession, way: dict[str, Any]) -> None:
    left = side(spark, "UTF8_LCASE", 0).withColumnRenamed("k", "a")
    right = side(spark, "UTF8_LCASE", 3).withColumnRenamed("k", "b")
    found = dovetail.interval_join(left, right, condition="a = b", **way)
    assert [found.schema[c].dataType.simpleString() for c in "ab"] == ["string collate UTF8_LCASE"] * 2
    wanted = left.alias("l").join(right.alias("r"), F.expr("a = b and l.start < r.end and r.start < l.end"))
    assert shown(found) == shown(wanted)


@pytest.mark.parametrize("others", ["UNICODE_CI", "UTF8_BINARY"])
@pytest.mark.parametrize("way", WAYS[:2])
def test_keys_of_different_collations_are_refused(spark: SparkSession, others: str, way: dict[str, Any]) -> None:
    left, right = side(spark, "UTF8_LCASE", 0), side(spark, others, 3)
    with pytest.raises(PlanError, match=r"different collations.*'k' is string collate UTF8_LCASE.*F\.collate\('k'"):
        dovetail.interval_join(left, right, on="k", **way)
    with pytest.raises(PlanError, match="different collations"):
        dovetail.interval_count(left, right, on="k")
    advised = right.withColumn("k", F.collate("k", "UTF8_LCASE"))
    assert shown(dovetail.interval_join(left, advised, on="k", **way)) == shown(by_spark(left, advised, "inner"))


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_shared_key_named_in_another_case_takes_the_value_of_the_side_that_has_one(
    spark: SparkSession, how: str
) -> None:
    left = spark.createDataFrame([(1, 0, 5)], "k int, start int, end int")
    right = spark.createDataFrame([(2, 0, 5)], "k int, start int, end int")
    found = dovetail.interval_join(left, right, on="K", how=how).collect()
    assert {row.k for row in found} == ({2} if how == "right" else {1, 2})


def test_written_files_keep_collations(spark: SparkSession, tmp_path: Path) -> None:
    left = side(spark, "UTF8_LCASE", 0).withColumn("length", F.expr("interval '2' hour * v"))
    right = side(spark, "UTF8_LCASE", 3).withColumnsRenamed({"k": "k2", "v": "v2"})
    for at, keys in enumerate((None, [("k", "k2")])):
        plan = dovetail.plan_interval_join(left, right, on=keys)
        plan.write_parquet(str(tmp_path / str(at)))
        written = spark.read.parquet(str(tmp_path / str(at)))
        assert [field.dataType for field in written.schema] == [field.dataType for field in plan.frame().schema]
        assert shown(written) == shown(plan.frame())
