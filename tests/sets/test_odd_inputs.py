"""Sets of intervals over odd inputs: infinite bounds, zones, names, widths; and errors that are not ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import DataError, DovetailError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def test_infinite_right_bounds_cover_a_finite_length(spark: SparkSession) -> None:
    kind = "start double, end double"
    left = spark.createDataFrame([(0.0, 10.0), (-20.0, -2.0), (30.0, 31.0)], kind)
    for right, covered in (
        ([(2.0, inf)], [0.0, 1.0, 8.0]),
        ([(-inf, -5.0), (1.0, 2.0), (1.5, inf)], [1.0, 9.0, 15.0]),
        ([(-inf, inf), (3.0, 4.0)], [1.0, 10.0, 18.0]),
        ([(-inf, 3.0), (7.0, 8.0)], [0.0, 4.0, 18.0]),
    ):
        found = dovetail.interval_coverage(left, spark.createDataFrame(right, kind))
        assert sorted(row.covered for row in found.collect()) == covered


def test_the_coverage_of_rows_without_an_end(spark: SparkSession) -> None:
    kind = "start double, end double"
    left = spark.createDataFrame([(-inf, 4.0), (0.0, inf), (-inf, inf), (3.0, 5.0)], kind)
    for right, wanted in (
        ([(1.0, 2.0)], [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (0.0, 0.0)]),
        ([(-inf, 0.0), (3.0, 4.0)], [(inf, None), (1.0, 0.0), (inf, None), (1.0, 0.5)]),
        ([(4.0, inf)], [(0.0, 0.0), (inf, None), (inf, None), (1.0, 0.5)]),
    ):
        found = dovetail.interval_coverage(left, spark.createDataFrame(right, kind))
        assert [(row.covered, row.covered_fraction) for row in found.collect()] == wanted


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.set("spark.sql.ansi.enabled", before)


LARGEST, LEAST = 2**63 - 1, -(2**63)


@pytest.mark.usefixtures("ansi")
def test_gaps_beyond_64_bits_are_gaps(spark: SparkSession) -> None:
    ends = [(LEAST, LEAST + 1), (LARGEST - 1, LARGEST)]
    frame = spark.createDataFrame(ends, "start bigint, end bigint")
    for gap in (0, 1, LARGEST):
        assert rows(dovetail.interval_merge(frame, gap=gap)) == sorted(((*pair, 1) for pair in ends), key=str)
    assert rows(dovetail.interval_merge(frame, gap=2**64)) == [(LEAST, LARGEST, 2)]
    assert dovetail.interval_cluster(frame, gap=5).select("cluster").distinct().count() == 2
    whole, some = (spark.createDataFrame([pair], frame.schema) for pair in ((LEAST, LARGEST), (0, 2**32)))
    assert rows(dovetail.interval_coverage(whole, some))[0][2:] == (1, 2**32, 2.0**-32)


@pytest.mark.usefixtures("ansi")
def test_windows_at_the_ends_of_a_type(spark: SparkSession) -> None:
    top = 2**31 - 1
    whole = spark.createDataFrame([(top - 20, top)], "start int, end int")
    windows = dovetail.interval_window(whole, width=7, origin=top).select("window_start", "overlap")
    assert rows(windows) == sorted([(top - 21, 6), (top - 14, 7), (top - 7, 7)], key=str)
    least = spark.createDataFrame([(LEAST, LEAST + 3)], "start bigint, end bigint")
    windows = dovetail.interval_window(least, width=2).select("window_start", "overlap")
    assert rows(windows) == sorted([(LEAST, 2), (LEAST + 2, 1)], key=str)
    tenths = spark.sql("select 9.5BD as start, 9.8BD as end")
    assert rows(dovetail.interval_pivot(tenths, width=0.3).select("n_overlaps")) == [(1,), (1,)]
    largest = spark.createDataFrame([(LARGEST - 5, LARGEST)], "start bigint, end bigint")
    far = spark.createDataFrame([(0, LARGEST)], "start bigint, end bigint")
    for frame, width, said in (
        (whole, 60, f"start and end from {top - 20} to {top} meets a window beyond int"),
        (least, 60, "beyond bigint"),
        (largest, 60, "beyond bigint"),
        (tenths, 1, "beyond decimal"),
        (far, 1, "more than 1,073,741,824 windows"),
        (spark.createDataFrame([(0.0, 1e10)], "start double, end double"), 1, "more than 1,073,741,824 windows"),
        (spark.createDataFrame([(0.0, inf)], "start double, end double"), 1, "to tell windows apart"),
        (spark.createDataFrame([(1e300, 1e301)], "start double, end double"), 1, "to tell windows apart"),
    ):
        with pytest.raises(DataError, match=said):
            dovetail.interval_window(frame, width=width).collect()


def test_many_windows_of_one_row_are_made_in_parts(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", -70_000, 70_001)], "k string, start int, end int")
    found = dovetail.interval_window(frame, width=2, origin=1).selectExpr(
        "count(*)", "count(distinct window_start)", "min(window_start)", "max(window_end)", "sum(overlap)"
    )
    assert rows(found) == [(70_001, 70_001, -70_001, 70_001, 140_001)]


def test_an_origin_between_two_bounds_is_refused(spark: SparkSession) -> None:
    days = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 4))], "start date, end date")
    cents = spark.sql("select 1.25BD as start, 2.50BD as end")
    for frame, width, origin in ((days, "2 days", dt.datetime(2024, 1, 1, 5)), (cents, 1, 0.125)):
        with pytest.raises(PlanError, match="is no value of the type of the bounds") as caught:
            dovetail.interval_window(frame, width=width, origin=origin)
        assert caught.value.argument == "origin"
    assert dovetail.interval_window(days, width="2 days", origin=dt.datetime(2024, 1, 1)).count() == 2


def test_limits_that_bounds_cannot_have_are_refused(spark: SparkSession) -> None:
    whole = spark.createDataFrame([(5, 7)], "start int, end int")
    floats = whole.selectExpr("float(start) as start", "float(end) as end")
    tenths = whole.selectExpr("cast(start as decimal(5, 1)) as start", "cast(end as decimal(5, 1)) as end")
    days = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 4))], "start date, end date")
    wide = spark.createDataFrame([(0, 2**40)], "start long, end long")
    noon = dt.datetime(2023, 1, 1, 12)
    for frame, limits, said in (
        (
            whole,
            (0, 2**40),
            "limits=1099511627776 is no value of the type of the bounds, int; .* to bigint",
        ),
        (whole, wide, "limits of type bigint does not fit bounds of type int"),
        (tenths, (0.25, 40), "limits=0.25 is no value"),
        (floats, (0.1, 1e300), "limits=1e.300 is no value"),
        (floats.selectExpr("double(start) as start", "double(end) as end"), (1, nan), "limits=nan is no value"),
        (days, (noon, None), "is no value of the type of the bounds, date"),
    ):
        with pytest.raises(PlanError, match=said) as caught:
            dovetail.interval_complement(frame, limits=limits)
        assert caught.value.argument == "limits"
    assert rows(dovetail.interval_complement(floats, limits=(0.5, 9))) == [(0.5, 5.0), (7.0, 9.0)]
    assert rows(dovetail.interval_complement(floats, limits=(6.0, inf))) == [(7.0, inf)]


def test_inverted_limits_are_as_invalid_says(spark: SparkSession) -> None:
    busy = spark.createDataFrame([(5, 7)], "start int, end int")
    limits = spark.createDataFrame([(9, 2), (0, 8)], "start int, end int")
    with pytest.raises(DataError, match="limits input has an interval that ends before it starts"):
        dovetail.interval_complement(busy, limits=limits).collect()
    for invalid in ("drop", "null"):
        assert rows(dovetail.interval_complement(busy, limits=limits, invalid=invalid)) == [(0, 5), (7, 8)]  # type: ignore[arg-type]  # both are known


def test_aggregates_do_not_see_columns_of_ours(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 3), (1, 3), (2, 5)], "start int, end int")
    for star in ("collect_list(struct(*))", "count(distinct *)", "count(struct(*))", "sum(hash(*))"):
        with pytest.raises(PlanError, match="name the columns") as caught:
            dovetail.interval_merge(frame, aggregates={"x": star})
        assert caught.value.argument == "aggregates"
    with pytest.raises(PlanError, match="name the columns"):
        dovetail.interval_merge(frame, aggregates=[F.count(F.struct("*")).alias("x")])
    with pytest.raises(PlanError, match=r"(?s)do not fit the columns.*generator"):
        dovetail.interval_merge(frame, aggregates={"x": "explode(collect_list(end))"})
    counted = dovetail.interval_merge(frame, aggregates={"n": "count(*)", "m": "count(distinct start, end)"})
    assert rows(counted) == [(1, 5, 3, 3, 2)]


def test_one_column_as_both_bounds_needs_another_for_the_answer(spark: SparkSession) -> None:
    points = spark.createDataFrame([(1,), (4,)], "start int")
    with pytest.raises(PlanError, match="name two columns") as caught:
        dovetail.interval_merge(points, interval=("start", "start"), closed="both")
    assert caught.value.argument == "interval"
    numbers = dovetail.interval_cluster(points, interval=("start", "start"), closed="both").select("start", "cluster")
    assert rows(numbers) == [(1, 0), (4, 1)]


@pytest.mark.parametrize("partitions", [None, 3])
def test_points_at_infinity_are_covered_by_nothing(spark: SparkSession, partitions: int | None) -> None:
    frame = spark.createDataFrame([(inf, inf), (0.0, inf), (1.0, 2.0)], "start double, end double")
    found = dovetail.interval_coverage(frame, frame, closed="both", partitions=partitions)
    assert rows(found.select("start", "n_overlaps", "covered")) == [(0.0, 3, inf), (1.0, 2, 1.0), (inf, 2, 0.0)]


@pytest.mark.usefixtures("elsewhere")
def test_times_without_a_zone_are_read_as_they_are(spark: SparkSession) -> None:
    def at(hour: int, minute: int = 0) -> dt.datetime:
        return dt.datetime(2024, 3, 10, hour, minute)

    frame = spark.createDataFrame([(at(0, 30), at(4, 30))], "start timestamp_ntz, end timestamp_ntz")
    windows = dovetail.interval_window(frame, width="2 h", origin=at(0, 30)).select("window_start")
    assert rows(windows) == [(at(0, 30),), (at(2, 30),)]
    assert rows(dovetail.interval_complement(frame, limits=(at(0), at(5)))) == [
        (at(0), at(0, 30)),
        (at(4, 30), at(5)),
    ]


def test_a_width_that_bounds_cannot_tell_apart_is_refused(spark: SparkSession) -> None:
    numbers = spark.createDataFrame([(0, 5)], "start int, end int")
    days = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 4))], "start date, end date")
    for frame, width in ((numbers, 1.5), (numbers, 0.5), (days, "36 h")):
        with pytest.raises(PlanError, match="whole number of what bounds"):
            dovetail.interval_window(frame, width=width)
    assert dovetail.interval_window(days, width="48 h").count() == 2


def test_a_least_overlap_is_rounded_up(spark: SparkSession) -> None:
    left, right = (spark.createDataFrame([pair], "start int, end int") for pair in ((0, 5), (4, 9)))
    assert dovetail.interval_join(left, right, min_overlap=1).count() == 1
    assert dovetail.interval_join(left, right, min_overlap=1.5).count() == 0


def test_names_with_quotes_and_names_of_results(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 0, 5), (1, 3, 8)], "piece int, start int, end int")
    assert rows(dovetail.interval_depth(frame, on="piece")) == [(1, 0, 3, 1), (1, 3, 5, 2), (1, 5, 8, 1)]
    assert rows(dovetail.interval_depth(frame.toDF("best", "start", "end"), on="best", keep="largest")) == [
        (1, 3, 5, 2)
    ]
    quotes = frame.toDF("k", "a`", "`.`")
    assert rows(dovetail.make_disjoint(quotes, interval=("a`", "`.`"))) == [(1, 0, 3), (1, 3, 5), (1, 3, 5), (1, 5, 8)]
    merged = dovetail.interval_merge(quotes, interval=("a`", "`.`"))
    assert (merged.columns, rows(merged)) == (["a`", "`.`", "n_merged"], [(0, 8, 2)])
    for call, names in (
        (dovetail.interval_merge, ("n_merged", "start", "end")),
        (dovetail.interval_depth, ("depth", "start", "end")),
    ):
        with pytest.raises(PlanError, match="of one name; rename"):
            call(frame.toDF(*names), on=names[0])


def test_errors_of_analysis_stay_sparks(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0, 5)], "start int, end int")
    for made in (dovetail.interval_merge(frame), dovetail.interval_join(frame, frame)):
        with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN") as caught:
            made.select("nope")
        assert not isinstance(caught.value, DovetailError)


def test_names_of_fields_with_backslashes(spark: SparkSession) -> None:
    flat = spark.createDataFrame([(0, 5), (3, 8)], "a int, b int")
    frame = flat.selectExpr(r"struct(a as `s'a\b`, b as `s\e`) as `sp\'an`")
    span, fields = "sp\\'an", ["s'a\\b", "s\\e"]
    for call in (
        dovetail.interval_merge,
        dovetail.interval_depth,
        dovetail.interval_complement,
        dovetail.make_disjoint,
    ):
        assert call(frame, interval=span).schema[span].dataType.fieldNames() == fields
    assert [tuple(row[0]) for row in dovetail.interval_merge(frame, interval=span).collect()] == [(0, 8)]
    far = spark.range(1).selectExpr(rf"struct({LARGEST - 5}L as a, {LARGEST}L as b) as `sp\'an`")
    with pytest.raises(DataError, match=r"the interval of sp\\'an from "):
        dovetail.interval_window(far, interval=span, width=60).collect()


@pytest.mark.usefixtures("ansi")
def test_day_time_intervals_of_any_length(spark: SparkSession) -> None:
    days, least = 106_751_990, f"interval '{LEAST // 10**6 + 1}' second"
    frame = spark.sql(
        f"select cast({least} as interval day to second) as start, interval '0 00:00:01' day to second as end"
    )
    long = spark.sql(
        f"select interval '0 00:00:00' day to second as start, interval '{days} 00:00:01.000001' day to second as end"
    )
    both = frame.union(long)
    text = "cast(start as string)", "cast(end as string)"
    first, last = (tuple(part.selectExpr(*text).collect()[0]) for part in (frame, long))
    assert rows(dovetail.interval_merge(both).selectExpr(*text)) == [(first[0], last[1])]
    pieces = {(first[0], last[0]), (last[0], first[1]), (first[1], last[1])}
    assert set(rows(dovetail.interval_depth(both).selectExpr(*text))) == pieces
    assert set(rows(dovetail.make_disjoint(both).selectExpr(*text))) == pieces


@pytest.mark.usefixtures("ansi")
def test_overlaps_that_add_up_beyond_64_bits(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(0, 2**62)] * 4, "start bigint, end bigint")
    with pytest.raises(DataError, match=r"more than 2\^63 - 1. Give a smaller width"):
        dovetail.interval_pivot(frame, width=2**62).collect()
    wide = frame.selectExpr("cast(start as decimal(20, 0)) as start", "cast(end as decimal(20, 0)) as end")
    assert [row.overlap for row in dovetail.interval_pivot(wide, width=2**62).collect()] == [2**64]
    times = frame.selectExpr("timestamp_micros(0) as start", "timestamp_micros(end) as end")
    found = dovetail.interval_pivot(times, width=dt.timedelta(microseconds=2**62))
    assert rows(found.select("overlap")) == [(2**64 / 10**6,)]


def test_limits_in_the_wrong_order_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, 5)], "start int, end int")
    days = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 4))], "start date, end date")
    for rows_, limits in ((frame, (9, 0)), (days, (dt.date(2024, 2, 1), dt.date(2024, 1, 1)))):
        with pytest.raises(PlanError, match=r"limits=.* end before they start; give \(start, end\)") as caught:
            dovetail.interval_complement(rows_, limits=limits)
        assert caught.value.argument == "limits"
    assert rows(dovetail.interval_complement(frame, limits=(9, 9))) == []
    assert rows(dovetail.interval_complement(frame, limits=(None, 9))) == [(5, 9)]
