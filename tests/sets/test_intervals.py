"""The helpers that give columns of changed intervals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import DataError, PlanError
from dovetail.joins.sets.api import intervals
from dovetail.request import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = dt.datetime(2024, 3, 1, 12)


def at(minutes: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def test_changed_intervals(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(10, 14), (None, 3)], "start int, end int")
    cases: list[tuple[Any, tuple[int, int]]] = [
        (intervals.expand("start", "end", by=3), (7, 17)),
        (intervals.expand("start", "end", by=0, after=2), (10, 16)),
        (intervals.expand(F.col("start"), "end", by=-1), (11, 13)),
        (intervals.shift("start", "end", by=-4), (6, 10)),
        (intervals.trim("start", "end", low=11), (11, 14)),
        (intervals.trim("start", "end", high=F.lit(12)), (10, 12)),
        (intervals.flank("start", "end", width=2), (8, 10)),
        (intervals.flank("start", "end", width=2, side="right"), (14, 16)),
    ]
    columns = [F.struct(*pair) for pair, _ in cases]
    found = frame.select(*columns).collect()
    assert [tuple(value) for value in found[0]] == [wanted for _, wanted in cases]
    assert found[1][0] == (None, 6)


def test_new_bounds_have_the_names_of_the_old_ones(spark: SparkSession) -> None:
    """Names in quotes lose them, and keep their dots; fields of structs give their own name."""
    frame = spark.sql("select 10 as `s.t`, 14 as `e``nd`, struct(1 as `a.b`, 2 as c) as at")
    for start, end, names in (
        ("`s.t`", "`e``nd`", ["s.t", "e`nd"]),
        ("at.`a.b`", "at.c", ["a.b", "c"]),
        ("`at`.`a.b`", "`at`.`c`", ["a.b", "c"]),
        (F.col("`s.t`"), "`e``nd`", ["start", "e`nd"]),
    ):
        for pair in (intervals.shift(start, end, by=1), intervals.flank(start, end, width=1)):
            assert frame.select(*pair).columns == names


def test_times_and_tiles(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(at(0), at(50)), (at(0), at(0)), (None, at(1))], "start timestamp_ntz, end timestamp_ntz"
    )
    start, end = intervals.expand("start", "end", by="10 min", after=dt.timedelta(hours=1))
    assert tuple(frame.select(start, end).collect()[0]) == (at(-10), at(110))
    tiles = [row[0] for row in frame.select(intervals.tile("start", "end", width="20 min")).collect()]
    assert [tuple(piece) for piece in tiles[0]] == [(at(0), at(20)), (at(20), at(40)), (at(40), at(50))]
    assert tiles[1:] == [[], None]
    whole = spark.createDataFrame([(3, 9)], "start int, end int")
    assert [tuple(row) for row in whole.select(F.inline(intervals.tile("start", "end", width=3))).collect()] == [
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
            pieces = rows.select(F.inline(intervals.tile("start", "end", width=2))).collect()
            assert [tuple(row) for row in pieces] == [(most - 3, most - 1), (most - 1, most)]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")


def test_tiles_of_dates_have_whole_days(spark: SparkSession) -> None:
    days = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 4))], "start date, end date")
    pieces = days.select(F.inline(intervals.tile("start", "end", width="48 h"))).collect()
    assert [row[0] for row in pieces] == [dt.date(2024, 1, 1), dt.date(2024, 1, 3)]
    for width in ("36 h", dt.timedelta(hours=36)):
        with pytest.raises(DataError, match="no whole number of days"):
            days.select(intervals.tile("start", "end", width=width)).collect()
    for wrong in (0, -2, 1.5, "0 s", dt.timedelta(0), True):
        with pytest.raises(PlanError, match=r"above zero|not a length of time") as caught:
            intervals.tile("start", "end", width=wrong)
        assert caught.value.argument == "width"


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")
    spark.conf.set("spark.sql.session.timeZone", before)


KINDS: list[tuple[str, Any, str]] = [
    ("tinyint", 3, "7"),
    ("smallint", 1000, "1004"),
    ("int", -3, "1"),
    ("bigint", 3, "7"),
    ("float", 1.5, "5.5"),
    ("float", Decimal("1.5"), "5.5"),
    ("float", 3, "7.0"),
    ("double", 3, "7.0"),
    ("date", dt.timedelta(days=1), "2024-03-10"),
    ("date", "3 days", "2024-03-12"),
    ("date", "48 h", "2024-03-11"),
    ("date", 2, "2024-03-11"),
    ("timestamp", dt.timedelta(hours=24), "2024-03-10 13:00:00"),
    ("timestamp", "24 h", "2024-03-10 13:00:00"),
    ("timestamp", dt.timedelta(days=-400), "2023-02-03 12:00:00"),
    ("timestamp", dt.timedelta(microseconds=1), "2024-03-09 12:00:00.000001"),
    ("timestamp_ntz", "24 h", "2024-03-10 12:00:00"),
    ("interval day", "24 h", "INTERVAL '5' DAY"),
    ("interval hour to minute", "2 h", "INTERVAL '06:05' HOUR TO MINUTE"),
    ("interval day to second", "2 days", "INTERVAL '2 00:00:04' DAY TO SECOND"),
    ("time(0)", "2 h", "14:00:00"),
    ("time(6)", "2 s", "12:00:02"),
]
VALUES = {
    "date": "date'2024-03-09'",
    "timestamp": "timestamp'2024-03-09 12:00:00'",
    "timestamp_ntz": "timestamp_ntz'2024-03-09 12:00:00'",
    "interval day": "interval '4' day",
    "interval hour to minute": "interval '04:05' hour to minute",
    "interval day to second": "interval '0 00:00:04' day to second",
    "time(0)": "cast(time'12:00:00' as time(0))",
    "time(6)": "time'12:00:00'",
}


def of_value(spark: SparkSession, value: str) -> DataFrame:
    return spark.range(1).selectExpr(f"{value} as start", f"{value} as end")


@pytest.mark.usefixtures("new_york")
def test_bounds_keep_their_type(spark: SparkSession) -> None:
    for kind, amount, wanted in KINDS:
        frame = of_value(spark, VALUES.get(kind, f"cast(4 as {kind})"))
        less = -(dt.timedelta(seconds=parse_seconds("by", amount)) if isinstance(amount, str) else amount)
        found = [
            *intervals.shift("start", "end", by=amount),
            *intervals.expand("start", "end", by=less, after=amount),
            intervals.flank("start", "end", width=amount, side="right")[1],
            intervals.flank("start", "end", width=less)[0],
        ]
        made = frame.select(*(column.alias(f"c{n}") for n, column in enumerate(found)))
        assert {field.dataType.simpleString() for field in made.schema} == {kind}, (kind, amount)
        texts = made.selectExpr(*(f"cast({name} as string)" for name in made.columns)).collect()[0]
        assert set(texts) == {wanted}, (kind, amount)


@pytest.mark.usefixtures("new_york")
def test_limits_have_the_type_of_bounds(spark: SparkSession) -> None:
    for kind, limit, wanted in (
        ("timestamp_ntz", dt.datetime(2024, 3, 10, 2, 30, 0, 5), "2024-03-10 02:30:00.000005"),
        ("timestamp_ntz", dt.datetime.max, "9999-12-31 23:59:59.999999"),
        ("timestamp", dt.datetime(2024, 3, 10, 12, tzinfo=dt.UTC), "2024-03-10 08:00:00"),
        ("tinyint", 5, "5"),
        ("smallint", 5, "5"),
        ("float", 5.5, "5.5"),
        ("decimal(9,2)", Decimal("5.25"), "5.25"),
        ("decimal(38,10)", Decimal("1E+2"), "100.0000000000"),
        ("date", dt.date(2025, 1, 1), "2025-01-01"),
        ("interval day", dt.timedelta(days=9), "INTERVAL '9' DAY"),
        ("time(0)", dt.time(13), "13:00:00"),
    ):
        frame = of_value(spark, VALUES.get(kind, f"cast(4 as {kind})"))
        start, end = intervals.trim("start", "end", low=limit, high=limit)
        made = frame.select(start.alias("start"), end.alias("end"))
        assert {field.dataType.simpleString() for field in made.schema} == {kind}, (kind, limit)
        assert made.selectExpr("cast(start as string)").collect()[0][0] == wanted
        assert made.where("end = start").count() == 0
    moment = of_value(spark, VALUES["timestamp"]).select(intervals.trim("start", "end", low=at(20_000))[0])
    assert moment.collect()[0][0] == at(20_000)


@pytest.mark.usefixtures("new_york")
def test_tiles_keep_the_type_of_bounds(spark: SparkSession) -> None:
    for kind, low, high, width, wanted in (
        ("date", "2024-03-09", "2024-03-12", "1 day", ["2024-03-09", "2024-03-10", "2024-03-11", "2024-03-12"]),
        ("date", "2024-03-09", "2024-03-12", dt.timedelta(days=2), ["2024-03-09", "2024-03-11", "2024-03-12"]),
        (
            "timestamp",
            "2024-03-09 12:00:00",
            "2024-03-11 13:00:00",
            "24 h",
            ["2024-03-09 12:00:00", "2024-03-10 13:00:00", "2024-03-11 13:00:00"],
        ),
        ("tinyint", "120", "127", 4, ["120", "124", "127"]),
    ):
        frame = spark.range(1).selectExpr(f"cast('{low}' as {kind}) as start", f"cast('{high}' as {kind}) as end")
        made = frame.select(F.inline(intervals.tile("start", "end", width=width)))
        assert {field.dataType.simpleString() for field in made.schema} == {kind}
        texts = sorted(map(tuple, made.selectExpr("cast(start as string)", "cast(end as string)").collect()))
        assert texts == list(pairwise(wanted))


def test_wide_decimals_are_moved_exactly_or_refused(spark: SparkSession) -> None:
    unit = Decimal("0.0000000001")
    for kind in ("decimal(37, 10)", "decimal(38, 6)"):
        frame = spark.createDataFrame([(Decimal(1), Decimal(2))], f"start {kind}, end {kind}")
        least = unit if "10" in kind else Decimal("0.000001")
        assert tuple(frame.select(*intervals.expand("start", "end", by=least)).collect()[0]) == (1 - least, 2 + least)
    frame = spark.createDataFrame([(Decimal(1), Decimal(2))], "start decimal(38, 10), end decimal(38, 10)")
    for start, _ in (intervals.expand("start", "end", by=unit), intervals.shift("start", "end", by=1)):
        with pytest.raises(DataError, match=r"cast the bounds to decimal\(37, s\) or fewer"):
            frame.select(start).collect()


def test_amounts_that_types_of_bounds_do_not_hold(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("cast(4 as tinyint) as start", "cast(5 as tinyint) as end")
    for amount, wanted in ((1000, 1004), (2**40, 2**40 + 4), (0.5, 4.5), (Decimal("0.25"), Decimal("4.25"))):
        assert frame.select(intervals.shift("start", "end", by=amount)[0]).collect()[0][0] == wanted
    assert frame.select(intervals.shift("start", "end", by=float("inf"))[0]).collect()[0][0] == float("inf")


def test_wrong_amounts() -> None:
    assert dovetail.intervals is intervals
    with pytest.raises(PlanError, match="length of time"):
        intervals.shift("start", "end", by="soon")
    with pytest.raises(PlanError, match="did you mean 'left'"):
        intervals.flank("start", "end", width=3, side="lft")  # type: ignore[arg-type]  # a wrong word


def test_changed_bounds_have_the_names_of_the_bounds(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(10, 14)], "first int, last int")
    for changed in (
        intervals.expand("first", "last", by=1),
        intervals.shift("first", "last", by=1),
        intervals.trim("first", "last", low=11),
        intervals.flank("first", "last", width=2),
        intervals.flank("first", "last", width=2, side="right"),
    ):
        assert frame.select(*changed).columns == ["first", "last"]
    low, high = intervals.expand(F.col("first"), F.col("last"), by=1)
    assert frame.select(low, high, intervals.tile("first", "last", width=3)).columns == ["start", "end", "tiles"]
    assert frame.where(high - low == 6).count() == frame.withColumn("first", low).where("first = 9").count() == 1
    assert frame.groupBy(low).count().collect() == [(9, 1)]
    pieces = frame.select(F.inline(intervals.tile("first", "last", width=3)))
    assert sorted(pieces.collect()) == [(10, 13), (13, 14)]


TILED: list[tuple[str, str, str, Any, list[str]]] = [
    ("decimal(6,2)", "1.25", "4.00", Decimal("1.1"), ["1.25", "2.35", "3.45", "4.00"]),
    ("decimal(6,2)", "-0.05", "0.05", 0.05, ["-0.05", "0.00", "0.05"]),
    ("decimal(18,0)", "-9", "9", 10, ["-9", "1", "9"]),
    ("double", "0.0", "0.7", 0.1,
     ["0.0", "0.1", "0.2", "0.30000000000000004", "0.4", "0.5", "0.6000000000000001", "0.7"]),
    ("double", "-1.0", "1.5", 1, ["-1.0", "0.0", "1.0", "1.5"]),
    ("float", "0.5", "1.5", 0.5, ["0.5", "1.0", "1.5"]),
    ("time(6)", "22:30:00", "23:59:59.999999", "1 h", ["22:30:00", "23:30:00", "23:59:59.999999"]),
    ("time(0)", "09:00:00", "09:00:50", dt.timedelta(seconds=20), ["09:00:00", "09:00:20", "09:00:40", "09:00:50"]),
    ("interval day to second", "INTERVAL '1 00:00:00' DAY TO SECOND", "INTERVAL '1 02:30:00' DAY TO SECOND", "2 h",
     [f"INTERVAL '1 {hours}' DAY TO SECOND" for hours in ("00:00:00", "02:00:00", "02:30:00")]),
    ("interval hour to minute", "INTERVAL '00:10' HOUR TO MINUTE", "INTERVAL '01:00' HOUR TO MINUTE", "30 min",
     ["INTERVAL '00:10' HOUR TO MINUTE", "INTERVAL '00:40' HOUR TO MINUTE", "INTERVAL '01:00' HOUR TO MINUTE"]),
]  # fmt: skip


@pytest.mark.usefixtures("times_of_day")
@pytest.mark.parametrize(("kind", "low", "high", "width", "wanted"), TILED)
def test_tiles_of_types_without_sequences(
    spark: SparkSession, kind: str, low: str, high: str, width: Any, wanted: list[str]
) -> None:
    values = "(?, ?), (?, ?), (?, ?), (null, ?)".replace("?", "'{}'").format(low, high, low, low, high, low, high)
    values = values.replace("'INTERVAL", "INTERVAL").replace("SECOND'", "SECOND").replace("MINUTE'", "MINUTE")
    frame = spark.sql(f"select cast(a as {kind}) as start, cast(b as {kind}) as end from values {values} as t(a, b)")
    for of in (kind, frame.schema["start"].dataType):
        tiles = frame.select(intervals.tile("start", "end", width=width, kind=of).alias("tiles"))
        assert tiles.schema["tiles"].dataType.elementType["start"].dataType.simpleString() == kind  # type: ignore[attr-defined]
        assert [None if row[0] is None else len(row[0]) for row in tiles.collect()] == [len(wanted) - 1, 0, None, None]
        pieces = tiles.limit(1).selectExpr("inline(tiles)").selectExpr("cast(start as string)", "cast(end as string)")
        assert list(map(tuple, pieces.collect())) == list(pairwise(wanted))


@pytest.mark.usefixtures("times_of_day")
def test_tiles_without_their_type_are_refused_before_a_job(spark: SparkSession) -> None:
    for value in ("1.5D", "1.5", "time'01:00:00'", "interval '4' day"):
        with pytest.raises(PlanError, match=r"no sequence of these bounds.*kind='decimal\(10,2\)'"):
            of_value(spark, value).select(intervals.tile("start", "end", width="2 days" if "'" in value else 2))
    for kind, width, argument in (
        ("decimal(38,2)", 1, "kind"),
        ("int", 1, "kind"),
        ("decimal(", 1, "kind"),
        ("decimal(4,2)", Decimal("0.001"), "width"),
        ("decimal(4,2)", "1 h", "width"),
        ("double", 0, "width"),
        ("double", float("inf"), "width"),
        ("time(0)", dt.timedelta(microseconds=5), "width"),
        ("time(0)", 5, "width"),
        ("interval day", "1 h", "width"),
    ):
        with pytest.raises(PlanError) as caught:
            intervals.tile("start", "end", width=width, kind=kind)
        assert caught.value.argument == argument, (kind, width)
    endless = of_value(spark, "1.5D").selectExpr("start", "double('inf') as end")
    with pytest.raises(DataError, match="a row has no end"):
        endless.select(intervals.tile("start", "end", width=2, kind="double")).collect()


@pytest.mark.usefixtures("times_of_day")
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_bounds_beyond_their_type_are_said_so(spark: SparkSession, ansi: str) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for value, by, said in (
            ("cast(127 as tinyint)", 1, r"the bound 127 \+ 1 is beyond the type tinyint"),
            ("9223372036854775807", 1, "beyond the type bigint"),
            ("time'23:30:00'", "1 h", r"the bound 23:30:00 .*beyond the type time\(6\)"),
            ("time'00:30:00'", "-1 h", r"beyond the type time\(6\)"),
        ):
            less = by.startswith("-") if isinstance(by, str) else False
            amount = dt.timedelta(hours=-1) if less else by
            for column in (
                intervals.shift("start", "end", by=amount)[1],
                intervals.expand("start", "end", by=0 if by == 1 else dt.timedelta(0), after=amount)[1],
            ):
                with pytest.raises(DataError, match=said):
                    of_value(spark, value).select(column).collect()
        whole = spark.sql("select cast(null as tinyint) as start, 127Y as end")
        assert whole.select(*intervals.shift("start", "end", by=-1)).collect() == [(None, 126)]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")
