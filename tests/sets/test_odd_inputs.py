"""Sets of intervals over odd inputs: infinite bounds, zones, names, widths; and errors that are not ours."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

import dovetail
from dovetail.errors import DovetailError, PlanError

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
