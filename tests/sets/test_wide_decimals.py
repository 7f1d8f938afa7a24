"""Sets of intervals over decimals of many digits: rows are exact, or a request is refused."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pytest

import dovetail
from dovetail.errors import DataError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.set("spark.sql.ansi.enabled", before)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


E = Decimal("0.0000000001")


def tiny(spark: SparkSession, kind: str) -> DataFrame:
    pairs = [(0 * E, 2 * E), (4 * E, 5 * E), (8 * E, 12 * E), (9 * E, 10 * E)]
    return spark.createDataFrame(pairs, f"start {kind}, end {kind}")


@pytest.mark.usefixtures("ansi")
def test_decimals_of_38_digits_are_compared_exactly(spark: SparkSession) -> None:
    frame = tiny(spark, "decimal(38, 10)")
    merged = [(0 * E, 2 * E, 1), (4 * E, 5 * E, 1), (8 * E, 12 * E, 2)]
    assert rows(dovetail.interval_merge(frame)) == merged
    assert rows(dovetail.interval_complement(frame)) == [(2 * E, 4 * E), (5 * E, 8 * E)]
    assert (8 * E, 9 * E, 1) in rows(dovetail.interval_depth(frame))
    assert (10 * E, 12 * E) in rows(dovetail.make_disjoint(frame))
    assert dovetail.interval_subtract(frame, frame).count() == dovetail.interval_setdiff(frame, frame).count() == 0


def test_differences_of_decimals_of_38_digits_are_refused(spark: SparkSession) -> None:
    frame = tiny(spark, "decimal(38, 10)")
    for call, argument in (
        (lambda: dovetail.interval_merge(frame, gap=E), "gap"),
        (lambda: dovetail.interval_cluster(frame, gap=E), "gap"),
        (lambda: dovetail.interval_coverage(frame, frame), "left_interval"),
    ):
        with pytest.raises(PlanError, match=r"cast the bounds to decimal\(37, 10\) or fewer digits") as caught:
            call()
        assert caught.value.argument == argument


@pytest.mark.usefixtures("ansi")
def test_differences_of_decimals_of_37_digits(spark: SparkSession) -> None:
    frame = tiny(spark, "decimal(37, 10)")
    assert rows(dovetail.interval_merge(frame, gap=E)) == [
        (0 * E, 2 * E, 1),
        (4 * E, 5 * E, 1),
        (8 * E, 12 * E, 2),
    ]
    assert dovetail.interval_merge(frame, gap=2 * E).count() == 2
    covered = [(row.n_overlaps, row.covered, row.covered_fraction) for row in rows_of(frame)]
    assert covered == [(1, 2 * E, 1.0), (1, E, 1.0), (2, 4 * E, 1.0), (2, E, 1.0)]
    least = spark.sql(
        "select cast('0.000000000000000002' as decimal(18, 18)) as end, cast(0 as decimal(18, 18)) as start"
    )
    assert [row.covered for row in dovetail.interval_coverage(least, least).collect()] == [Decimal("2e-18")]
    whole = spark.createDataFrame(
        [(Decimal(0), Decimal(10**20)), (Decimal(10**37), Decimal(9 * 10**37))],
        "start decimal(38, 0), end decimal(38, 0)",
    )
    assert dovetail.interval_merge(whole, gap=10**30).count() == 2


def rows_of(frame: DataFrame) -> list[Any]:
    return dovetail.interval_coverage(frame, frame).orderBy("start").collect()


@pytest.mark.usefixtures("ansi")
@pytest.mark.parametrize("kind", ["decimal(36, 10)", "decimal(37, 10)", "decimal(38, 10)"])
def test_windows_of_wide_decimals_are_exact(spark: SparkSession, kind: str) -> None:
    found = dovetail.interval_window(tiny(spark, kind), width=3 * E).drop("end")
    wanted = [(0, 0, 3, 2), (4, 3, 6, 1), (8, 6, 9, 1), (8, 9, 12, 3), (9, 9, 12, 1)]
    assert rows(found) == [tuple(n * E for n in row) for row in wanted]
    pivot = dovetail.interval_pivot(tiny(spark, kind), width=3 * E, origin=E).select("window_start", "overlap")
    wanted = [(-2, 1), (1, 1), (4, 1), (7, 3), (10, 2)]
    assert rows(pivot) == [tuple(n * E for n in row) for row in wanted]
    odd = Decimal("12345678.0000000003")
    one = spark.createDataFrame([(odd * 7, odd * 7 + E)], f"start {kind}, end {kind}")
    assert rows(dovetail.interval_window(one, width=odd)) == [(odd * 7, odd * 7 + E, odd * 7, odd * 8, E)]


@pytest.mark.usefixtures("ansi")
def test_windows_of_decimals_that_have_no_room(spark: SparkSession) -> None:
    most = Decimal("9" * 38).scaleb(-10, Context(prec=60))
    frame = spark.createDataFrame([(Decimal(0), most), (most, most)], "start decimal(38, 10), end decimal(38, 10)")
    with pytest.raises(DataError, match=r"meets a window beyond decimal\(38,10\)"):
        dovetail.interval_window(frame, width=2**20).collect()
    fine = spark.sql("select cast(0 as decimal(37, 30)) as start, cast(1 as decimal(37, 30)) as end")
    with pytest.raises(PlanError, match="more than 27 digits after the point"):
        dovetail.interval_window(fine, width=Decimal("1e-12"))
