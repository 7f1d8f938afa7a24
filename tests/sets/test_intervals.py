"""The helpers that give columns of changed intervals."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import DataError, PlanError
from dovetail.joins.sets.api import intervals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2024, 3, 1, 12)


def at(minutes: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def test_changed_intervals(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(10, 14), (None, 3)], "start int, end int")
    cases: list[tuple[Any, tuple[int, int]]] = [
        (intervals.expand("start", "end", 3), (7, 17)),
        (intervals.expand("start", "end", 0, 2), (10, 16)),
        (intervals.expand(F.col("start"), "end", -1), (11, 13)),
        (intervals.shift("start", "end", -4), (6, 10)),
        (intervals.trim("start", "end", 11), (11, 14)),
        (intervals.trim("start", "end", high=F.lit(12)), (10, 12)),
        (intervals.flank("start", "end", 2), (8, 10)),
        (intervals.flank("start", "end", 2, "right"), (14, 16)),
    ]
    columns = [F.struct(*pair) for pair, _ in cases]
    found = frame.select(*columns).collect()
    assert [tuple(value) for value in found[0]] == [wanted for _, wanted in cases]
    assert found[1][0] == (None, 6)


def test_times_and_tiles(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(at(0), at(50)), (at(0), at(0)), (None, at(1))], "start timestamp_ntz, end timestamp_ntz"
    )
    start, end = intervals.expand("start", "end", "10 min", dt.timedelta(hours=1))
    assert tuple(frame.select(start, end).collect()[0]) == (at(-10), at(110))
    tiles = [row[0] for row in frame.select(intervals.tile("start", "end", "20 min")).collect()]
    assert [tuple(piece) for piece in tiles[0]] == [(at(0), at(20)), (at(20), at(40)), (at(40), at(50))]
    assert tiles[1:] == [[], None]
    whole = spark.createDataFrame([(3, 9)], "start int, end int")
    assert [tuple(row) for row in whole.select(F.inline(intervals.tile("start", "end", 3))).collect()] == [
        (3, 6),
        (6, 9),
    ]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_the_last_tile_at_the_end_of_a_type(spark: SparkSession, ansi: str) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for kind, most in (("int", 2**31 - 1), ("bigint", 2**63 - 1)):
            rows = spark.createDataFrame([(most - 3, most)], f"start {kind}, end {kind}")
            pieces = rows.select(F.inline(intervals.tile("start", "end", 2))).collect()
            assert [tuple(row) for row in pieces] == [(most - 3, most - 1), (most - 1, most)]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")


def test_tiles_of_dates_have_whole_days(spark: SparkSession) -> None:
    days = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 4))], "start date, end date")
    pieces = days.select(F.inline(intervals.tile("start", "end", "48 h"))).collect()
    assert [row[0] for row in pieces] == [dt.date(2024, 1, 1), dt.date(2024, 1, 3)]
    for width in ("36 h", dt.timedelta(hours=36)):
        with pytest.raises(DataError, match="no whole number of days"):
            days.select(intervals.tile("start", "end", width)).collect()
    for wrong in (0, -2, 1.5, "0 s", dt.timedelta(0), True):
        with pytest.raises(PlanError, match=r"above zero|not a length of time") as caught:
            intervals.tile("start", "end", wrong)
        assert caught.value.argument == "width"


def test_wrong_amounts() -> None:
    assert dovetail.intervals is intervals
    with pytest.raises(PlanError, match="length of time"):
        intervals.shift("start", "end", "soon")
    with pytest.raises(PlanError, match="did you mean 'left'"):
        intervals.flank("start", "end", 3, "lft")  # type: ignore[arg-type]  # a wrong word
