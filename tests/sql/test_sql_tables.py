"""Table functions in SQL: what is planned, what each input sees, and which calls are refused."""

from __future__ import annotations

import inspect
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import dovetail
import dovetail.rewrite.tables
from dovetail.errors import PlanError, UnsupportedError
from dovetail.functions import FINITE
from dovetail.rewrite import sql
from dovetail.rewrite.text import Source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = [("a", 1, 0, 5), ("b", 2, 3, 9), ("a", 3, 4, 6), (None, 4, 1, 2)]


@pytest.fixture(autouse=True)
def spans(spark: SparkSession) -> None:
    spark.createDataFrame(ROWS, "k string, id int, start int, end int").createOrReplaceTempView("spans")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, sql(spark, query).collect()), key=str)


def test_every_finite_function_is_public_and_has_its_options() -> None:
    for function in FINITE.values():
        public = getattr(dovetail, function.name)
        assert public is function.call()
        signature = [*function.inputs, *inspect.signature(function.options()).parameters]
        assert list(inspect.signature(public).parameters) == signature


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select id, n_overlaps from count_overlaps(TABLE spans, TABLE(spans), on => 'k')",
         [(1, 2), (2, 1), (3, 2), (4, 0)]),
        ("select c.id from count_overlaps(spans, (select * from spans where id = 2)) c where n_overlaps > 0",
         [(1,), (2,), (3,)]),
        ("select count_overlaps.id from count_overlaps(spans, spans, on => 'k') where n_overlaps = 1", [(2,)]),
        ("with s as (select * from spans where id < 3), t as (select * from count_overlaps(s, TABLE s)) "
         "select id, n_overlaps from t", [(1, 2), (2, 2)]),
        ("select id, n_overlaps from count_overlaps((select * from interval_join(spans, spans, on => 'k', "
         "how => 'left_semi')), spans)", [(1, 4), (2, 3), (3, 3)]),
        ("select j.id, j.id_r from interval_join(spans, spans, left_interval => array('start', 'end'), "
         "relation => 'before', on => array(('k', 'k')), suffixes => ('', '_r')) as j", []),
        ("select id, id_right from interval_topk(spans, (select * from spans where id = 3), k => 1)", [(2, 3)]),
        ("select a.id, t.n_overlaps from spans a join count_overlaps(spans, spans) t on a.id = t.id where a.id in "
         "(select id from count_overlaps(spans, spans) where n_overlaps = 4)", [(1, 4)]),
        ("select id from count_overlaps(spans, spans) where n_overlaps = 4 union all select max(id) from spans",
         [(1,), (4,)]),
        ("select max(depth) from interval_depth(interval_merge(TABLE spans))", [(1,)]),
        ("select count(*) from interval_merge(TABLE spans) tablesample (100 percent)", [(1,)]),
        ("select '{x}' || id from count_overlaps(spans, spans) where id = 4", [("{x}4",)]),
    ],
)  # fmt: skip
def test_a_table_function_is_planned(spark: SparkSession, query: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(spark, query) == sorted(expected, key=str)


def test_joins_and_table_functions_go_together(spark: SparkSession) -> None:
    query = """select /*+ interval_join(algorithm='native') */ t.id, s.id as other
               from count_overlaps(spans, spans) t join spans s on interval_before(t.start, t.end, s.start, s.end)"""
    assert rows(spark, query) == [(4, 2), (4, 3)]
    text = sql(spark, query, explain=True)
    assert text.startswith("1 interval join, 1 table function\n- count_overlaps(spans, spans)\n1. t inner join s")
    assert "hint: interval_join(algorithm='native')" in text


def test_values_of_options_are_constants_of_spark(spark: SparkSession) -> None:
    at = datetime(2026, 1, 1)
    spark.createDataFrame([(at, 1)], "t timestamp, id int").createOrReplaceTempView("events")
    spark.createDataFrame([(at - timedelta(minutes=5), 2)], "t timestamp, other int").createOrReplaceTempView("quotes")
    query = (
        "select id, other from asof_join(events, quotes, on => 't', how => 'left', tolerance => interval {} minutes)"
    )
    assert rows(spark, query.format("'4'")) == [(1, None)]
    assert rows(spark, query.format("'6'")) == [(1, 2)]
    split = "select count(*) from interval_join(spans, spans, route => 'in_memory', split_points => array(2, 1 + 3))"
    assert rows(spark, split) == [(12,)]


def test_decimals_are_exact_and_fractions_may_be_decimals(spark: SparkSession) -> None:
    sums = "(select cast(a as decimal(18, 9)) as x from values (0), (0.1), (0.2), (0.3) as t(a))"
    near = f"select count(*) from band_join({sums}, {sums}, within => ('x', 'x', 0.1, 0.100000000))"
    assert rows(spark, near) == [(3,)]
    wide = (
        f"select count(*) from band_join({sums}, {sums}, within => ('x', 'x', 12345678.123456789, 12345678.123456789))"
    )
    assert rows(spark, wide) == [(0,)]
    values: list[Any] = []
    seen = dovetail.rewrite.tables._values(
        spark, calls_of("band_join(a, b, within => ('x', 'x', 0.1, 12345678.123456789))")
    )
    values += seen["within"][2:]
    assert values == [Decimal("0.1"), Decimal("12345678.123456789")]
    half = "select count(*) from interval_join(spans, spans, min_fraction => 0.5, reciprocal => true)"
    assert rows(spark, half) == [
        (dovetail.interval_join(*[spark.table("spans")] * 2, min_fraction=0.5, reciprocal=True).count(),)
    ]
    split = (
        "select count(*) from interval_join((select double(start) start, double(end) end from spans), (select "
        "double(start) start, double(end) end from spans), route => 'in_memory', split_points => array(1.5, 2.5))"
    )
    assert rows(spark, split) == [(12,)]


def calls_of(text: str) -> Any:
    return dovetail.rewrite.tables._call(Source(text).whole())


def test_limits_of_a_complement_are_a_table(spark: SparkSession) -> None:
    spark.createDataFrame([("a", 0, 9), ("c", 1, 2)], "k string, start int, end int").createOrReplaceTempView("shifts")
    expected = [("a", 6, 9), ("c", 1, 2)]
    for limits in ("TABLE shifts", "(select * from shifts)", "TABLE(shifts)"):
        query = f"select k, start, end from interval_complement(TABLE spans, on => 'k', limits => {limits})"
        assert rows(spark, query) == expected, limits
    seen = "with s as (select * from shifts where k = 'c') select k from "
    seen += "interval_complement(spans, on => 'k', limits => TABLE s)"
    assert rows(spark, seen) == [("c",)]
    pair = "select start, end from interval_complement(spans, limits => (-1, 10))"
    assert rows(spark, pair) == [(-1, 0), (9, 10)]
    with pytest.raises(PlanError, match="on is a constant, not a table"):
        sql(spark, "select * from interval_complement(spans, on => TABLE spans)")


def test_table_functions_in_other_texts(spark: SparkSession, tmp_path: Path) -> None:
    """FROM first, pipes, CREATE TABLE AS, INSERT: the function is planned, and Spark runs the rest."""
    expected = [(1, 2), (2, 1), (3, 2), (4, 0)]
    call = "count_overlaps(TABLE spans, TABLE spans, on => 'k')"
    for query in (
        f"from {call} select id, n_overlaps",
        f"from {call} |> select id, n_overlaps",
        f"select * from {call} |> select id, n_overlaps",
        f"select id, n_overlaps from (from {call} select *)",
        f"from spans |> join {call} c on spans.id = c.id |> select c.id, c.n_overlaps",
    ):
        assert rows(spark, query) == expected, query
        assert "1 table function" in sql(spark, query, explain=True)
    target = f"parquet.`{tmp_path}/counts`"
    made = f"create table counts using parquet location '{tmp_path}/counts' as with s as (select * from spans) "
    made += "select id, n_overlaps from count_overlaps(TABLE s, spans, on => 'k')"
    report = sql(spark, made, explain=True)
    assert report.startswith("1 table function\n- count_overlaps(TABLE s, spans, on => 'k')\n")
    assert not (tmp_path / "counts").exists(), "explaining runs nothing"
    try:
        sql(spark, made)
        assert rows(spark, f"select * from {target}") == expected
        sql(spark, f"insert into counts select id + 10, n_overlaps from {call} where id = 1")
        assert rows(spark, "select * from counts") == sorted([*expected, (11, 2)], key=str)
    finally:
        spark.sql("drop table if exists counts")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("create temp view v (x) as select * from count_overlaps(spans, spans)", "cannot keep"),
        ("create or replace view v as select * from count_overlaps(spans, spans)", "createOrReplaceTempView"),
        ("create view v as select a.id from spans a asof join spans b on a.start >= b.start", "ASOF JOIN: a view"),
        ("cache table c as select * from count_overlaps(spans, spans)", "CREATE TABLE"),
        ("from spans a join spans b |> where interval_before(a.start, a.end, b.start, b.end)", "without |>"),
        ("with s as (select 1) insert into t select 1 from spans a asof join spans b on a.start >= b.start",
         "ASOF JOIN is planned in one"),
        ("from spans a asof join spans b on a.start >= b.start select a.id select b.id", "ASOF JOIN is planned in one"),
    ],
)  # fmt: skip
def test_other_texts_that_cannot_be_planned_say_so(spark: SparkSession, query: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(message)) as caught:
        sql(spark, query)
    assert caught.value.argument == "query"


