"""Joins by inequalities: bands with one limit, one or several of them, beside the definition and beside DuckDB."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from tests import oracle

import dovetail
from dovetail.errors import PlanError
from dovetail.joins.interval.plan.bins import OrderCells
from dovetail.joins.interval.plan.grid import GridCells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
KEYS = (("k", "k"),)


def made(n: int, seed: int, own: str) -> Rows:
    """Rows with a key, two numbers that go together but for some, and nulls."""
    random = Random(seed)  # noqa: S311  (repeatable, no secrets)
    rows = []
    for number in range(n):
        x = random.choice([None, *range(-20, 20)])
        u = random.choice([None, 0, 7]) if x is None or random.random() < 0.2 else x * 3 + random.randrange(5)
        rows.append({"k": random.choice(["a", "b", None]), "x": x, "u": u, own: number})
    return rows


def frame(spark: SparkSession, rows: Rows, own: str, kind: str = "int") -> DataFrame:
    given = spark.createDataFrame([tuple(row.values()) for row in rows], f"k string, x int, u int, {own} int")
    return given.selectExpr("k", f"cast(x as {kind}) x", f"cast(u as {kind}) u", own)


def ids(pairs: list[oracle.Pair]) -> Any:
    return oracle.bag((a and a["l"], b and b["r"]) for a, b in pairs)


def answered(found: DataFrame) -> Any:
    wanted = found.select("l", "r") if "r" in found.columns else found.select("l")
    return oracle.bag((*row, None)[:2] for row in map(tuple, wanted.collect()))


BANDS: list[Any] = [
    [("x", "x", 0, None)],
    [("x", "u", None, 2)],
    [("x", "x", 0, None), ("u", "u", 0, None)],
    [("x", "x", 0, None), ("u", "u", None, 0)],
    [("x", "x", 1, None), ("x", "u", None, 5), ("u", "u", -3, None)],
]


@pytest.mark.parametrize("closed", ["both", "neither"])
@pytest.mark.parametrize("bands", BANDS, ids=str)
def test_inequalities_of_every_how(spark: SparkSession, bands: Any, closed: Any) -> None:
    left, right = made(50, 3, "l"), made(60, 4, "r")
    kind, on = ("int", KEYS) if closed == "both" else ("double", ())
    one, other = frame(spark, left, "l", kind).cache(), frame(spark, right, "r", kind).cache()
    for how in oracle.HOWS:
        keys = [tuple(key) for key in on] or None
        found = dovetail.band_join(one, other, within=bands, on=keys, how=how, closed=closed)  # type: ignore[arg-type]
        expected = oracle.join(left, right, oracle.within(bands, on, closed), how)
        assert answered(found) == ids(expected), how


@pytest.mark.parametrize("kind", ["timestamp", "date", "decimal(9, 2)", "float", "bigint", "timestamp_ntz"])
def test_inequalities_of_every_type(spark: SparkSession, kind: str) -> None:
    left, right = made(30, 5, "l"), made(30, 6, "r")
    source = {"timestamp": "timestamp_seconds(x)", "date": "date_from_unix_date(x)"}.get(kind, f"cast(x as {kind})")
    if kind == "timestamp_ntz":
        source = "cast(timestamp_seconds(x) as timestamp_ntz)"
    one, other = (frame(spark, rows, own).withColumn("x", expr(source)) for rows, own in ((left, "l"), (right, "r")))
    for closed in ("both", "neither"):
        found = dovetail.band_join(one, other, within=("x", "x", 0, None), closed=closed)  # type: ignore[arg-type]
        assert answered(found) == ids(oracle.join(left, right, oracle.within([("x", "x", 0, None)], (), closed)))


def expr(text: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

    return F.expr(text)


def test_inequalities_of_times_of_day(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        at = spark.sql("select * from values (time'08:00:00', 1), (time'08:00:00.000001', 2), (null, 3) as t(at, l)")
        other = at.withColumnRenamed("l", "r")
        found = dovetail.band_join(at, other, within=("at", "at", 0, None), closed="neither", how="left")
        assert answered(found) == oracle.bag([(1, 2), (2, None), (3, None)])
        near = dovetail.band_join(at, other, within=("at", "at", None, "1 hour"), how="left_semi")
        assert answered(near) == oracle.bag([(1, None), (2, None)])
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")


def test_semi_and_anti_joins_by_an_inequality_form_no_pair(spark: SparkSession) -> None:
    rows = spark.range(30_000).selectExpr("id", "id % 3 as k")
    for how, n in (("left_semi", 29_997), ("left_anti", 3)):
        plan = dovetail.plan_band_join(rows, rows, within=("id", "id", 1, None), on="k", how=how)  # type: ignore[arg-type]
        assert "algorithm: extremes (each row is compared with the latest start" in plan.explain()
        frame = plan.frame()
        assert frame.count() == n
        tree = frame._jdf.queryExecution().optimizedPlan().toString()
        assert tree.count("Join ") == 1
        assert "max(" in tree
    outer = dovetail.plan_band_join(rows, rows, within=("id", "id", 29_990, None), how="full")
    assert outer.frame().count() == 55 + 2 * (30_000 - 10)
    assert outer.frame().where("id is null or id_right is null").count() == 2 * (30_000 - 10)


def test_rows_beyond_all_matches_are_compared_with_nothing(spark: SparkSession) -> None:
    early = spark.range(20_000).selectExpr("id as x")
    late = spark.range(20_000).selectExpr("id + 19990 as x")
    plan = dovetail.plan_band_join(late, early, within=("x", "x", 1, None))
    cells = plan.plan.route.cells  # type: ignore[union-attr]
    assert isinstance(cells, OrderCells)
    assert cells.points[0] == 19_991
    assert cells.points[-1] > 19_999
    samples = [statistics.sample for statistics in plan.plan.inputs.statistics]
    assert cells.part(*samples) < 1e-4, "of all pairs hardly any share a range"
    assert plan.frame().count() == 45


def test_a_grid_meets_few_rows_that_do_not_match(spark: SparkSession) -> None:
    """More pay and less tax: of columns that rise together few pairs match, and not many more are tested."""
    paid = spark.range(3_000).selectExpr("id * 10 as pay", "id * 3 + hash(id) % 40 as tax", "id")
    bands: list[Any] = [("pay", "pay", 0, None), ("tax", "tax", None, 0)]
    plan = dovetail.plan_band_join(paid, paid, within=bands, closed="neither")
    cells = plan.plan.route.cells  # type: ignore[union-attr]
    assert isinstance(cells, GridCells)
    assert "algorithm: grid (rows are copied" in plan.explain()
    assert f"grid: {cells.explain()}" in plan.explain()
    assert cells.candidates < 3_000**2 / 5
    plain = "a.pay < b.pay and a.tax > b.tax"
    expected = paid.alias("a").join(paid.alias("b"), expr(plain)).count()
    assert plan.frame().count() == expected > 0
    kept = dovetail.band_join(paid, paid, within=bands, closed="neither", how="left_anti").count()
    assert kept == paid.alias("a").join(paid.alias("b"), expr(plain), "left_anti").count()
    route = replace(
        plan.plan.route, cells=replace(cells, sources=cells.sources[::2], targets=cells.targets[::3])
    )  # as if few were sampled
    other = replace(plan.plan, decision=replace(plan.plan.decision, route=route))
    assert other.frame().count() == expected


def test_duckdb_gives_the_same_pairs(spark: SparkSession) -> None:
    left, right = made(80, 11, "l"), made(70, 12, "r")
    one, other = frame(spark, left, "l"), frame(spark, right, "r")
    a, b = pa.Table.from_pylist(left), pa.Table.from_pylist(right)
    db = duckdb.connect()
    db.register("a", a)
    db.register("b", b)
    for bands, closed, on in [
        ([("x", "x", 0, None)], "neither", "a.x < b.x"),
        ([("x", "x", 0, None), ("u", "u", 0, None)], "neither", "a.x < b.x and a.u < b.u"),
        ([("x", "x", 0, None), ("u", "u", None, 0)], "both", "a.x <= b.x and a.u >= b.u"),
    ]:
        theirs = db.execute(f"select a.l, b.r from a full join b on {on}").fetchall()
        assert answered(dovetail.band_join(one, other, within=bands, closed=closed, how="full")) == oracle.bag(theirs)  # type: ignore[arg-type]


def test_polars_gives_the_same_pairs(spark: SparkSession) -> None:
    """Polars' `join_where`, which drops pairs of nulls as well: one inequality, two, a band, and a band with a key."""
    left, right = made(80, 13, "l"), made(70, 14, "r")
    one, other = frame(spark, left, "l"), frame(spark, right, "r")
    mine, theirs = pl.DataFrame(left), pl.DataFrame(right)
    x, u, there_x, there_u = pl.col("x"), pl.col("u"), pl.col("x_right"), pl.col("u_right")
    given: list[tuple[Any, Any, str | None, list[Any]]] = [
        ([("x", "x", 0, None)], "neither", None, [x < there_x]),
        ([("x", "x", 0, None), ("u", "u", None, 0)], "both", None, [x <= there_x, u >= there_u]),
        ([("x", "u", -4, 6)], "both", None, [x - 4 <= there_u, x + 6 >= there_u]),
        ([("x", "u", -4, 6)], "left", "k", [x - 4 <= there_u, x + 6 > there_u, pl.col("k") == pl.col("k_right")]),
    ]
    for bands, closed, on, where in given:
        pairs = mine.join_where(theirs, *where).select("l", "r").iter_rows()
        assert answered(dovetail.band_join(one, other, within=bands, closed=closed, on=on)) == oracle.bag(pairs)


def test_explain_and_errors(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, 2)], "x int, u int")
    plan = dovetail.plan_band_join(rows, rows, within=[("x", "x", 0, None), ("u", "u", None, 3)], closed="left")
    assert (
        plan.explain().splitlines()[0].startswith("BandJoin: 0 <= right.x - left.x and right.u - left.u < 3; joined by")
    )
    with pytest.raises(PlanError, match="closed") as problem:
        dovetail.band_join(rows, rows, within=("x", "x", 0, None), closed="open")  # type: ignore[arg-type]
    assert problem.value.argument == "closed"
