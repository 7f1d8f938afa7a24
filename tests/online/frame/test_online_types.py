"""`online_join` of columns of several types, compared in Spark's common type; open bands of times."""

from __future__ import annotations

from collections import Counter
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.oracle import bag as frozen

import dovetail
from dovetail.errors import PlanError
from dovetail.joins.online.api import online_join, online_multijoin, plan_online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIXED = [
    ("int", "bigint"),
    ("bigint", "smallint"),
    ("decimal(10,2)", "decimal(12,4)"),
    ("int", "decimal(9,2)"),
    ("float", "double"),
    ("int", "double"),
]
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


def sides(spark: SparkSession, kinds: tuple[str, str], n: int = 60) -> tuple[DataFrame, DataFrame]:
    left = spark.range(n).selectExpr(f"cast(if(id % 7 = 0, null, id % 20) as {kinds[0]}) as k", "id as a")
    right = spark.range(n).selectExpr(f"cast(if(id % 9 = 0, null, id % 30) as {kinds[1]}) as k", "id as b")
    return left, right


def bag(frame: DataFrame) -> Counter[Any]:
    return frozen(tuple(row) for row in frame.collect())


@pytest.mark.parametrize("kinds", MIXED)
def test_keys_of_two_types_equal_sparks_own_join(spark: SparkSession, kinds: tuple[str, str]) -> None:
    left, right = sides(spark, kinds)
    for how in HOWS:
        own, ours = left.join(right, "k", how), online_join(left, right, on="k", how=how, memory="1MB", partitions=2)
        assert bag(ours) == bag(own), how
        if how not in ("right", "full"):
            assert ours.schema["k"].dataType == left.schema["k"].dataType, how
    named = right.withColumnRenamed("k", "l")
    pairs = online_join(left, named, on=[("k", "l")], partitions=2)
    assert [f.dataType for f in pairs.schema] == [f.dataType for f in (*left.schema, *named.schema)]
    assert bag(pairs) == bag(left.join(named, F.col("k") == F.col("l")))
    hot = online_join(left, right, on="k", hot=[3], partitions=3)
    assert bag(hot) == bag(left.join(right, "k"))


@pytest.mark.parametrize("kinds", MIXED)
def test_bands_and_intervals_of_two_types(spark: SparkSession, kinds: tuple[str, str]) -> None:
    left, right = sides(spark, kinds)
    named = right.withColumnRenamed("k", "l")
    own = left.join(named, F.expr("l - k between -1 and 2"))
    assert bag(online_join(left, named, within=("k", "l", -1, 2), memory="1MB", partitions=2)) == bag(own)
    ends = named.withColumn("m", F.expr("l + 2"))
    found = online_join(
        left, ends, relation="during", left_interval="k", right_interval=("l", "m"), closed="both", memory="1MB"
    )
    assert bag(found) == bag(left.join(ends, F.expr("k >= l and k <= m")))


def test_dates_with_timestamps_and_many_inputs(spark: SparkSession) -> None:
    days = spark.createDataFrame([(date(2024, 1, 2),)], "day date")
    times = spark.sql(
        "select timestamp_ntz'2024-01-02 01:00:00' as at union all select timestamp_ntz'2024-01-03 01:00:00'"
    )
    near = online_join(days, times, within=("day", "at", timedelta(0), timedelta(hours=2)))
    assert near.count() == 1
    a, b = sides(spark, ("int", "bigint"))
    c = spark.range(40).selectExpr("cast(id as decimal(20,0)) as k", "id as c")
    found = online_multijoin({"a": a, "b": b, "c": c}, on=[("a.k", "b.k"), ("b.k", "c.k")], columns=["a", "b", "c"])
    own = a.join(b, "k").join(c.withColumnRenamed("k", "ck"), F.expr("k = ck")).select("a", "b", "c")
    assert bag(found) == bag(own)
    banded = online_multijoin({"a": a, "b": b}, on=[("a.k", "b.k", 0, 1)], columns=["a", "b"])
    assert bag(banded) == bag(a.alias("x").join(b.alias("y"), F.expr("y.k - x.k between 0 and 1")).select("a", "b"))


def test_what_does_not_compare_is_refused(spark: SparkSession) -> None:
    ints, texts = spark.sql("select 1 as k"), spark.sql("select 'a' as k")
    with pytest.raises(PlanError, match=r"key 'k': int and string do not compare; cast one") as caught:
        online_join(ints, texts, on="k")
    assert caught.value.argument == "on"
    with pytest.raises(PlanError, match="do not compare"):
        online_multijoin({"a": ints, "b": texts}, on=[("a.k", "b.k")])
    wide = spark.sql("select cast(1 as decimal(10,2)) as l")
    with pytest.raises(PlanError, match=r"at most 18 digits"):
        online_join(spark.range(1), wide, within=("id", "l", 0, 1))


