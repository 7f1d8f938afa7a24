"""Slack of interval joins (gaps, least overlaps, columns of the overlap), and band joins, beside the definition."""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests import oracle

import dovetail
from dovetail.errors import DataError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = "k", "start", "end"
Rows = list[dict[str, Any]]


def made(n: int, seed: int, own: str) -> Rows:
    random = Random(seed)  # noqa: S311  (repeatable, no secrets)
    rows = []
    for number in range(n):
        start = random.choice([None, *range(-20, 20)])
        length = random.choice([0, 1, 2, 5, 60])
        values = random.choice(["a", "b", None]), start, None if start is None else start + length, number
        rows.append(dict(zip((*NAMES, own), values, strict=True)))
    return rows


def frame(spark: SparkSession, rows: Rows, own: str, kind: str = "int") -> DataFrame:
    made = spark.createDataFrame([tuple(row.values()) for row in rows], f"k string, start int, end int, {own} int")
    return made.selectExpr("k", f"cast(start as {kind}) start", f"cast(end as {kind}) end", own)


def ids(pairs: list[oracle.Pair]) -> Any:
    return oracle.bag((a and a["l"], b and b["r"]) for a, b in pairs)


SLACK: list[dict[str, Any]] = [
    {"max_gap": 0},
    {"max_gap": 3},
    {"min_overlap": 2},
    {"min_fraction": 0.5, "reciprocal": True},
    {"min_overlap": 1, "min_fraction": 0.4},
    {"min_fraction": 0.35},
]


@pytest.mark.parametrize("slack", SLACK, ids=str)
@pytest.mark.parametrize("kind", ["bigint", "double", "decimal(9, 2)", "decimal(36, 2)"])
def test_slack_is_part_of_the_match(spark: SparkSession, slack: dict[str, Any], kind: str) -> None:
    left, right = made(30, 1, "l"), made(40, 2, "r")
    keys = (("k", "k"),)
    match = (
        oracle.no_farther_than(slack["max_gap"], keys)
        if "max_gap" in slack
        else oracle.related(on=keys, condition=oracle.share_enough(**slack))
    )
    one, other = frame(spark, left, "l", kind), frame(spark, right, "r", kind)
    for how in oracle.HOWS:
        columns = ["l"] if how in ("left_semi", "left_anti") else ["l", "r"]
        found = dovetail.interval_join(one, other, on="k", how=how, columns=columns, **slack)  # type: ignore[arg-type]
        expected = oracle.join(left, right, match, how)
        assert oracle.bag((*row, None)[:2] for row in map(tuple, found.collect())) == ids(expected), how
    pairs = oracle.join(left, right, match)
    assert dovetail.interval_count(one, other, on="k", **slack) == len(pairs)
    counts = dovetail.count_overlaps(one, other, on="k", **slack)
    assert counts.columns == ["k", "start", "end", "l", "n_overlaps"]
    assert {row["l"]: row["n_overlaps"] for row in counts.collect()} == {
        a["l"]: sum(x is a for x, _ in pairs) for a in left
    }
    kept = dovetail.interval_join(one, other, on="k", keep="first", columns=["l", "start_right", "end_right"], **slack)
    best = {a["l"]: min((b["start"], b["end"]) for x, b in pairs if x is a) for a, _ in pairs}  # type: ignore[index]
    assert {row[0]: (row[1], row[2]) for row in kept.collect()} == best


def test_a_fraction_is_what_its_digits_say(spark: SparkSession) -> None:
    """0.07 * 100 is more than 7 in floating point, and 7 / 100 is 0.07."""
    left = spark.createDataFrame([(0, 100)], "start int, end int")
    right = left.sparkSession.range(1, 101).selectExpr("cast(0 as int) as start", "cast(id as int) as end")
    for kind in ("int", "decimal(12, 3)", "decimal(30, 3)"):
        frames = [f.selectExpr(f"cast(start as {kind}) start", f"cast(end as {kind}) end") for f in (left, right)]
        for percent in (7, 14, 28, 55, 57):
            found = dovetail.interval_join(*frames, min_fraction=percent / 100, columns=["end_right"])
            assert sorted(int(row[0]) for row in found.collect()) == list(range(percent, 101))
    points = spark.createDataFrame([(5, 5)], "start int, end int")
    assert dovetail.interval_join(points, left, closed="both", min_fraction=0.5, reciprocal=True).count() == 0
    assert dovetail.interval_join(points, left, closed="both", min_fraction=0.5).count() == 1


def test_slack_of_decimals_without_codes_is_exact(spark: SparkSession) -> None:
    most = 10**36 - 1
    kind = "start decimal(36, 0), end decimal(36, 0)"
    left = spark.createDataFrame([(Decimal(-most), Decimal(0)), (Decimal(10), Decimal(most))], kind)
    right = spark.createDataFrame([(Decimal(3), Decimal(7))], kind)
    for gap, n in ((2, 0), (3, 2), (2**70, 2), (10**40, 2)):
        assert dovetail.interval_count(left, right, max_gap=gap) == n
    for least, n in ((most - 10, 1), (most - 9, 0), (10**38, 0)):
        assert dovetail.interval_count(left.where("start > 0"), left, min_overlap=least) == n
    wide = left.selectExpr("cast(start as decimal(37, 0)) start", "cast(end as decimal(37, 0)) end")
    with pytest.raises(PlanError, match="take no slack; cast them to at most 36 digits"):
        dovetail.interval_join(wide, wide, min_overlap=1)


