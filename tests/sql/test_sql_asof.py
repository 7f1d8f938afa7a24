"""ASOF JOIN in SQL text, as DuckDB runs it: every kind of join, USING, keys that are null, further conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from dovetail.errors import UnsupportedError
from dovetail.rewrite import sql
from dovetail.rewrite.text import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = [
    (1, "x", 0, 5),
    (2, "x", 1, 10),
    (3, "y", 2, 3),
    (4, None, 3, 7),
    (5, "z", 4, 9),
    (6, "x", 2, 9),
    (7, "y", 1, None),
]
B = [(10, "x", 4, 91), (11, "x", 9, 80), (12, "y", 5, 95), (13, None, 6, 99), (14, "w", 1, 92), (15, "x", None, 97)]
COLUMNS = {"a": "id int, k string, l int, t int", "b": "id int, k string, t int, r int"}
HOWS = ("", "inner", "left", "right", "full outer", "semi", "anti")
ON = "a.k = b.k and a.t >= b.t"


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    for name, data in (("a", A), ("b", B)):
        connection.execute(f"create table {name} ({COLUMNS[name].replace('string', 'varchar')})")
        connection.executemany(f"insert into {name} values (?, ?, ?, ?)", data)
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def tables(spark: SparkSession) -> None:
    for name, data in (("a", A), ("b", B)):
        spark.createDataFrame(data, COLUMNS[name]).createOrReplaceTempView(name)


def same(spark: SparkSession, duck: duckdb.DuckDBPyConnection, query: str, ours: str | None = None) -> str:
    """Assert that both give the same rows, by the names of their columns; the report."""
    asked = duck.execute(query)
    names = [column[0] for column in asked.description or ()]
    frame = sql(spark, ours or query)
    assert sorted(frame.columns) == sorted(names)
    order = sorted(range(len(names)), key=lambda n: names[n])
    mine = sorted(range(len(names)), key=lambda n: frame.columns[n])
    expected = [tuple(row[n] for n in order) for row in asked.fetchall()]
    assert by_text([tuple(row[n] for n in mine) for row in frame.collect()]) == by_text(expected)
    report = sql(spark, ours or query, explain=True)
    assert report.startswith("1 as-of join\n"), report
    return report


def by_text(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)


@pytest.mark.parametrize("how", HOWS)
def test_every_kind_of_join(spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str) -> None:
    same(spark, duck, f"select * from a asof {how} join b on {ON}")
    for comparison in ("a.t < b.t", "b.t < a.t"):
        same(spark, duck, f"select a.* from a asof {how} join b on {comparison}")


@pytest.mark.parametrize("how", ["right", "full"])
def test_right_rows_at_one_time_are_matched_once(
    spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str
) -> None:
    twice = "(select * from b union all select * from b where k = 'x')"
    same(spark, duck, f"select a.id, b.k, b.t from a asof {how} join {twice} b on {ON}")
    with pytest.raises(UnsupportedError, match="reads its right input twice"):
        sql(spark, f"select a.id from a asof {how} join (select * from b limit 3) b on {ON}")


@pytest.mark.parametrize("how", HOWS)
def test_using_compares_the_last_column(spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str) -> None:
    same(spark, duck, f"select * from a asof {how} join b using (k, t)")
    if how not in ("semi", "anti"):
        same(
            spark,
            duck,
            f"select k, t, a.t as at, b.t, b.k as bk, l, r from a asof {how} join b using (k, t) where k <> 'y'",
        )


def test_using_among_other_joins(spark: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
    same(spark, duck, "select * from a asof join b using (t)")
    query = "select k, i, r, b.t as bt from a asof join b using (k, t) join (select id as i from a) c on i = a.id "
    query += "order by a.t, b.t"
    same(spark, duck, query)
    assert sql(spark, "select * from a asof join b using (k, t)").columns == ["k", "t", "id", "l", "id", "r"]
    with pytest.raises(UnsupportedError, match="instead of writing a star"):
        sql(spark, "select b.* from a asof join b using (k, t)")
    with pytest.raises(UnsupportedError, match="NATURAL merges columns"):
        sql(spark, "select * from a natural asof join b")


@pytest.mark.parametrize("how", HOWS)
def test_null_safe_keys(spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str) -> None:
    report = same(spark, duck, f"select * from a asof {how} join b on a.k is not distinct from b.k and a.t >= b.t")
    assert "keys: a.k <=> b.k" in report
    same(spark, duck, f"select * from a asof {how} join b on (a.k, 1) = (b.k, 1) and a.t >= b.t")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("also", ["a.l > 1", "b.r > 90", "a.l <> 1 and b.r <> 80 and 1 = 1"])
def test_conditions_on_one_input(spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str, also: str) -> None:
    """Left rows that they exclude have no match; right rows that they exclude are not searched."""
    query = f"select * from a asof {how} join b on {ON} and {also}"
    if how in ("right", "full outer"):  # DuckDB has no such conditions here: the same rows by a left join
        found = f"select a.id, b.id as found from a asof join b on {ON} and {also}"
        pairs = set(duck.execute(found).fetchall())
        left = [(row[0], None) for row in A if row[0] not in dict(pairs)] if how != "right" else []
        right = [(None, row[0]) for row in B if row[0] not in {found for _, found in pairs}]
        rows = sql(spark, query.replace("*", "a.id, b.id as found")).collect()
        assert by_text([tuple(row) for row in rows]) == by_text([*pairs, *left, *right])
    else:
        assert f"of one input: {also.partition(' and ')[0]}" in same(spark, duck, query)


@pytest.mark.parametrize(
    ("on", "message"),
    [
        (f"{ON} and a.l + b.r > 92", r"a ASOF JOIN b: 'a.l \+ b.r > 92' is no equality or inequality"),
        (f"{ON} and a.l <= b.r", "ON has 2 inequalities"),
        ("a.k = b.k and a.t between b.t and b.r", "ON has 2 inequalities"),
        ("a.k = b.k", "ON has 0 inequalities"),
        (f"{ON} and (a.k, a.l + b.r) = (b.k, 1)", "is no equality or inequality"),
        (f"{ON} and exists (select 1 from a)", "is no equality or inequality"),
        ("(a.k, a.l) <=> b.k and a.t >= b.t", "DATATYPE_MISMATCH"),
        ("struct(a.k) <=> struct(b.k) and a.t >= b.t", "no null-safe key; cast them"),
        ("map(a.k, 1) is not null and array(a.t) >= array(b.t)", "a ASOF JOIN b: on: a column of type array"),
    ],
)
def test_other_conditions_are_refused(spark: SparkSession, on: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as raised:
        sql(spark, f"select * from a asof join b on {on}")
    assert "bound" not in str(raised.value)
    assert "a__" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "n"),
    [
        ("select * from a asof join b on a.t >= b.t", 1),
        ("select asof.t from a asof join b on asof.t = b.t", 0),
        ("select asof.t from a as asof left join b on asof.t = b.t", 0),
        ("select asof.id, b.id from a as asof asof join b on asof.t >= b.t", 1),
        ("select asof.id, b.id from a asof asof join b on asof.t >= b.t", 1),
        ("select a.asof from (select t as asof from a) a asof left join b on a.asof >= b.t", 1),
        ("select (select max(asof.t) from a asof) m, b.id from a asof join b on a.t >= b.t", 1),
        ("select asof.t from a asof join b using (t) union all select a.t from a asof semi join b on a.t > b.t", 0),
        ("select t from (select asof.t from a asof join b using (t)) c asof anti join b on c.t > b.t", 1),
    ],
)
def test_an_alias_called_asof(spark: SparkSession, query: str, n: int) -> None:
    assert len(Source(query).asof) == n
    if n:
        assert sql(spark, query, explain=True).startswith("1 as-of join")


@pytest.mark.parametrize("how", ["", "inner", "left", "left outer"])
@pytest.mark.parametrize("comparison", ["a.t >= b.t", "a.t > b.t", "a.t <= b.t", "b.t > a.t"])
def test_a_match_condition_as_spark_writes_it(
    spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str, comparison: str
) -> None:
    match = f"match_condition ({comparison})"
    wanted = f"select * from a asof {how} join b on {comparison}"
    same(spark, duck, f"{wanted} and a.k = b.k", f"select * from a {how} asof join b {match} on a.k = b.k")
    same(spark, duck, wanted, f"select * from a {how} asof join b {match}")


@pytest.mark.parametrize("how", ["", "left"])
def test_a_match_condition_with_using(spark: SparkSession, duck: duckdb.DuckDBPyConnection, how: str) -> None:
    ours = f"select k, a.t as at, b.t as bt, l, r from a {how} asof join b as b match_condition (a.t >= b.t) using (k)"
    same(spark, duck, f"select a.k, a.t as at, b.t as bt, l, r from a asof {how} join b on {ON}", ours)
    star = sql(spark, f"select * from a {how} asof join b match_condition (a.t >= b.t) using (k)")
    assert star.columns == ["k", "id", "l", "t", "id", "t", "r"]


def test_match_conditions_among_other_joins(spark: SparkSession, duck: duckdb.DuckDBPyConnection) -> None:
    first, second = "match_condition (a.t >= b.t) on a.k = b.k", "match_condition (a.l <= c.t)"
    ours = f"select a.id, b.id as bid, c.r as cr from a asof join b {first} left asof join (select * from b) c {second}"
    wanted = f"select a.id, b.id as bid, c.r as cr from a asof join b on {ON} asof left join b c on a.l <= c.t"
    asked = [tuple(row) for row in sql(spark, ours).collect()]
    assert by_text(asked) == by_text(duck.execute(wanted).fetchall())
    assert sql(spark, ours, explain=True).startswith("2 as-of joins")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("match_condition (a.t >= b.t and a.l > b.r)", "ON has 2 inequalities"),
        ("match_condition (a.t >= b.t) on a.k = b.k and a.l < b.r", "ON has 2 inequalities"),
        ("match_condition (a.t + b.t >= 1)", "is no equality or inequality"),
        ("match_condition (a.t = b.t)", "ON has 0 inequalities"),
    ],
)
def test_other_match_conditions_are_refused(spark: SparkSession, rest: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        sql(spark, f"select * from a asof join b {rest}")


@pytest.mark.parametrize("time", ["a.t", "t"])
@pytest.mark.parametrize("word", ["for system_time", "FOR SYSTEM_TIME", "timestamp"])
def test_a_table_as_of_the_time_of_each_row_is_refused(spark: SparkSession, word: str, time: str) -> None:
    with pytest.raises(UnsupportedError, match=r"ASOF JOIN.*interval_join.*enrich\(at=...\)") as told:
        sql(spark, f"select * from a join b {word} as of {time} on a.k = b.k")
    assert told.value.argument == "query"
