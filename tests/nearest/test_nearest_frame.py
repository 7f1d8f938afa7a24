"""Nearest joins on Spark: the plan, then the rows, beside the definition."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests import oracle

import dovetail
from dovetail.errors import DataError, PlanError
from dovetail.joins.nearest.plan import ties as by_ties
from dovetail.spark.frames import plan_text
from dovetail.spark.hosts.cells import Cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "k string, start {0}, end {0}, {1} int"
INF = float("inf")
CUTS = Cells((0, 0, 0), (-2.0, 3.0, 9.0), keyed=False)  # cells without keys, as for large inputs


def made(n: int, seed: int, spread: int = 30) -> list[tuple[Any, ...]]:
    random = Random(seed)  # noqa: S311  (repeatable, no secrets)
    rows: list[tuple[Any, ...]] = []
    for number in range(n):
        start = random.choice([None, *range(-spread, spread)] * 1)
        length = random.choice([0, 1, 2, 3, 3 * spread])
        rows.append((random.choice(["a", "b", None]), start, None if start is None else start + length, number))
    return rows


def check(found: list[Any], expected: list[Any], k: int, how: str, ties: str) -> None:
    """Every left row has its nearest distances, with right rows at these distances; with ties all, or the first."""
    answers: dict[int, list[tuple[Any, Any]]] = {}
    for row in found:
        answers.setdefault(row["l"], []).append((row["distance"], row["r"]))
    for left, near in expected:
        mine = answers.pop(left["l"], [])
        if not near:
            assert mine == ([(None, None)] if how == "left" else [])
        elif ties == "all":
            assert sorted(mine) == sorted((d, b["r"]) for d, b in near)
        elif ties == "first":
            first = sorted(near, key=lambda each: (each[0], each[1]["start"], each[1]["end"], each[1]["r"]))
            assert sorted(mine) == sorted((d, b["r"]) for d, b in first[:k])
        else:
            assert sorted(d for d, _ in mine) == [d for d, _ in near[:k]]
            assert set(mine) <= {(d, b["r"]) for d, b in near}
            assert len(set(mine)) == len(mine)
    assert answers == {}


CASES: list[dict[str, Any]] = [
    {},
    {"k": 3, "on": "k", "how": "left"},
    {"k": 2, "direction": "upstream", "closed": "both"},
    {"k": 2, "direction": "downstream", "on": "k", "max_distance": 4},
    {"direction": "upstream", "ignore_overlaps": True, "how": "left"},
    {"k": 2, "direction": "downstream", "ignore_overlaps": True, "closed": ("left", "right")},
    {"k": 3, "ignore_overlaps": True, "how": "left", "on": "k"},
    {"ignore_overlaps": True, "max_distance": 2},
    {"ties": "all", "how": "left"},
    {"k": 3, "ties": "all", "on": "k", "direction": "upstream"},
    {"k": 2, "ties": "first", "closed": "both", "how": "left"},
    {"k": 4, "ties": "first", "ignore_overlaps": True, "on": "k"},
]


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("options", CASES, ids=str)
def test_every_option_gives_what_the_definition_says(
    spark: SparkSession, options: dict[str, Any], cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = made(40, 1), made(60, 2)
    if cut and "on" not in options:
        monkeypatch.setattr("dovetail.joins.nearest.plan.search.fitting_cells", lambda *_: (CUTS, "cut by the test"))
    frames = [spark.createDataFrame(rows, KIND.format("int", name)) for rows, name in ((left, "l"), (right, "r"))]
    found = dovetail.interval_nearest(*frames, **options).collect()
    closed = options.get("closed", "left")
    closed = (closed, closed) if isinstance(closed, str) else closed
    names = [
        dict(zip(("k", "start", "end", name), row, strict=True))
        for rows, name in ((left, "l"), (right, "r"))
        for row in rows
    ]
    k, how, ties = options.get("k", 1), options.get("how", "inner"), options.get("ties", "any")
    expected = oracle.interval_nearest(
        names[:40],
        names[40:],
        by=(("k", "k"),) if "on" in options else (),
        k=k,
        direction=options.get("direction", "any"),
        ignore_overlaps=options.get("ignore_overlaps", False),
        max_distance=options.get("max_distance"),
        closed=closed,
    )
    check(found, expected, k, how, ties)


def test_a_hot_key_is_cut_and_the_answer_is_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = made(60, 3), made(80, 4)
    frames = [spark.createDataFrame(rows, KIND.format("int", name)) for rows, name in ((left, "l"), (right, "r"))]
    frames = [frame.withColumn("start", frame.start.cast("double")).repartition(3) for frame in frames]
    key = int(spark.sql("select xxhash64('a')").first()[0])  # type: ignore[index]  # one row
    cells = Cells((key, key, key, key), (-INF, -5.0, 0.0, 8.0))
    whole = dovetail.interval_nearest(*frames, on="k", k=3).collect()
    monkeypatch.setattr("dovetail.joins.nearest.plan.search.fitting_cells", lambda *_: (cells, "cut by the test"))
    plan = dovetail.plan_interval_nearest(*frames, on="k", k=3)
    assert "cells: 5, by key, 1 hot keys cut by position" in plan.explain()
    assert oracle.bag(map(tuple, plan.frame().collect())) == oracle.bag(map(tuple, whole))
    assert plan.metrics().value("placed", side="right") > len([row for row in right if row[0] and row[1] is not None])


@pytest.mark.parametrize("k", [1, 2, 50])
def test_copies_of_a_hot_key_are_rows_that_spark_can_spill(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    """No aggregate holds more than one row of a group, whatever k is."""
    monkeypatch.setattr("dovetail.joins.nearest.plan.search.fitting_cells", lambda *_: (CUTS, "cut by the test"))
    rows = spark.createDataFrame([(n, n + 2, n) for n in range(-9, 20)], "start int, end int, id int")
    found = dovetail.interval_nearest(rows, rows, k=k, columns=["id", "id_right", "distance"])
    plan = plan_text(found)
    assert ("min_by(" in plan, "row_number()" in plan) == (k == 1, k > 1)
    answers = Counter(row["id"] for row in found.collect())
    assert set(answers.values()) == {min(k, 29)}


@pytest.mark.parametrize("ties", ["any", "first", "all"])
@pytest.mark.parametrize("k", [1, 3])
def test_points_at_infinity_keep_their_nearest_rows(spark: SparkSession, ties: Any, k: int) -> None:
    left = spark.createDataFrame([(INF, INF, 1), (-INF, -INF, 2), (0.0, 1.0, 3)], "start double, end double, l int")
    right = spark.createDataFrame([(INF, INF, 1), (-INF, -INF, 2), (4.0, 5.0, 3)], "start double, end double, r int")
    found = dovetail.interval_nearest(left, right, closed="both", ties=ties, k=k).collect()
    near: dict[int, list[tuple[float, int]]] = {}
    for row in found:
        near.setdefault(row["l"], []).append((row["distance"], row["r"]))
    assert {number: min(rows) for number, rows in near.items()} == {1: (0.0, 1), 2: (0.0, 2), 3: (3.0, 3)}
    assert all(len(rows) == k for rows in near.values())


def test_explain(spark: SparkSession) -> None:
    rows = spark.sql("select 1 as start, 2 as end")
    plan = dovetail.plan_interval_nearest(rows, rows, k=2, ignore_overlaps=True, max_distance=5, ties="all", how="left")
    assert plan.explain().splitlines() == [
        "IntervalNearest: k=2, any, overlaps ignored, keys=none, max_distance=5, ties=all, how=left, "
        "memory=64 MiB per task",
        "search: before (small inputs, not sampled)",
        "cells: 1, cut by position; the nearest right rows of each (2) go on to those after it and before it",
        "search: after (small inputs, not sampled)",
        "cells: 1, cut by position; the nearest right rows of each (2) go on to those after it and before it",
        "ties: an interval join of left rows, widened by the distance of their last nearest row",
    ]


@pytest.mark.parametrize(
    ("kind", "bounds", "distance", "most"),
    [
        ("date", [dt.date(2024, 1, 1), dt.date(2024, 1, 3), dt.date(2024, 1, 9)], 6, dt.timedelta(days=6)),
        ("timestamp", [dt.datetime(2024, 1, 1, h) for h in (1, 2, 5)], dt.timedelta(hours=3), "3 hours"),
        ("timestamp_ntz", [dt.datetime(2024, 1, 1, h) for h in (1, 2, 5)], dt.timedelta(hours=3), 10800),
        ("interval day to second", [dt.timedelta(hours=h) for h in (-1, 2, 5)], dt.timedelta(hours=3), "3 hours"),
        ("decimal(9, 2)", [Decimal("-1.10"), Decimal("2.25"), Decimal("3.75")], Decimal("1.50"), Decimal("1.5")),
        ("decimal(30, 2)", [Decimal(f"1{'2' * 24}{end}") for end in ("1.10", "4.25", "5.75")], Decimal("1.50"), 1.5),
        ("decimal(37, 17)", [Decimal(0), Decimal("0.5"), Decimal("0.75")], Decimal("0.25"), Decimal("0.25")),
        ("double", [-1.5, 2.25, 4.0], 1.75, 1.75),
        ("float", [-1.5, 2.25, 4.0], 1.75, 1.75),
        ("tinyint", [-128, -100, 127], 227, 227),
        ("bigint", [-(2**63), -(2**63) + 1, 2**63 - 2], 2**63 - 1, None),
    ],
)
@pytest.mark.parametrize("ties", ["any", "all"])
def test_bounds_of_every_type(
    spark: SparkSession, kind: str, bounds: list[Any], distance: Any, most: Any, ties: Any
) -> None:
    first, second, third = bounds
    last = third + (third - second) if kind not in ("bigint", "tinyint", "date") else third
    mine = spark.createDataFrame([(first, second)], f"start {kind}, end {kind}")
    theirs = spark.createDataFrame([(third, last)], f"start {kind}, end {kind}")
    row = dovetail.interval_nearest(mine, theirs, closed="both", max_distance=most, ties=ties).collect()[0]
    assert row["distance"] == distance
    assert row["start_right"] == third
    back = dovetail.interval_nearest(theirs, mine, closed="both", max_distance=most, ties=ties).collect()[0]
    assert back["distance"] == distance


def test_bad_requests_are_refused_before_a_job(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 2, 3)], "start int, end int, distance int")
    plain, wide = (
        rows.drop("distance"),
        rows.selectExpr("cast(start as decimal(38)) start", "cast(end as decimal(38)) end"),
    )
    for inputs, options, argument in [
        ((plain, plain), {"k": 0}, "k"),
        ((plain, plain), {"direction": "left"}, "direction"),
        ((plain, plain), {"ties": "last"}, "ties"),
        ((plain, plain), {"max_distance": -1}, "max_distance"),
        ((plain, plain), {"max_distance": "3 hours"}, "max_distance"),
        ((plain, plain), {"how": "full"}, "how"),
        ((plain, plain), {"columns": ["nothing"]}, "columns"),
        ((rows, plain), {}, "left"),
        ((wide, wide), {}, "left_interval"),
    ]:
        with pytest.raises(PlanError) as problem:
            dovetail.interval_nearest(*inputs, **options)  # type: ignore[arg-type]  # wrong on purpose
        assert problem.value.argument == argument


def test_inverted_intervals(spark: SparkSession) -> None:
    good, bad = (spark.createDataFrame([row], "start int, end int") for row in ((1, 2), (9, 5)))
    with pytest.raises(DataError, match="right input has an interval that ends before it starts or holds NaN: 9 to 5"):
        dovetail.interval_nearest(good, bad).collect()
    assert dovetail.interval_nearest(bad, good, invalid="drop", how="left").collect() == []
    kept = dovetail.interval_nearest(bad, good, invalid="null", how="left").collect()
    assert [tuple(row) for row in kept] == [(9, 5, None, None, None)]
    wide = bad.selectExpr("cast(start as decimal(30, 1)) as start", "cast(end as decimal(30, 1)) as end")
    with pytest.raises(DataError, match=r"(left|right) input .* holds NaN: 9\.0 to 5\.0"):
        dovetail.interval_nearest(wide, wide).collect()


def test_output_columns_and_a_shared_key(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", 1, 2), ("b", 4, 5)], "k string, start int, end int")
    found = dovetail.interval_nearest(rows, rows, on="k")
    assert found.columns == ["k", "start", "end", "start_right", "end_right", "distance"]
    chosen = dovetail.interval_nearest(rows, rows, ignore_overlaps=True, columns=["distance", "k_right", "k"])
    assert sorted(map(tuple, chosen.collect())) == [(2, "a", "b"), (2, "b", "a")]


def test_the_smallest_budget_spills_and_gives_the_same_rows(spark: SparkSession) -> None:
    frame = spark.range(60_000).selectExpr(
        "(id * 7919) % 100003 as start", "(id * 7919) % 100003 + id % 5 + 1 as end", "id"
    )
    options: dict[str, Any] = {"k": 2, "columns": ["id", "id_right", "distance"]}
    plan = dovetail.plan_interval_nearest(frame, frame, memory="1MB", partitions=2, **options)
    tight, roomy = plan.frame(), dovetail.interval_nearest(frame, frame, **options)
    assert tight.exceptAll(roomy).count() == 0
    assert tight.count() == roomy.count()
    assert plan.metrics().value("bytes_written", side="right") > 0


def test_keys_and_bounds_without_codes_are_refused_with_what_to_do(spark: SparkSession) -> None:
    rows = spark.sql("select named_struct('x', 'a', 'y', 1) as place, array(1) as tags, 1 as start, 2 as end")
    for key, said in (("place", r"keys of type struct<x:string,y:int>"), ("tags", "keys of type array<int>")):
        with pytest.raises(PlanError, match=rf"{said} have no codes.*its fields or elements as columns.*F\.to_json"):
            dovetail.interval_nearest(rows, rows, on=key)
    fields = rows.select("*", "place.*")
    found = dovetail.interval_nearest(fields, fields, on=["x", "y"], columns=["x", "y", "distance"])
    assert found.collect() == [("a", 1, 0)]
    wide = spark.sql("select cast(1 as decimal(38, 2)) as start, cast(2 as decimal(38, 2)) as end")
    with pytest.raises(PlanError, match="no exact differences here; cast them to at most 37 digits"):
        dovetail.interval_nearest(wide, wide)
    far = spark.sql("select -1e17BD as start, 9.1e18BD as end").selectExpr(
        "cast(start as decimal(30, 2)) as start", "cast(end as decimal(30, 2)) as end"
    )
    with pytest.raises(PlanError, match=r"reach from -10+\.00 to 910+\.00, more than 18 digits apart"):
        dovetail.interval_nearest(far, far)
    with pytest.raises(PlanError, match=r"partitions=1001 is not possible.*to 1,000") as caught:
        dovetail.interval_nearest(fields, fields, partitions=1001)
    assert caught.value.argument == "partitions"


@pytest.mark.parametrize("ties", ["first", "all"])
def test_partitions_hold_for_the_join_of_ties_too(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, ties: str
) -> None:
    asked: list[Any] = []
    join = by_ties.plan_interval_join
    monkeypatch.setattr(
        by_ties, "plan_interval_join", lambda *given, **more: asked.append(more) or join(*given, **more)
    )
    rows = spark.createDataFrame([(1, 2), (5, 9), (13, 14)], "start int, end int")
    found = dovetail.interval_nearest(rows, rows, ties=ties, ignore_overlaps=True, partitions=3)
    assert (asked[0]["partitions"], found.count()) == (3, 3)


@pytest.mark.parametrize("ties", ["any", "first", "all"])
def test_a_largest_distance_beyond_64_bits_of_floats(spark: SparkSession, ties: Any) -> None:
    left = spark.createDataFrame([(0.0, 1.0)], "start double, end double")
    right = spark.createDataFrame([(1e25, 2e25)], "start double, end double")
    found = [dovetail.interval_nearest(left, right, max_distance=most, ties=ties).count() for most in (1e24, 1e30)]
    assert found == [0, 1]
