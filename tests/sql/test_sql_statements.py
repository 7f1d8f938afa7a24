"""ASOF JOIN and interval functions in other statements than SELECT, and values of parameters."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from dovetail.errors import PlanError
from dovetail.rewrite import sql
from dovetail.rewrite.parameters import bound
from dovetail.rewrite.statement import select_first

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ASOF = "a.id, b.id as other from spans a asof join spans b on a.k = b.k and a.start > b.start"
MEETS = "a.id, b.id as other from spans a join spans b on interval_meets(a.start, a.end, b.start, b.end)"


@pytest.fixture(autouse=True)
def spans(spark: SparkSession) -> None:
    rows = [("a", 1, 0, 5), ("b", 2, 3, 9), ("a", 3, 5, 6), ("a", 4, 9, 12)]
    spark.createDataFrame(rows, "k string, id int, start int, end int").createOrReplaceTempView("spans")


def rows(spark: SparkSession, query: str, **more: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, sql(spark, query, **more).collect()))


@pytest.mark.parametrize(("query", "expected"), [(ASOF, [(3, 1), (4, 3)]), (MEETS, [(1, 3), (2, 4)])])
def test_statements_around_a_query(
    spark: SparkSession, tmp_path: Path, query: str, expected: list[tuple[int, int]]
) -> None:
    try:
        made = f"create table kept using parquet location '{tmp_path}/kept' as select {query};"
        assert "left to Spark:\n- the statement around the query" in sql(spark, made, explain=True)
        assert not (tmp_path / "kept").exists(), "explaining runs nothing"
        sql(spark, made)
        assert rows(spark, "select * from kept") == expected
        sql(spark, f"insert into kept with w as (select {query}) select * from w limit 1")
        sql(spark, f"insert into kept (select {query})")
        assert len(rows(spark, "select * from kept")) == 5
        kind = "asof_join" if "asof" in query else "interval_join"
        sql(spark, f"insert overwrite kept select /*+ {kind}(memory='2MB') */ {query}")
        assert rows(spark, "select * from kept") == expected
    finally:
        spark.sql("drop table if exists kept")
    assert sql(spark, f"create or replace temp view v as select {query}").columns == []
    assert sorted(spark.table("v").collect()) == expected
    sql(spark, "create or replace temporary view v as select id from count_overlaps(spans, spans, on => 'k')")
    assert spark.table("v").count() == 4
    spark.catalog.dropTempView("v")


def test_from_first(spark: SparkSession) -> None:
    columns, tables = ASOF.split(" from ")
    expected = [(3, 1), (4, 3)]
    assert rows(spark, f"from {tables} select {columns}") == expected
    assert rows(spark, f"FROM {tables} SELECT {columns} where b.id > 1 order by 1;") == [(4, 3)]
    assert len(sql(spark, f"from {tables}").columns) == 8
    nested = f"select * from (from {tables} select {columns}) union all (from {tables} select max(a.id), 0)"
    assert rows(spark, nested) == [(3, 1), (4, 0), (4, 3)]
    assert rows(spark, f"with w as (from {tables} select {columns}) from w") == expected
    assert "1 as-of join" in sql(spark, f"explain from {tables} select {columns}", explain=True)


@pytest.mark.parametrize(
    "query", ["from a select b", "select trim(from ' x')", "select a from b", "from a |> select b"]
)
def test_other_texts_are_not_turned(query: str) -> None:
    assert select_first(query) == query


VALUES = [
    5, -3, 2**40, True, None, 1.5, -2e-9, float("inf"), "plain", "it's", "a\\'b", "$" + "{x} {y} :z ?", "two\nlines é",
    b"\x00'", Decimal("1.50"), Decimal("-1E+3"), date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime(2026, 1, 2, tzinfo=UTC), timedelta(days=-2, seconds=5, microseconds=7), timedelta(0), [1, 2], ["a", "'"],
]  # fmt: skip


def test_values_have_the_types_that_spark_gives_them(spark: SparkSession) -> None:
    for value in VALUES:
        theirs = spark.sql("select :v as v", {"v": value})
        ours = sql(spark, "select :v as v", args={"v": value})
        assert ours.collect() == theirs.collect(), value
        assert ours.schema["v"].dataType == theirs.schema["v"].dataType, value
        assert sql(spark, "select ? as v", args=[value]).collect() == theirs.collect()
    assert bound("select :t", {"t": time(1, 2, 3, 4)}) == "select TIME'01:02:03.000004'"


def test_markers(spark: SparkSession) -> None:
    query = "select ':x', `:x`, cast(null as struct<x:int>) /* :x */, a::int, :x, :y -- :x"
    assert bound(query, {"x": 1, "int": 2}) == query.replace(", :x, :y", ", (1), :y")
    assert bound("select '?', ?, ?, ?", ["a", 1]) == "select '?', 'a', (1), ?"
    attack = "x' or true --"
    assert rows(spark, f"select {ASOF} where a.k = :k", args={"k": attack}) == []
    assert rows(spark, f"select {ASOF} and b.start < :n where a.k = :k", args={"k": "a", "n": 5}) == [(3, 1), (4, 1)]
    call = "select id, n_overlaps from count_overlaps(spans, spans, on => ?) where id = ?"
    assert rows(spark, call, args=["k", 1]) == [(1, 1)]
    assert "keys: a.k = b.k" in sql(spark, f"select {ASOF} limit :n", args={"n": 1}, explain=True)
    with pytest.raises(PlanError, match="the value of the parameter 'k' is a set"):
        sql(spark, f"select {ASOF} where a.k = :k", args={"k": {1}})
    with pytest.raises(PlanError, match="args must be values by name"):
        sql(spark, "select :k", args="k")
