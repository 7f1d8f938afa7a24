"""Joins by inequalities and by texts in SQL: what is recognised, and the rows beside Spark's own and DuckDB's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import inf, nan
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import oracle
from dovetail.rewrite import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, k int, x int, u int, f double, s string, d date"
WORDS = (
    None,
    "",
    "a",
    "ab",
    "b",
    "é",
    "中",
    "https://example.org/1",
    "https://example.org/10",
    "https://example.org/2",
)
HINT = "/*+ interval_join(memory='16MB', partitions=3) */"
FLOATS = (None, -inf, -1.5, 0.0, 1.5, inf, nan)


def rows(seed: int, n: int) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)  # noqa: S311  (test data)
    found = []
    for i in range(n):
        x = rng.choice([None, *range(9)])
        u = None if x is None or rng.random() < 0.1 else 3 * x + rng.randrange(4)
        found.append((i, rng.choice([0, 1, None]), x, u, rng.choice(FLOATS), rng.choice(WORDS)))
    return found


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    for name, data in (("a", rows(1, 40)), ("b", rows(2, 50))):
        frame = spark.createDataFrame(data, "id long, k int, x int, u int, f double, s string").coalesce(1)
        frame.selectExpr("*", "date_add(date'2024-01-01', x) as d").createOrReplaceTempView(name)
    yield
    for name in "ab":
        spark.catalog.dropTempView(name)


def bag(frame: DataFrame) -> Any:
    return oracle.bag(tuple(map(str, row)) for row in frame.collect())  # NaN is no NaN's equal


def same(spark: SparkSession, query: str, kind: str = "inequality") -> str:
    """Assert that a query is planned with one join of this kind, and gives Spark's columns and rows; its report."""
    report = sql(spark, query, explain=True)
    assert report.startswith(f"1 {kind} join\n"), report
    found, expected = sql(spark, query), spark.sql(query.replace(HINT, ""))
    assert found.columns == expected.columns
    assert bag(found) == bag(expected)
    return report


HOWS = ("join", "left join", "right join", "full join", "left semi join", "left anti join")
ON = (
    "a.x < b.x",
    "b.u <= a.x + 9 and a.k = b.k",
    "a.x < b.x and a.u < b.u",
    "a.x < b.u and a.k = b.k and a.id <> b.id",
    "a.f < b.f",
    "a.f >= b.f and a.x < b.x",
    "a.s < b.s",
    "a.d > b.d and b.k <=> a.k",
)


@pytest.mark.parametrize("number", range(len(ON)), ids=ON.__getitem__)
def test_inequalities_mean_what_they_say(spark: SparkSession, number: int) -> None:
    for how in (HOWS[number % 6], HOWS[(number + 3) % 6]):
        columns = "*" if "semi" in how or "anti" in how else "a.id, b.id, a.s"
        same(spark, f"select {columns} from a {how} b on {ON[number]}")


def test_the_report_and_the_place_of_an_inequality(spark: SparkSession) -> None:
    query = "select a.id, b.id from a, b where a.x <= b.x and a.k = b.k and b.x > 2 and a.u + b.u > 9"
    assert same(spark, query) == (
        "1 inequality join\n1. a inner join b\n   inequalities: a.x <= b.x\n   keys: a.k = b.k\n   residual: none"
    )
    hinted = same(spark, f"select {HINT} a.id, b.id from a join b on a.x < b.x and a.u < b.u")
    assert "   hint: interval_join(memory='16MB', partitions=3)" in hinted
    three = "select count(*) from a join b on a.id = b.id join b c on b.x < c.x where a.u > 3"
    assert "- a inner join b: no interval predicate between its sides" in same(spark, three)


def test_columns_that_are_no_intervals_are_inequalities(spark: SparkSession) -> None:
    """More of one and less of the other: neither side has bounds in order, though the comparisons look like overlap."""
    assert "inequalities: a.x < b.x and a.u > b.u" in same(
        spark, "select a.id, b.id from a join b on a.x < b.x and a.u > b.u"
    )
    mixed = "select a.id, b.id from a full join b on a.x < b.x and a.s > b.s"
    assert "inequalities: a.x < b.x and a.s > b.s" in same(spark, mixed)


def test_texts_as_bounds(spark: SparkSession) -> None:
    bounds = "(select id, k, least(s, 'b') as lo, greatest(s, 'b') as hi from {}) {}"
    for how in ("join", "full join", "left anti join"):
        join = f"{bounds.format('a', 'l')} {how} {bounds.format('b', 'r')}"
        columns = "l.id" if "anti" in how else "l.id, r.id"
        same(spark, f"select {columns} from {join} on l.lo <= r.hi and r.lo < l.hi and l.k = r.k", "interval")


def test_duckdb_gives_the_same_rows(spark: SparkSession) -> None:
    db = duckdb.connect()
    for name in "ab":
        db.register(name, spark.table(name).toArrow())
    for on in ("a.x < b.x and a.u > b.u", "a.s < b.s and a.u <= b.u", "a.d < b.d"):
        query = f"select a.id, b.id from a full join b on {on}"
        theirs = oracle.bag(tuple(map(str, row)) for row in db.execute(query).fetchall())
        assert bag(sql(spark, query)) == theirs, on
