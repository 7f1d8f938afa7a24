"""Coverage, difference, disjoint pieces and windows on Spark, beside their definitions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests import oracle
from tests.sets.test_sweeps import DAY, KEYS, KINDS, NAMES, SCHEMA, bag, frame_of, key_of, rows_of

import dovetail
from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.plan import choose
from dovetail.joins.sets.plan import coverage as by_index
from dovetail.spark import inputs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROUTES = ["index", "ranges", "native"]


def force(monkeypatch: pytest.MonkeyPatch, route: str) -> None:
    """Take a route that larger inputs, or other types, would take."""
    if route != "index":
        monkeypatch.setattr(by_index, "_fits", lambda _: False)
    if route == "native":
        for module in (choose, by_index):
            monkeypatch.setattr(module, "codes_obstacle", lambda _: "none of these types has codes")


def same_key(a: Any, b: Any, on: list[str]) -> bool:
    return all(oracle.same(a[name], b[name]) for name in on)


def coverage(left: list[Any], right: list[Any], on: list[str], closed: str) -> list[tuple[Any, ...]]:
    wanted = []
    counts = oracle.count_overlaps(left, right, on=[(name, name) for name in on], closed=closed)
    for row, count in counts:
        usable = not oracle.is_empty(row["start"], row["end"], closed)
        others = [b for b in right if same_key(row, b, on) and not oracle.is_empty(b["start"], b["end"], closed)]
        covered = oracle.covered(others, row["start"], row["end"]) if usable else 0
        length = row["end"] - row["start"] if usable else 0
        wanted.append(
            (*(row[name] for name in NAMES), count, covered, float(Fraction(covered, length)) if length else None)
        )
    return wanted


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize("closed", ["left", "both", "neither"])
def test_coverage_equals_the_definition(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, route: str, on: list[str], closed: Any
) -> None:
    force(monkeypatch, route)
    left, right = rows_of(60 + len(on), n=40), rows_of(70, n=12, span=60)
    partitions = 4 if route == "ranges" else None
    plan = dovetail.plan_interval_coverage(
        frame_of(spark, left), frame_of(spark, right), on=on, closed=closed, partitions=partitions
    )
    said = {
        "index": "index: of all right rows",
        "ranges": "ranges: 4 (SPLIT x SPLIT)",
        "native": "counts: route native",
    }
    assert said[route] in plan.explain()
    assert bag(plan.frame()) == oracle.bag(coverage(left, right, on, closed))
    assert plan.frame().columns == [*NAMES, "n_overlaps", "covered", "covered_fraction"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("kind", "value", "_gap"), KINDS, ids=[kind[0] for kind in KINDS])
def test_coverage_of_every_type(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, route: str, kind: str, value: Any, _gap: Any
) -> None:
    force(monkeypatch, route)
    left, right = ([r for r in rows_of(s, n=9) if None not in (r["start"], r["end"])] for s in (80, 81))
    frames = [
        frame_of(
            spark,
            [r | {"start": value(r["start"]), "end": value(r["end"])} for r in rows],
            f"k string, start {kind}, end {kind}, v int",
        )
        for rows in (left, right)
    ]
    unit = value(1) - value(0)
    seconds = unit.total_seconds() if isinstance(unit, dt.timedelta) else unit
    found = (
        dovetail.interval_coverage(*frames, on="k").select("v", "n_overlaps", "covered", "covered_fraction").collect()
    )
    wanted = {row[3]: row[4:] for row in coverage(left, right, ["k"], "left")}
    for v, count, covered, share in found:
        assert count == wanted[v][0]
        assert float(covered) == pytest.approx(float(wanted[v][1] * seconds))
        assert share == (None if wanted[v][2] is None else pytest.approx(wanted[v][2]))
    assert isinstance(found[0]["covered"], Decimal) == kind.startswith("decimal")


@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize("closed", ["left", "both"])
def test_differences_equal_the_definition(spark: SparkSession, on: list[str], closed: Any) -> None:
    left, right = rows_of(90 + len(on), n=25), rows_of(91, n=15)
    frames = frame_of(spark, left), frame_of(spark, right)
    wanted, apart = [], []
    for row in left:
        usable = not oracle.is_empty(row["start"], row["end"], closed)
        others = [b for b in right if same_key(row, b, on) and not oracle.is_empty(b["start"], b["end"], closed)]
        met = [
            b
            for b in others
            if usable and oracle.share_a_point(row["start"], row["end"], b["start"], b["end"], (closed, closed))
        ]
        if not met:
            apart.append(tuple(row[name] for name in NAMES))
        pieces = oracle.uncovered(others, row["start"], row["end"]) if usable else []
        if usable and not met and row["start"] == row["end"]:
            pieces = [(row["start"], row["end"])]
        wanted += [(row["k"], *piece, row["v"]) for piece in pieces]
    assert bag(dovetail.interval_subtract(*frames, on=on, closed=closed)) == oracle.bag(wanted)
    assert bag(dovetail.interval_setdiff(*frames, on=on, closed=closed)) == oracle.bag(apart)


@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize("partitions", [None, 4])
def test_disjoint_pieces_equal_the_definition(spark: SparkSession, on: list[str], partitions: int | None) -> None:
    rows = rows_of(95, n=14)
    wanted, states = [], []
    for group in oracle.by_key(rows, on).values():
        for start, end in oracle.pieces(group):
            held = [row for row in group if row["start"] <= start and row["end"] >= end]
            wanted += [(row["k"], start, end, row["v"]) for row in held]
            if held:
                states.append((*key_of(group[0], on), start, end, len(held), sum(row["v"] for row in held)))
    frame = frame_of(spark, rows)
    assert bag(dovetail.make_disjoint(frame, on=on, partitions=partitions)) == oracle.bag(wanted)
    found = dovetail.make_disjoint(frame, on=on, partitions=partitions, aggregates={"total": "sum(v)"})
    assert bag(found) == oracle.bag(states)


@pytest.mark.parametrize(("width", "origin", "closed"), [(7, None, "left"), (5, 3, "both"), (100, -3, "neither")])
def test_windows_equal_the_definition(spark: SparkSession, width: int, origin: Any, closed: Any) -> None:
    rows = rows_of(97, n=30)
    moved = [row | {name: None if row[name] is None else row[name] - 30 for name in ("start", "end")} for row in rows]
    frame, base = frame_of(spark, moved), origin or 0
    wanted, totals = [], dict[Any, list[int]]()
    for row in moved:
        if oracle.is_empty(row["start"], row["end"], closed):
            continue
        for number in range(-100, 100):
            low, high = base + number * width, base + (number + 1) * width
            inside = (
                low <= row["start"] < high
                if row["start"] == row["end"]
                else max(low, row["start"]) < min(high, row["end"])
            )
            if inside:
                overlap = min(high, row["end"]) - max(low, row["start"])
                wanted.append((*(row[name] for name in NAMES), low, high, overlap))
                if row["k"] is not None:
                    totals.setdefault((row["k"], low, high), []).append(overlap)
    given = {"width": width, "origin": origin, "closed": closed}
    assert bag(dovetail.interval_window(frame, **given)) == oracle.bag(wanted)
    pivot = [(*key, len(found), sum(found)) for key, found in totals.items()]
    assert bag(dovetail.interval_pivot(frame, on="k", **given)) == oracle.bag(pivot)


@pytest.mark.parametrize("width", [0.1, 0.3, 7.7])
def test_windows_of_floats_hold_their_points_and_follow_each_other(spark: SparkSession, width: float) -> None:
    points = {width * n for n in range(-20, 20)} | {n / 10 for n in range(30)} | {n * 0.37 - 9 for n in range(40)}
    rows = spark.createDataFrame([(x, x + y) for x in points for y in (0.0, width / 3)], "start double, end double")
    found = dovetail.interval_window(rows, width=width, closed="both").collect()
    of_points = {row.start: row for row in found if row.start == row.end}
    assert len(of_points) == len([row for row in found if row.start == row.end]) == len(points)
    assert all(row.window_start <= row.start < row.window_end for row in of_points.values())
    assert min(row.overlap for row in found) == 0.0
    starts = {row.window_start for row in found}
    inside = {row.window_end for row in found if row.window_end < row.end}
    assert inside <= starts, "a window ends where the next one begins"


@pytest.mark.parametrize("invalid", ["error", "drop", "null"])
def test_rows_of_files_without_a_bound_meet_no_window(spark: SparkSession, tmp_path: Path, invalid: Any) -> None:
    """Spark puts the filters of a file in one, and computes all of it for rows whose first part is null."""
    rows = [("a", 1, 5, 0), ("a", None, 3, 1), ("a", 3, None, 2), ("b", None, None, 3)]
    spark.createDataFrame(rows, SCHEMA).write.parquet(str(tmp_path / "rows"))
    frame = spark.read.parquet(str(tmp_path / "rows"))
    found = dovetail.interval_window(frame, width=4, origin=1, invalid=invalid)
    assert bag(found) == oracle.bag([("a", 1, 5, 0, 1, 5, 4)])
    assert bag(dovetail.interval_pivot(frame, width=4, origin=1, invalid=invalid)) == oracle.bag([(1, 5, 1, 4)])


@pytest.mark.parametrize(
    ("kind", "value", "width"),
    [
        ("timestamp_ntz", lambda n: DAY + dt.timedelta(minutes=n), "1 h"),
        ("timestamp", lambda n: DAY + dt.timedelta(minutes=n), dt.timedelta(hours=1)),
        ("decimal(12, 2)", lambda n: Decimal(n) / 4, 15),
        ("double", lambda n: n / 4, 15.0),
        ("float", lambda n: n / 4, Decimal(15)),
        ("date", lambda n: (DAY + dt.timedelta(days=n)).date(), "60 days"),
    ],
)
def test_windows_of_every_type(spark: SparkSession, kind: str, value: Any, width: Any) -> None:
    start, end = value(-10), value(130)
    frame = spark.createDataFrame([(start, end)], f"start {kind}, end {kind}")
    found = dovetail.interval_window(frame, width=width, origin=value(0)).orderBy("window_start").collect()
    assert [(row["window_start"], row["window_end"]) for row in found] == [
        (value(at), value(at + 60)) for at in (-60, 0, 60, 120)
    ]
    unit = value(1) - value(0)
    each = unit.total_seconds() if isinstance(unit, dt.timedelta) else unit
    assert [row["overlap"] for row in found] == [each * n for n in (10, 60, 60, 10)]


def test_results_that_bioframe_gives(spark: SparkSession) -> None:
    """Values of bioframe 0.8: merge, cluster, coverage, subtract, setdiff and complement of one chromosome."""
    schema = "chrom string, start bigint, end bigint"
    one = spark.createDataFrame([("a", 1, 5), ("a", 5, 9), ("a", 20, 30)], schema)
    other = spark.createDataFrame([("a", 3, 7), ("a", 25, 26), ("a", 4, 9)], schema)
    assert bag(dovetail.interval_merge(one, on="chrom")) == oracle.bag([("a", 1, 9, 2), ("a", 20, 30, 1)])
    assert dovetail.interval_merge(one, on="chrom", gap=None).count() == 3
    numbers = dovetail.interval_cluster(one, on="chrom").select("start", "cluster", "cluster_start", "cluster_end")
    assert bag(numbers) == oracle.bag([(1, 0, 1, 9), (5, 0, 1, 9), (20, 1, 20, 30)])
    covered = dovetail.interval_coverage(one, other, on="chrom").select("start", "covered")
    assert bag(covered) == oracle.bag([(1, 2), (5, 4), (20, 1)])
    rest = oracle.bag([("a", 1, 3), ("a", 20, 25), ("a", 26, 30)])
    assert bag(dovetail.interval_subtract(one, other, on="chrom")) == rest
    assert dovetail.interval_setdiff(one, other, on="chrom").collect() == []
    free = dovetail.interval_complement(one, on="chrom", limits=(0, 2**63 - 1))
    assert bag(free) == oracle.bag([("a", 0, 1), ("a", 9, 20), ("a", 30, 2**63 - 1)])


def test_times_of_day(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        left = spark.sql("select time'22:30:00' as start, time'23:30:00.5' as end")
        right = spark.sql("select time'22:00:00' as start, time'22:45:00' as end")
        for route in ROUTES:
            force(monkeypatch, route)
            found = dovetail.interval_coverage(left, right).select("n_overlaps", "covered").collect()
            assert list(map(tuple, found)) == [(1, 900.0)]
        rest = dovetail.interval_subtract(left, right).collect()
        assert list(map(tuple, rest)) == [(dt.time(22, 45), dt.time(23, 30, 0, 500_000))]
        windows = dovetail.interval_window(left, width="1 h").drop("start", "end").orderBy("window_start").collect()
        ends = [(dt.time(22), dt.time(23), 1800.0), (dt.time(23), None, 1800.5)]  # midnight is no time of day
        assert list(map(tuple, windows)) == ends
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")


def test_the_smallest_budget_takes_ranges(spark: SparkSession) -> None:
    left = spark.range(0, 60_000).selectExpr("id * 10 + 6 as start", "id * 10 + 19 as end")
    right = spark.range(1, 60_000).selectExpr("id * 10 + 5 as start", "id * 10 + 10 as end")
    plan = dovetail.plan_interval_coverage(left, right, memory="1MB")
    assert plan.explain().splitlines()[1] == "index: of the right rows of each range"
    found = plan.frame().selectExpr("n_overlaps", "covered").groupBy("n_overlaps", "covered").count()
    assert bag(found) == oracle.bag([(2, 8, 59_998), (1, 4, 2)])
    assert plan.metrics().value("memory") <= 1 << 20
    assert bag(dovetail.interval_merge(left, memory="1MB")) == oracle.bag([(6, 600_009, 60_000)])


def test_wrong_requests(spark: SparkSession) -> None:
    frame = frame_of(spark, rows_of(1, n=3))
    dates = spark.createDataFrame([(dt.date(2024, 1, 1), dt.date(2024, 1, 2))], "start date, end date")
    wrong: list[tuple[Any, str, str]] = [
        (lambda: dovetail.interval_window(frame, width=0), "width", "above zero"),
        (lambda: dovetail.interval_window(dates, width="1 h"), "width", "larger width"),
        (lambda: dovetail.interval_window(frame, width=5, origin="x y"), "origin", "does not fit|do not compare"),
        (lambda: dovetail.interval_pivot(frame, width="1 h"), "width", "give a number"),
        (lambda: dovetail.interval_coverage(frame, frame, on="x"), "on", "no column 'x'"),
        (lambda: dovetail.interval_coverage(frame.withColumnRenamed("v", "covered"), frame), "left", "already has"),
        (lambda: dovetail.interval_subtract(frame, frame, left_interval="k"), "left_interval", "struct"),
    ]
    for call, argument, message in wrong:
        with pytest.raises(PlanError, match=message) as caught:
            call()
        assert caught.value.argument == argument
    broken = spark.createDataFrame([(9, 4)], "start int, end int")
    for function in (dovetail.interval_coverage, dovetail.interval_subtract, dovetail.interval_setdiff):
        with pytest.raises(DataError, match=r"end before they start|ends before it starts"):
            function(broken, broken).collect()
        assert function(broken, broken, invalid="drop").collect() == []


def test_right_rows_are_collected_only_if_the_driver_may(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spark.createDataFrame([("a", n, n + 3) for n in range(100)], "k string, start int, end int")
    found, firsts = dovetail.plan_interval_coverage(rows, rows), dovetail.plan_interval_join(rows, rows, keep="first")
    assert "index: of all right rows" in found.explain()
    assert "algorithm: index" in firsts.explain()
    monkeypatch.setattr(inputs, "collectable_bytes", lambda _: 100.0)
    other, others = dovetail.plan_interval_coverage(rows, rows), dovetail.plan_interval_join(rows, rows, keep="first")
    assert "index: of the right rows of each range" in other.explain()
    assert "algorithm: index" not in others.explain()
    assert bag(other.frame()) == bag(found.frame())
    assert bag(others.frame()) == bag(firsts.frame())


@pytest.mark.parametrize(
    ("setting", "most"),
    [(None, 2**29), ("0", inf), ("0m", inf), ("2g", 2**30), ("512MB", 2**28), ("1048576", 2**19)],
)
def test_half_of_what_spark_lets_the_driver_collect(setting: str | None, most: float) -> None:
    class Settings:
        def get(self, name: str, default: str) -> str:
            assert name == "spark.driver.maxResultSize"
            return default if setting is None else setting

    assert inputs.collectable_bytes(SimpleNamespace(conf=Settings())) == most  # type: ignore[arg-type]  # a session
