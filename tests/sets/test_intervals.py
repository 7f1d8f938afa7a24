"""The helpers that give columns of changed intervals."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import PlanError
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


def test_wrong_amounts() -> None:
    assert dovetail.intervals is intervals
    with pytest.raises(PlanError, match="length of time"):
        intervals.shift("start", "end", "soon")
    with pytest.raises(PlanError, match="did you mean 'left'"):
        intervals.flank("start", "end", 3, "lft")  # type: ignore[arg-type]  # a wrong word
