"""Merge, cluster, complement and depth on Spark, beside their definitions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests import oracle

import dovetail
from dovetail.errors import DataError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ["k", "start", "end", "v"]
SCHEMA = "k string, start int, end int, v int"
KEYS = [[], ["k"]]
CUTS = [None, 5]


def rows_of(seed: int, n: int = 60, keys: int = 3, span: int = 60) -> list[dict[str, Any]]:
    """Rows with null keys, null bounds, empty intervals, duplicates, and one hot key."""
    rng = Random(seed)  # noqa: S311  (repeatable, no secrets)
    some = [None, *(f"k{number}" for number in range(keys)), *["k0"] * keys]
    found = []
    for number in range(n):
        start = rng.randrange(span)
        bounds = [start, start + rng.choice([0, 1, 1, 2, 3, rng.randrange(span // 4)])]
        if rng.random() < 0.1:
            bounds[rng.randrange(2)] = None  # type: ignore[call-overload]  # a null bound
        found.append(dict(zip(NAMES, (rng.choice(some), *bounds, number), strict=True)))
    return found + [dict(row) for row in found[:3]]


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in NAMES) for row in rows], schema)


def bag(frame: DataFrame) -> Any:
    return oracle.bag(map(tuple, frame.collect()))


def key_of(row: Any, on: list[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in on)


@pytest.mark.parametrize("partitions", CUTS)
@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize(("gap", "closed"), [(0, "left"), (2, "both"), (None, "left"), (None, "both"), (1, "neither")])
def test_merged_rows_equal_the_definition(
    spark: SparkSession, on: list[str], gap: Any, closed: Any, partitions: int | None
) -> None:
    rows = rows_of(len(on) + 10 * CUTS.index(partitions))
    found = dovetail.interval_merge(
        frame_of(spark, rows),
        on=on,
        gap=gap,
        closed=closed,
        partitions=partitions,
        aggregates={"total": "sum(v)", "most": F.max("v")},
    )
    wanted = [
        (
            *key_of(group[0], on),
            min(row["start"] for row in group),
            max(row["end"] for row in group),
            len(group),
            sum(row["v"] for row in group),
            max(row["v"] for row in group),
        )
        for group in oracle.clusters(rows, gap, on, closed)
    ]
    assert bag(found) == oracle.bag(wanted)
    assert found.columns == [*on, "start", "end", "n_merged", "total", "most"]


@pytest.mark.parametrize("partitions", CUTS)
@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize(("gap", "closed"), [(0, "left"), (3, "both"), (None, "right")])
def test_clusters_equal_the_definition(
    spark: SparkSession, on: list[str], gap: Any, closed: Any, partitions: int | None
) -> None:
    rows = rows_of(20 + len(on))
    found = dovetail.interval_cluster(frame_of(spark, rows), on=on, gap=gap, closed=closed, partitions=partitions)
    wanted, numbers = [], dict[Any, int]()
    for group in oracle.clusters(rows, gap, on, closed):
        key = key_of(group[0], on)
        number = numbers[key] = numbers.get(key, -1) + 1
        bounds = min(row["start"] for row in group), max(row["end"] for row in group)
        wanted += [(*(row[name] for name in NAMES), number, *bounds) for row in group]
    usable = {id(row) for group in oracle.by_key(rows, on, closed).values() for row in group}
    wanted += [(*(row[name] for name in NAMES), None, None, None) for row in rows if id(row) not in usable]
    assert bag(found) == oracle.bag(wanted)


@pytest.mark.parametrize("partitions", CUTS)
@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize("closed", oracle.CLOSED)
def test_depths_equal_the_definition(spark: SparkSession, on: list[str], closed: Any, partitions: int | None) -> None:
    rows = rows_of(30 + len(on))
    given = {"on": on, "closed": closed, "partitions": partitions}
    frame = frame_of(spark, rows)
    groups = {key: oracle.interval_depth(group, closed) for key, group in oracle.by_key(rows, on, closed).items()}
    wanted = [(*key, *piece) for key, found in groups.items() for piece in found]
    assert bag(dovetail.interval_depth(frame, **given)) == oracle.bag(wanted)
    most = [(*key, *min(found, key=lambda piece: (-piece[2], *piece))) for key, found in groups.items()]
    assert bag(dovetail.interval_depth(frame, **given, keep="largest")) == oracle.bag(most)


@pytest.mark.parametrize("partitions", CUTS)
@pytest.mark.parametrize("on", KEYS)
@pytest.mark.parametrize("limits", [None, (5, 70), (None, 40), "frame"])
def test_gaps_equal_the_definition(spark: SparkSession, on: list[str], limits: Any, partitions: int | None) -> None:
    rows = rows_of(40 + len(on), n=12)
    groups = oracle.by_key(rows, on, "both")
    ranges = []
    for key, group in groups.items():
        low, high = min(row["start"] for row in group), max(row["end"] for row in group)
        if isinstance(limits, tuple):
            low, high = (limits[0] if limits[0] is not None else low), limits[1]
        ranges.append((*key, low, high))
    if limits == "frame":
        ranges = [("k0", 0, 50), ("k0", 50, 90), ("k9", 1, 4)] if on else [(0, 50), (55, 90)]
        asked = spark.createDataFrame(
            [*ranges, (None, 0, 9)] if on else ranges,  # type: ignore[list-item]  # a null key
            "k string, start int, end int" if on else "start int, end int",
        )
    else:
        asked = limits
    found = dovetail.interval_complement(
        frame_of(spark, rows), on=on, limits=asked, closed="both", partitions=partitions
    )
    wanted = [
        (*key, *gap) for *key, low, high in ranges for gap in oracle.uncovered(groups.get(tuple(key), []), low, high)
    ]
    assert bag(found) == oracle.bag(wanted)


DAY = dt.datetime(2024, 3, 1)
KINDS: list[tuple[str, Any, Any]] = [  # a type, its value of a number, and a gap of two in it
    ("tinyint", int, 2),
    ("bigint", lambda n: n + 2**60, 2),
    ("float", lambda n: n / 4, 0.5),
    ("double", lambda n: n / 10, 0.2),
    ("decimal(10, 2)", lambda n: Decimal(n) / 4, Decimal("0.5")),
    ("decimal(30, 3)", lambda n: Decimal(n), Decimal(2)),
    ("date", lambda n: (DAY + dt.timedelta(days=n)).date(), dt.timedelta(days=2)),
    ("timestamp", lambda n: DAY + dt.timedelta(seconds=n), "2 s"),
    ("timestamp_ntz", lambda n: DAY + dt.timedelta(microseconds=n), 0.000002),
    ("interval day to second", lambda n: dt.timedelta(minutes=n), dt.timedelta(minutes=2)),
]


@pytest.mark.parametrize(("kind", "value", "gap"), KINDS, ids=[kind[0] for kind in KINDS])
def test_every_type_of_bounds(spark: SparkSession, kind: str, value: Any, gap: Any) -> None:
    rows = [row for row in rows_of(50, n=25) if row["start"] is not None and row["end"] is not None]
    given = [row | {"start": value(row["start"]), "end": value(row["end"])} for row in rows]
    frame = frame_of(spark, given, f"k string, start {kind}, end {kind}, v int")
    merged = dovetail.interval_merge(frame, on="k", gap=gap, partitions=3)
    wanted = [
        ("k", value(min(row["start"] for row in group)), value(max(row["end"] for row in group)), len(group))
        for group in oracle.clusters(rows, 2, ["k"])
    ]
    assert bag(merged.selectExpr("'k'", "start", "end", "n_merged")) == oracle.bag(wanted)
    assert merged.schema["start"].dataType == frame.schema["start"].dataType
    groups = oracle.by_key(rows, ["k"])
    depths = [(value(p[0]), value(p[1]), p[2]) for group in groups.values() for p in oracle.interval_depth(group)]
    assert bag(dovetail.interval_depth(frame, on="k").drop("k")) == oracle.bag(depths)


def test_a_struct_of_bounds_stays_a_struct(spark: SparkSession) -> None:
    frame = spark.sql("select named_struct('a', 1, 'b', 5L) as `p q` union all select named_struct('a', 4, 'b', 9L)")
    merged = dovetail.interval_merge(frame, interval="p q")
    assert merged.schema["p q"].dataType.simpleString() == "struct<a:bigint,b:bigint>"
    assert [tuple(row) for row in merged.collect()] == [((1, 9), 2)]


def test_times_of_day(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        frame = spark.sql(
            "select time'10:00:00' as start, time'11:00:00' as end union all select time'10:30:00.5', time'12:00:00'"
        )
        found = dovetail.interval_depth(frame, keep="largest").collect()
        assert [tuple(row) for row in found] == [(dt.time(10, 30, 0, 500_000), dt.time(11), 2)]
        assert bag(dovetail.interval_merge(frame, gap="1 min")) == oracle.bag([(dt.time(10), dt.time(12), 2)])
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")


def test_inverted_intervals_are_an_error_dropped_or_null(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 3), (9, 4)], "start int, end int")
    with pytest.raises(
        DataError, match="rows input has an interval that ends before it starts or holds NaN, from 9 to 4"
    ):
        dovetail.interval_merge(frame).collect()
    nan = spark.createDataFrame([(1.0, float("nan"))], "start double, end double")
    with pytest.raises(DataError, match=r"from 1\.0 to NaN"):
        dovetail.interval_depth(nan).collect()
    assert bag(dovetail.interval_merge(frame, invalid="drop")) == oracle.bag([(1, 3, 1)])
    assert bag(dovetail.interval_cluster(frame, invalid="drop")) == oracle.bag([(1, 3, 0, 1, 3)])
    kept = oracle.bag([(1, 3, 0, 1, 3), (9, 4, None, None, None)])
    assert bag(dovetail.interval_cluster(frame, invalid="null")) == kept


def test_no_rows(spark: SparkSession) -> None:
    none = spark.createDataFrame([], "k string, start int, end int")
    for partitions in CUTS:
        assert dovetail.interval_merge(none, partitions=partitions).collect() == []
        assert dovetail.interval_cluster(none, on="k", partitions=partitions).collect() == []
        assert dovetail.interval_depth(none, keep="largest", partitions=partitions).collect() == []
        assert bag(dovetail.interval_complement(none, limits=(3, 5), partitions=partitions)) == oracle.bag([(3, 5)])
        assert dovetail.interval_complement(none, on="k", limits=(3, 5)).collect() == []


@pytest.mark.parametrize(
    ("call", "argument", "message"),
    [
        (lambda f: dovetail.interval_merge(f, interval="start"), "interval", "two columns or a struct"),
        (lambda f: dovetail.interval_merge(f, interval=("begin", "end")), "interval", "has no column 'begin'"),
        (lambda f: dovetail.interval_merge(f, on=[("k", "v")]), "on", "one name a key"),
        (lambda f: dovetail.interval_merge(f, on="x"), "on", "no column 'x'"),
        (lambda f: dovetail.interval_merge(f, gap=-1), "gap", "below zero"),
        (lambda f: dovetail.interval_merge(f, gap="1 h"), "gap", "give a number"),
        (lambda f: dovetail.interval_merge(f, gap="soon"), "gap", "length of time"),
        (lambda f: dovetail.interval_merge(f, aggregates="sum(v)"), "aggregates", "SQL aggregate"),
        (lambda f: dovetail.interval_merge(f, aggregates={"x": "sum(w)"}), "aggregates", "do not fit the columns"),
        (lambda f: dovetail.interval_merge(f, aggregates={"Start": "sum(v)"}), "aggregates", "twice"),
        (lambda f: dovetail.interval_cluster(f.withColumnRenamed("v", "Cluster")), "rows", "already has columns"),
        (lambda f: dovetail.interval_depth(f, closed="l"), "closed", "not known"),
        (lambda f: dovetail.interval_depth(f, keep="first"), "keep", "not known"),
        (lambda f: dovetail.interval_depth(f, memory="1KB"), "memory", "at least 1 MiB"),
        (lambda f: dovetail.interval_complement(f, limits=5), "limits", "pair"),
        (lambda f: dovetail.interval_complement(f, limits=(0.5, 9)), "limits", "does not fit bounds of type int"),
    ],
)
def test_wrong_requests_are_told_what_to_change(spark: SparkSession, call: Any, argument: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        call(frame_of(spark, rows_of(1, n=2)))
    assert caught.value.argument == argument


def test_a_cut_input_is_swept_by_several_tasks(spark: SparkSession) -> None:
    frame = spark.range(0, 4000).selectExpr("id % 2 = 0 as k", "id * 10 as start", "id * 10 + 15 as end")
    plan = dovetail.plan_interval_merge(frame, partitions=8)
    assert plan.explain().splitlines()[1] == "sweep: in 8 cells (about 4,000 rows, by a sample)"
    assert bag(plan.frame()) == oracle.bag([(0, 40_005, 4000)])
    keyed = dovetail.plan_interval_cluster(frame, on="k", gap=5, partitions=8)
    assert keyed.explain().splitlines()[1].startswith("sweep: by key, 2 keys with many rows in ")
    assert keyed.frame().select("cluster").distinct().count() == 1
    assert any(line.startswith("bytes_written") for line in str(keyed.metrics()).splitlines())


@pytest.mark.parametrize("kind", ["int", "string", "decimal(38, 10)", "timestamp"])
@pytest.mark.parametrize("on", KEYS)
def test_gaps_within_many_ranges_of_a_key(spark: SparkSession, on: list[str], kind: str) -> None:
    """The ranges, which overlap, are joined with the gaps by an interval join: no pair is formed in vain."""
    rng = Random(5)  # noqa: S311  (repeatable, no secrets)
    given = [("ab"[n % 2], 10 * n, 10 * n + rng.randrange(1, 25)) for n in range(60)]
    ranges = [("abc"[n % 3], at, at + rng.randrange(1, 90)) for n, at in enumerate(rng.sample(range(-20, 640), 40))]

    def of(rows: list[tuple[str, int, int]]) -> DataFrame:
        numbers = spark.createDataFrame(rows, "k string, start int, end int")
        as_kind = {"string": "lpad(string({0} + 100), 5, '0')", "timestamp": "timestamp_seconds({0})"}.get(kind, "{0}")
        bounds = (f"cast({as_kind.format(name)} as {kind}) as {name}" for name in ("start", "end"))
        return numbers.selectExpr("k", *bounds)

    expected = []
    for key, low, high in ranges:
        met = [row for row in given if not on or row[0] == key]
        free = [at for at in range(low, high) if not any(start <= at < end for _, start, end in met)]
        firsts = [at for at in free if at - 1 not in free]
        lasts = [at + 1 for at in free if at + 1 not in free]
        expected += [(key if on else "", *gap) for gap in zip(firsts, lasts, strict=True)]
    wanted = of(expected).select(*on, "start", "end")
    plan = dovetail.plan_interval_complement(of(given), on=on, limits=of(ranges).select(*on, "start", "end"))
    assert "gaps joined with the limits:\n  IntervalJoin: overlapping" in plan.explain()
    assert bag(plan.frame()) == bag(wanted)
    assert plan.frame().dtypes == wanted.dtypes
