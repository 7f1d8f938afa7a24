"""Hints for joins in SQL: what is read, what reaches Spark, and that the join runs as the hint says."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from dovetail.errors import PlanError
from dovetail.rewrite import sql
from dovetail.rewrite.text import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN = "r.id from r join s on interval_overlapping(r.a, r.b, s.a, s.b)"


@pytest.mark.parametrize(
    ("hints", "rest", "read"),
    [
        ("/*+ interval_join(memory='64MB', algorithm='dip') */", "", [{"memory": "64MB", "algorithm": "dip"}]),
        ("/*+INTERVAL_JOIN(Memory = 2000000)*/", "", [{"memory": 2000000}]),
        ("/*+ broadcast(s), interval_join(partitions=3) */", "/*+broadcast(s)*/", [{"partitions": 3}]),
        ("/*+ interval_join(partitions=3), merge(r), merge(s) */", "/*+merge(r) merge(s)*/", [{"partitions": 3}]),
        ("/*+ broadcast(s) interval_join(memory='1GB') merge(s) */", "/*+broadcast(s) merge(s)*/", [{"memory": "1GB"}]),
        ("/*+ asof_join() interval_join */", "", [{}, {}]),
        ("/*+ broadcast(s) */\n/*+ interval_join(route='native') */", "/*+broadcast(s)*/", [{"route": "native"}]),
        ("/*+broadcast(s)*/", "/*+broadcast(s)*/", []),
        ("/* interval_join(memory='64MB') */", "/* interval_join(memory='64MB') */", []),
    ],
)  # fmt: skip
def test_our_hints_are_read_and_leave_the_text(hints: str, rest: str, read: list[dict[str, object]]) -> None:
    before, after = f"with x as (select '/*+ no */' as t) select {hints}", f" {JOIN}"
    source = Source(before + after)
    assert [hint.options for hint in source.hints] == read
    assert {hint.select for hint in source.hints} <= {before.rindex("select ")}
    assert source.text.split() == f"with x as (select '/*+ no */' as t) select {rest}{after}".split()
    assert source.text.endswith(after)
    assert len(source.text) == len(before + after)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("(10, -2, 2.5)", [10, -2, Decimal("2.5")]),
        ("(DATE '2024-05-01', date'2024-06-01')", [dt.date(2024, 5, 1), dt.date(2024, 6, 1)]),
        ("(timestamp '2024-05-01 12:00:00')", [dt.datetime(2024, 5, 1, 12)]),
    ],
)
def test_split_points_are_a_list(text: str, points: list[object]) -> None:
    hints = f"/*+ broadcast(s), interval_join(split_points={text}, memory='1MB') */"
    source = Source(f"select {hints} {JOIN}")
    assert [hint.options for hint in source.hints] == [{"split_points": points, "memory": "1MB"}]
    assert source.text.split() == f"select /*+broadcast(s)*/ {JOIN}".split()


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("interval_join(algorithm='dipp')", "'dip'"),
        ("interval_join(memry='1MB')", "did you mean 'memory'"),
        ("interval_join(keep='first')", "It takes memory, algorithm, route, partitions, split_points"),
        ("interval_join('64MB')", r"as in interval_join\(memory='64MB'\)"),
        ("interval_join(memory=)", r"as in interval_join\(memory='64MB'\)"),
        ("interval_join(partitions=2.5)", "not a whole number"),
        ("interval_join(memory='a lot')", "memory"),
        ("asof_join(route='native')", "has no option 'route'"),
        ("interval_join(split_points=10)", r"as in split_points=\(10, 20\)"),
        ("interval_join(memory=(10, 20))", "memory takes one value"),
        ("interval_join(split_points=('10'))", "a split point is a number, DATE"),
        ("interval_join(split_points=(10, ))", "a split point is a number, DATE"),
        ("interval_join(split_points=(DATE 'May'))", "'May' is no date"),
        ("interval_join(split_points=(10, 20), partitions=2)", "does not fit 2 split points"),
        ("band_join(memory='1MB')", r"'interval_join'\? .*takes options in its call: band_join"),
        ("interval_jion(memory='1MB')", "did you mean 'interval_join'"),
        ("asofjoin(memory='1MB')", "did you mean 'asof_join'"),
    ],
)
def test_a_hint_that_is_wrong_is_an_error(hint: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Source(f"select /*+ {hint} */ {JOIN}")


@pytest.fixture
def tables(spark: SparkSession) -> None:
    spark.range(40).selectExpr("id", "id as a", "id + 3 as b").createOrReplaceTempView("r")
    spark.range(40).selectExpr("id", "id * 2 as a", "id * 2 + 1 as b").createOrReplaceTempView("s")


OVERLAP = "r.id from r join s on r.a < s.b and s.a < r.b"
ASOF = "r.id, s.id as other from r asof join s on r.a >= s.a"


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("hint", "query", "in_python"),
    [
        ("interval_join(algorithm='forward_scan', memory='2MB')", JOIN, True),
        ("interval_join(algorithm='native')", JOIN, False),
        ("interval_join(algorithm='dip', memory='2MB')", OVERLAP, True),
        ("interval_join(route='native')", OVERLAP, False),
        ("asof_join(algorithm='index', memory='2MB')", ASOF, True),
        ("asof_join(algorithm='window')", ASOF, False),
    ],
)
def test_a_join_runs_as_its_hint_says(spark: SparkSession, hint: str, query: str, in_python: bool) -> None:
    hinted, plain = f"select /*+ {hint}, broadcast(s) */ {query}", f"select {query}"
    assert f"   hint: {hint}" in sql(spark, hinted, explain=True).splitlines()
    frame = sql(spark, hinted)
    assert _runs_in_python(frame) == in_python
    assert sorted(frame.collect()) == sorted(sql(spark, plain).collect())


def _runs_in_python(frame: DataFrame) -> bool:
    return "MapInArrow" in frame._jdf.queryExecution().toString()


@pytest.mark.usefixtures("tables")
def test_split_points_of_a_hint_are_the_ranges_of_the_join(spark: SparkSession) -> None:
    hint = "interval_join(algorithm='forward_scan', split_points=(33, 11))"
    frame = sql(spark, f"select /*+ {hint} */ {JOIN}")
    plan = frame._jdf.queryExecution().toString()
    assert "cast(11 as bigint)" in plan
    assert "cast(33 as bigint)" in plan
    assert sorted(frame.collect()) == sorted(sql(spark, f"select {JOIN}").collect())


@pytest.mark.usefixtures("tables")
def test_a_hint_is_for_its_own_select(spark: SparkSession) -> None:
    inner = f"select /*+ interval_join(algorithm='forward_scan') */ {JOIN}"
    with pytest.warns(UserWarning, match="its SELECT has no interval_join"):
        frame = sql(spark, f"select /*+ interval_join(algorithm='native') */ id from ({inner})")
    assert _runs_in_python(frame)


@pytest.mark.usefixtures("tables")
def test_a_wrong_hint_names_the_query(spark: SparkSession) -> None:
    with pytest.raises(PlanError) as error:
        sql(spark, f"select /*+ interval_join(route='nowhere') */ {JOIN}")
    assert error.value.argument == "query"