def test_the_fraction_is_of_the_left_row_when_right_rows_keep_one_match(spark: SparkSession) -> None:
    left = spark.createDataFrame([(0, 10, 1), (0, 100, 2)], "start int, end int, l int")
    right = spark.createDataFrame([(0, 6, 7)], "start int, end int, r int")
    found = dovetail.interval_join(left, right, how="right", keep="last", min_fraction=0.5, columns=["l", "r"])
    assert [tuple(row) for row in found.collect()] == [(1, 7)]


def test_top_k_counts_only_overlaps_that_are_long_enough(spark: SparkSession) -> None:
    left = spark.createDataFrame([(0, 10, 1), (0, 100, 2)], "start int, end int, l int")
    right = spark.createDataFrame([(0, 60, 7), (0, 6, 8)], "start int, end int, r int")
    found = [
        tuple(row) for row in dovetail.interval_topk(left, right, k=9, min_fraction=0.6, columns=["l", "r"]).collect()
    ]
    assert found == [(2, 7), (1, 7), (1, 8)]


def test_bounds_at_the_ends_of_their_type_are_widened_without_wrapping(spark: SparkSession) -> None:
    ends = spark.createDataFrame([(-(2**63), -(2**63) + 1), (2**63 - 2, 2**63 - 1)], "start bigint, end bigint")
    assert dovetail.interval_count(ends, ends, max_gap=5) == 2
    assert dovetail.interval_join(ends, ends, max_gap=5).count() == 2


@pytest.mark.parametrize("algorithm", ["native", "forward_scan"])
def test_bounds_of_one_input_may_have_two_types(spark: SparkSession, algorithm: Any) -> None:
    mixed = spark.createDataFrame([(0.5, 3), (3.5, 9)], "start double, end int")
    assert dovetail.interval_join(mixed, mixed, algorithm=algorithm).count() == 2


def test_columns_of_the_overlap(spark: SparkSession) -> None:
    left = spark.sql("select timestamp'2024-01-01 08:00:00' start, timestamp'2024-01-01 12:00:00' end, 1 l")
    right = spark.sql("select timestamp'2024-01-01 10:00:00' start, timestamp'2024-01-01 18:00:00' end, 2 r")
    found = dovetail.interval_join(left, right, with_overlap=True)
    assert found.columns[-3:] == ["overlap_start", "overlap_end", "overlap_length"]
    row = found.select("overlap_start", "overlap_end", "overlap_length").collect()[0]
    assert tuple(row) == (dt.datetime(2024, 1, 1, 10), dt.datetime(2024, 1, 1, 12), dt.timedelta(hours=2))
    whole = spark.createDataFrame([(0, 5), (8, 9)], "start int, end int")
    columns = ["start", "start_right", "overlap_start", "overlap_end", "overlap_length"]
    apart = dovetail.interval_join(whole, whole, max_gap=3, with_overlap=True, columns=columns)
    assert sorted(map(tuple, apart.collect()), key=str) == [
        (0, 0, 0, 5, 5), (0, 8, None, None, None), (8, 0, None, None, None), (8, 8, 8, 9, 1),
    ]  # fmt: skip
    days = spark.sql("select date'2024-01-01' start, date'2024-01-09' end")
    outer = dovetail.interval_join(days, days.where("false"), how="left", with_overlap=True, columns=["overlap_length"])
    assert [tuple(row) for row in outer.collect()] == [(None,)]
    assert dovetail.interval_join(days, days, with_overlap=True).collect()[0]["overlap_length"] == 8
    first = dovetail.interval_join(days, days, keep="first", with_overlap=True, columns=["overlap_end"])
    assert first.collect()[0][0] == dt.date(2024, 1, 9)


def test_slack_that_cannot_be_right_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 2)], "start int, end int")
    named = rows.withColumnRenamed("end", "overlap_end")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_gap": 1, "min_overlap": 1}, "max_gap"),
        ({"max_gap": -1}, "max_gap"),
        ({"max_gap": "1 hour"}, "max_gap"),
        ({"min_fraction": 0}, "min_fraction"),
        ({"min_fraction": 1.5}, "min_fraction"),
        ({"reciprocal": True}, "reciprocal"),
        ({"max_gap": 1, "relation": "before"}, "relation"),
        ({"with_overlap": True, "how": "left_semi"}, "with_overlap"),
        ({"with_overlap": True, "left_interval": ("start", "overlap_end")}, "with_overlap"),
    ]
    for options, argument in wrong:
        with pytest.raises(PlanError) as problem:
            dovetail.interval_join(named if "left_interval" in options else rows, rows, **options)
        assert problem.value.argument == argument, options
    with pytest.raises(PlanError, match="ranked by their overlap"):
        dovetail.interval_topk(rows, rows, max_gap=1)
    with pytest.raises(DataError, match="left input has 1 interval"):
        dovetail.interval_join(spark.createDataFrame([(9, 5)], "start int, end int"), rows, max_gap=100)