@pytest.mark.timeout(120)
def test_streams_of_two_types(spark: SparkSession, tmp_path: Path) -> None:
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
    left = spark.readStream.schema("k int, a int").csv(str(tmp_path / "left"))
    right = spark.readStream.schema("k bigint, b int").csv(str(tmp_path / "right"))
    joined = online_join(left, right, on="k", retain="1 hour", partitions=2)
    for number in range(2):  # the second run reads the state of the first
        for side in ("left", "right"):
            (tmp_path / side / f"{number}.csv").write_text(f"1,{number}\n{5 + number},{number}\n")
        query = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.schema.simpleString() == "struct<k:int,a:int,b:int>"
    assert sorted(map(tuple, found.collect())) == [
        (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1), (5, 0, 0), (6, 1, 1),
    ]  # fmt: skip


@pytest.mark.usefixtures("times_of_day")
def test_open_bands_of_times_of_day(spark: SparkSession) -> None:
    micro = timedelta(microseconds=1)
    at = [time(10), time(11), time(11, 0, 0, 1), time(9), time(8, 59, 59, 999999), time(10, 30)]
    left = spark.createDataFrame([(time(10),)], "lt time(6)")
    right = spark.createDataFrame([(value,) for value in at], "rt time(6)")
    hour = timedelta(hours=1)
    for closed, wanted in (
        ("both", [time(9), time(10), time(10, 30), time(11)]),
        ("left", [time(9), time(10), time(10, 30)]),
        ("right", [time(10), time(10, 30), time(11)]),
        ("neither", [time(10), time(10, 30)]),
    ):
        found = online_join(left, right, within=("lt", "rt", -hour, hour), closed=closed)  # type: ignore[arg-type]
        assert sorted(row.rt for row in found.collect()) == wanted, closed
    plan = plan_online_join(left, right, within=("lt", "rt", -hour, micro), closed="neither", partitions=1)
    assert "on -1:00:00 < rt - lt < 0:00:00.000001" in plan.explain()


def test_messages_show_bounds_as_they_were_given(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 1.5, Decimal("1.5"))], "i int, d double, c decimal(4,2)")
    other = frame.toDF("j", "e", "f")
    for pair, bound in ((("i", "j"), 0), (("d", "e"), 0.0), (("c", "f"), Decimal(0))):
        with pytest.raises(PlanError, match=r"band 0(\.0)? < . - . < 0(\.0)? .*no distance left with closed='neither'"):
            online_join(frame, other, within=(*pair, bound, bound), closed="neither")
    plan = plan_online_join(frame, other, within=("d", "e", 0.0, 2.5), closed="right", partitions=1)
    assert "0.0 < e - d <= 2.5" in plan.explain()
    assert "e-324" not in plan.explain()
    with pytest.raises(PlanError, match="band from -0:00:01 to 5: give two numbers or two timedeltas"):
        online_join(frame, other, within=("i", "j", timedelta(seconds=-1), 5))
    with pytest.raises(PlanError, match="width -5 is below zero"):
        online_join(frame, frame, within=("i", -5))
    for wrong in (("i", None), 5, ("i",)):
        with pytest.raises(PlanError, match=r"is no band|is a NoneType"):
            online_join(frame, frame, within=wrong)  # type: ignore[arg-type]


def test_bands_of_times_take_seconds(spark: SparkSession) -> None:
    left = spark.sql("select timestamp_ntz'2024-01-01 10:00:00' as at, date'2024-01-01' as day, 1 as l")
    right = spark.sql(
        "select timestamp_ntz'2024-01-01 10:00:00' + make_dt_interval(0, 0, 0, id) as then, id as r from range(-9, 10)"
    )
    seconds = online_join(left, right, within=("at", "then", -2, 1.5))
    assert bag(seconds) == bag(online_join(left, right, within=("at", "then", timedelta(seconds=-2), "1.5 s")))
    assert seconds.count() == bag(dovetail.band_join(left, right, within=("at", "then", -2, 1.5))).total() == 4
    many = online_multijoin({"a": left, "b": right}, on=[("a.at", "b.then", -2, Decimal("1.5"))], columns=["l", "r"])
    assert sorted(row.r for row in many.collect()) == [-2, -1, 0, 1]
    days = online_join(left, left.toDF("at2", "day2", "m"), within=("day", "day2", 0, 86_400))
    assert days.count() == 1
    with pytest.raises(PlanError, match="timedeltas"):
        online_join(left, right, within=("at", "then", 0, 1e300))


def test_types_that_python_does_not_get_are_named(spark: SparkSession) -> None:
    frame = spark.sql("select 1 as k, interval '1' year as age")
    with pytest.raises(PlanError, match="column 'age' has type interval year, which Spark does not give to Python"):
        online_join(frame, frame.selectExpr("k"), on="k")
    with pytest.raises(PlanError, match="column 'age'"):
        online_multijoin({"a": frame, "b": frame}, on=[("a.k", "b.k")])