def test_an_input_that_names_columns_outside_is_refused(spark: SparkSession) -> None:
    inside = "count_overlaps(spans, (select * from spans where id = a.id))"
    for query in (
        f"select * from spans a, lateral (select * from {inside})",
        f"select (select max(n_overlaps) from {inside}) from spans a",
    ):
        with pytest.raises(PlanError, match=r"an input is read by itself.*LATERAL.*a.*id"):
            sql(spark, query)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(spark, "select * from count_overlaps(spans, nowhere)")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("count_overlaps(spans)", r"takes 2 inputs .* as in count_overlaps\(TABLE left, TABLE right"),
        ("count_overlaps(spans, on => 'k', spans)", "takes 2 inputs"),
        ("count_overlaps()", "takes 2 inputs"),
        ("count_overlaps(spans, spans, onn => 'k')", "did you mean 'on'"),
        ("count_overlaps(spans, spans, on => id)", "not a constant"),
        ("count_overlaps(spans, spans, on => )", "not a constant"),
        ("count_overlaps(spans, spans, on => 'q')", "q"),
        ("count_overlaps(spans, spans, on => 'k', on => 'id')", "given twice"),
        ("interval_join(spans, spans, algorithm => 'dipp')", "dip"),
    ],
)
def test_a_call_that_is_wrong_is_an_error(spark: SparkSession, call: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        sql(spark, f"select * from {call}")
    assert caught.value.argument == "query"


def test_spark_reports_text_that_it_cannot_read(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        sql(spark, "select * frm count_overlaps(spans, spans) where (")


def test_names_elsewhere_are_not_calls(spark: SparkSession) -> None:
    assert rows(spark, "select count_overlaps from (select 1 as count_overlaps)") == [(1,)]
    assert rows(spark, "select interval_topk.id from spans interval_topk where id = 1") == [(1,)]
