"""Table functions in SQL: what is planned, what each input sees, and which calls are refused."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import dovetail
from dovetail.errors import PlanError
from dovetail.functions import FINITE
from dovetail.rewrite import sql

if TYPE_CHECKING:
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
