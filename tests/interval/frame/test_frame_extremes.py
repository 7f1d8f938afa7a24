"""Slack, overlaps and bins at the edges: null bounds, lengths beyond 64 bits, infinities, times of day, decimals."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from math import inf
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.errors import DataError, PlanError


def intervals(spark: SparkSession, kind: str, *rows: tuple[Any, Any]) -> DataFrame:
    return spark.createDataFrame(list(rows), f"start {kind}, end {kind}")


@pytest.mark.parametrize("kind", ["int", "bigint", "decimal(9,2)", "double"])
@pytest.mark.parametrize("row", [(None, 5), (1, None), (None, None)])
def test_a_null_bound_matches_nothing_whatever_the_gap(spark: SparkSession, kind: str, row: tuple[Any, Any]) -> None:
    made = {"decimal(9,2)": Decimal, "double": float}.get(kind, int)
    rows = [tuple(None if x is None else made(x) for x in each) for each in (row, (1, 5))]
    broken, whole = (intervals(spark, kind, (each[0], each[1])) for each in rows)
    for left, right in ((whole, broken), (broken, whole)):
        for gap in (0, 1):
            assert dovetail.interval_join(left, right, max_gap=gap, invalid="null").count() == 0
            assert dovetail.interval_join(left, right, max_gap=gap, invalid="null", how="left_anti").count() == 1
            assert dovetail.interval_count(left, right, max_gap=gap, invalid="null") == 0
    assert dovetail.interval_join(whole, whole, max_gap=0).count() == 1


def test_a_fraction_of_a_length_beyond_64_bits(spark: SparkSession) -> None:
    long, third = intervals(spark, "bigint", (-(2**63), 2**62)), intervals(spark, "bigint", (0, 2**62))
    assert dovetail.interval_join(long, third, min_fraction=0.5).count() == 0
    assert dovetail.interval_join(long, third, min_fraction=0.3).count() == 1


@pytest.mark.parametrize(("one", "other"), [((2.5, inf), (inf, inf)), ((-inf, 0.25), (-inf, -inf))])
def test_points_at_infinity_have_no_length(spark: SparkSession, one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    left, right = intervals(spark, "double", one), intervals(spark, "double", other)
    assert dovetail.interval_join(left, right, closed="both", min_overlap=1.0).count() == 0
    assert dovetail.interval_join(left, right, closed="both").count() == 1


@pytest.mark.parametrize(
    "rows", [[(-1e308, 1e308), (0.0, 1.0)], [(-inf, 0.0), (-inf, 1.0)], [(-inf, inf), (1.7e308, inf)]]
)
def test_the_largest_doubles(spark: SparkSession, rows: list[tuple[Any, Any]]) -> None:
    frame = intervals(spark, "double", *rows)
    wanted = sum(a < d and c < b for a, b in rows for c, d in rows)
    assert dovetail.interval_join(frame, frame).count() == wanted
    assert dovetail.interval_join(frame, frame, route="native").count() == wanted
    assert dovetail.interval_join(frame, frame, max_gap=1.0).count() >= wanted
    within = dovetail.band_join(frame, frame, within=("start", "start", -1e308, 1e308))
    assert within.count() == sum(a == c or -1e308 <= a - c <= 1e308 for a, _ in rows for c, _ in rows)


@pytest.mark.usefixtures("times_of_day")
def test_the_overlap_of_times_of_day_is_times_of_day(spark: SparkSession) -> None:
    left = spark.sql("select time'08:00:00' as start, time'10:00:00' as end")
    right = spark.sql("select time'09:00:00.5' as start, time'11:00:00' as end")
    [row] = dovetail.interval_join(left, right, with_overlap=True).collect()
    assert (row.overlap_start, row.overlap_end) == (time(9, 0, 0, 500_000), time(10))


def test_differences_that_spark_rounds_are_refused(spark: SparkSession) -> None:
    """One of decimals with 38 digits has no room for its last digit."""
    wide = intervals(spark, "decimal(38,10)", (Decimal(0), Decimal(1)))
    with pytest.raises(PlanError, match="cast them to at most 37 digits") as error:
        dovetail.interval_join(wide, wide, with_overlap=True)
    assert error.value.argument == "with_overlap"
    fits = intervals(spark, "decimal(37,10)", (Decimal(0), Decimal("0.0000000001")))
    [row] = dovetail.interval_join(fits, fits, with_overlap=True).collect()
    assert row.overlap_length == Decimal("0.0000000001")
    for given in ({"tolerance": 1}, {"direction": "nearest"}):
        with pytest.raises(PlanError, match="cast them to at most 37 digits"):
            dovetail.asof_join(wide, wide, on="start", **given)  # type: ignore[arg-type]  # one option of each kind
    assert dovetail.asof_join(wide, wide, on="start").count() == 1


def test_a_least_overlap_or_a_gap_beyond_64_bits(spark: SparkSession) -> None:
    whole, long = intervals(spark, "int", (0, 10)), intervals(spark, "bigint", (-(2**63), 2**63 - 1))
    for least in (2**63, 2**70, 1e300, 10**400):
        assert dovetail.interval_join(whole, whole, min_overlap=least).count() == 0
    assert dovetail.interval_join(long, long, min_overlap=2**63 + 5).count() == 1
    far = intervals(spark, "double", (0.0, 1.0)), intervals(spark, "double", (1e299, 1e300))
    assert dovetail.interval_join(*far, max_gap=1e300).count() == 1
    assert dovetail.interval_join(*far, max_gap=1e18).count() == 0
    with pytest.raises(PlanError, match=r"min_overlap=datetime.timedelta\(seconds=60\) is a length of time"):
        dovetail.interval_join(whole, whole, min_overlap="1 min")


def test_an_overlap_longer_than_64_bits_is_an_error(spark: SparkSession) -> None:
    long = intervals(spark, "bigint", (-(2**63), 2**63 - 1))
    with pytest.raises(DataError, match="an overlap is longer than 2"):
        dovetail.interval_join(long, long, with_overlap=True).collect()
    short = intervals(spark, "bigint", (0, 2**63 - 1))
    [row] = dovetail.interval_join(long, short, with_overlap=True, how="left").collect()
    assert row.overlap_length == 2**63 - 1


def test_names_that_differ_in_case_alone_are_told_so(spark: SparkSession) -> None:
    frame = intervals(spark, "int", (0, 10)).selectExpr("start", "end", "start as begin")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for join in (dovetail.interval_join, dovetail.interval_nearest):
            with pytest.raises(PlanError, match=r"\['Start', 'start'\] would differ in case alone .*; rename them"):
                join(frame.withColumnRenamed("begin", "Start"), frame)
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")
