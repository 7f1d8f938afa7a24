"""ASOF JOIN in SQL: DuckDB's rows, what is around it, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import pytest
from tests import oracle

import dovetail
from dovetail.errors import UnsupportedError
from dovetail.rewrite.text import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRADES = pd.DataFrame([("A", 10, 1), ("A", 15, 2), ("B", 3, 3), ("C", 9, 4)], columns=["k", "t", "l"])
QUOTES = pd.DataFrame([("A", 9, 90), ("A", 10, 91), ("A", 14, 92), ("B", 4, 93)], columns=["k", "t", "r"])


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    for name, table in (("trades", TRADES), ("quotes", QUOTES)):
        spark.createDataFrame(table).createOrReplaceTempView(name)
    return spark


@pytest.mark.parametrize(
    "query",
    [
        "select a.l, b.r from trades a asof join quotes b on a.k = b.k and a.t >= b.t",
        "select a.l, b.r, b.t from trades a ASOF LEFT JOIN quotes b on a.t > b.t and b.k = a.k",
        "select a.l, b.r from trades a asof left join quotes b on a.k = b.k and a.t <= b.t where a.l < 4",
        "select l, r from trades a asof join quotes b on b.t > a.t and a.k = b.k",
        "select a.l, b.r from trades a asof join quotes b on a.k = b.k and a.t >= b.t where b.r <> 92",
        "select a.l, b.r from trades a asof join quotes b on a.t >= b.t + 1 and a.k = b.k",
        "select k, count(*) from (select a.k from trades a asof join quotes b on a.k = b.k and a.t >= b.t) group by 1",
        "select a.*, c.r from trades a join trades z on a.l = z.l asof join quotes c on a.k = c.k and a.t >= c.t",
    ],
)
def test_the_rows_are_those_of_duckdb(views: SparkSession, query: str) -> None:
    trades, quotes = TRADES, QUOTES  # noqa: F841  (DuckDB reads them by name)
    expected = duckdb.query(query).fetchall()
    assert oracle.bag(map(tuple, dovetail.sql(views, query).collect())) == oracle.bag(expected)


def test_explain_tells_the_times_and_keys(views: SparkSession) -> None:
    told = dovetail.sql(
        views, "select a.l from trades a asof left join quotes b on a.k = b.k and a.t >= b.t", explain=True
    )
    assert told.splitlines() == ["1 as-of join", "1. a as-of left join b", "   times: a.t >= b.t", "   keys: a.k = b.k"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select a.l from trades a asof join quotes b on a.k = b.k", "0 inequalities"),
        ("select a.l from trades a asof join quotes b on a.t >= b.t and a.t < b.r", "2 inequalities"),
        ("select a.l from trades a asof join quotes b on a.t >= b.t and a.l + b.r > 3", "no equality or inequality"),
        ("select b.r from trades a natural asof join quotes b", "NATURAL merges columns"),
    ],
)
def test_what_an_asof_join_does_not_say_is_refused(views: SparkSession, query: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        dovetail.sql(views, query)


def test_an_alias_called_asof_stays_an_alias(views: SparkSession) -> None:
    query = "select asof.l from trades asof join quotes b on asof.k = b.k and asof.t = b.t"
    assert not Source(query).asof
    assert [row.l for row in dovetail.sql(views, query).collect()] == [1]