BANDS: list[Any] = [
    ("start", "start", -2, 3),
    ("start", "end", 1, None),
    [("start", "start", -8, 8), ("end", "end", 0, 4)],
]


@pytest.mark.parametrize("bands", BANDS, ids=str)
@pytest.mark.parametrize("kind", ["int", "double", "decimal(5, 1)", "decimal(36, 20)"])
def test_bands_of_every_how(spark: SparkSession, bands: Any, kind: str) -> None:
    left, right = made(30, 3, "l"), made(40, 4, "r")
    one, other = frame(spark, left, "l", kind), frame(spark, right, "r", kind)
    listed = bands if isinstance(bands, list) else [bands]
    for how in oracle.HOWS:
        columns = ["l"] if how in ("left_semi", "left_anti") else ["l", "r"]
        found = dovetail.band_join(one, other, within=bands, on="k", how=how, columns=columns)  # type: ignore[arg-type]
        expected = oracle.join(left, right, oracle.within(listed, (("k", "k"),)), how)
        assert oracle.bag((*row, None)[:2] for row in map(tuple, found.collect())) == ids(expected), how


def test_bands_of_times_and_at_the_ends_of_bigint(spark: SparkSession) -> None:
    left = spark.sql("select timestamp'2024-01-01 08:00:00' t, date'2024-01-01' d")
    right = spark.sql("select timestamp'2024-01-01 08:10:00' t, date'2024-01-03' d")
    for within, n in [
        (("t", "t", 0, "10 min"), 1),
        (("t", "t", "-10 min", dt.timedelta(minutes=9)), 0),
        (("t", "t", 600, 600), 1),
        (("d", "d", dt.timedelta(days=2), "3 days"), 1),
        (("d", "d", "-1 day", "36 hours"), 0),
    ]:
        assert dovetail.band_join(left, right, within=within).count() == n, within  # type: ignore[arg-type]
    ends = spark.createDataFrame([(-(2**63),), (2**63 - 1,)], "x bigint")
    assert dovetail.band_join(ends, ends, within=("x", "x", 1, 5)).count() == 0
    assert dovetail.band_join(ends, ends, within=("x", "x", -5, 2**64)).count() == 3
    assert dovetail.band_join(ends, ends, within=("x", "x", None, -1)).count() == 1
    most = "9" * 30 + ".999999"
    wide = spark.createDataFrame([(Decimal(f"-{most}"),), (Decimal(most),), (None,)], "x decimal(36, 6)")
    apart = Decimal(f"1{'9' * 30}.999998")
    for within, n in [
        (("x", "x", 0, 0), 2),
        (("x", "x", 1, 5), 0),
        (("x", "x", apart, 10**60), 1),
        (("x", "x", apart.next_plus(Context(prec=37)), 10**60), 0),
        (("x", "x", 0, apart), 3),
        (("x", "x", 10**60, None), 0),
        (("x", "x", None, Decimal("-0.000001")), 1),
    ]:
        assert dovetail.band_join(wide, wide, within=within).count() == n, within  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="decimals of up to 36 digits"):
        dovetail.band_join(*[wide.selectExpr("cast(x as decimal(37, 6)) as x")] * 2, within=("x", "x", 0, 1))
    floats = spark.createDataFrame([(float("nan"),), (None,), (0.5,)], "x double")
    assert dovetail.band_join(floats, floats, within=("x", "x", -9, 9)).count() == 1


def test_columns_plan_and_errors_of_a_band_join(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 10, "a"), (2, 900, "b")], "x int, y int, name string")
    plan = dovetail.plan_band_join(rows, rows, within=[("x", "x", -50, 50), ("y", "y", -1, 1)])
    assert plan.explain().splitlines()[0] == (
        "BandJoin: -50 <= right.x - left.x <= 50 and -1 <= right.y - left.y <= 1; joined by -1 <= right.y - left.y <= 1"
    )
    assert plan.frame().columns == ["x", "y", "name", "x_right", "y_right", "name_right"]
    assert plan.frame().count() == 2
    some = dovetail.band_join(
        rows, rows, within=("x", "x", 0, 1), condition="name < name_right", columns=["name_right"]
    )
    assert [tuple(row) for row in some.collect()] == [("b",)]
    wrong: list[tuple[Any, str]] = [
        (("x", "x", 1), "must be"), ((), "must be"), (("x", "x", 2, 1), "low above high"),
        (("x", "x", None, None), "no limit"), (("x", "name", 0, 1), "cast"), (("z", "x", 0, 1), "no column 'z'"),
        (("x", "x", 0, "1 hour"), "length of time"),
    ]  # fmt: skip
    for within, message in wrong:
        with pytest.raises(PlanError, match=message) as problem:
            dovetail.band_join(rows, rows, within=within)
        assert problem.value.argument == "within"
