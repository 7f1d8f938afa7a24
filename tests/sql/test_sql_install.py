"""`dovetail.install`: what `spark.sql` plans then, and that everything else is Spark's as before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests import oracle

import dovetail
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

RANGE = "select a.id, b.id as other from spans a join spans b on a.start < b.end and b.start < a.end"


@pytest.fixture(autouse=True)
def installed(spark: SparkSession) -> Iterator[None]:
    data = [(n, n % 3, n, n + n % 5 - 1, "x" * (n % 2)) for n in range(40)]
    spark.createDataFrame(data, "id int, k int, start int, end int, t string").createOrReplaceTempView("spans")
    dovetail.install(spark)
    yield
    dovetail.uninstall(spark)


def sparks_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().optimizedPlan().toString())


def test_spark_sql_plans_range_joins(spark: SparkSession) -> None:
    assert sparks_plan(spark.sql(RANGE)) != sparks_plan(type(spark).sql(spark, RANGE))
    dovetail.uninstall(spark)
    assert sparks_plan(spark.sql(RANGE)).count("Join") == 1
    dovetail.uninstall(spark)  # twice does no harm


@pytest.mark.parametrize(
    "query",
    [
        RANGE,
        RANGE.replace("join", "left join") + " and a.k = b.k where a.t <> ''",
        "select k, count(*) n from spans group by k having n > 1 order by k limit 2",
        "select * from spans a where exists (select 1 from spans b where b.start < a.end and a.start < b.end)",
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select * from n",
        "from spans |> where k = 1 |> select id",
        "values (1, 2), (3, 4)",
        "show functions like 'abs'",
        "select '{braces}' as t, `id` from spans tablesample (100 percent)",
        "select * from spans a, lateral (select a.start + 1 as more)",
        "select a.* from spans a cross join spans b where a.start between b.start and b.end",
    ],
)
def test_answers_are_those_of_spark(spark: SparkSession, query: str) -> None:
    ours, theirs = spark.sql(query), type(spark).sql(spark, query)
    assert ours.schema == theirs.schema
    assert oracle.bag(map(tuple, ours.collect())) == oracle.bag(map(tuple, theirs.collect()))


def test_parameters_and_statements_go_to_spark(spark: SparkSession) -> None:
    assert spark.sql("select :x as x", {"x": 5}).collect() == [(5,)]
    assert spark.sql("select id from {query}", query=spark.range(1)).collect() == [(0,)]
    assert spark.sql(sqlQuery="select 1 as one").collect() == [(1,)]
    spark.sql("create or replace temp view made as select 1 as one")
    assert spark.sql("select * from made").collect() == [(1,)]
    spark.sql("drop view made")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("select * from made")
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        spark.sql("selec 1")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from count_overlaps(spans, spans, onn => 'k')", "did you mean 'on'"),
        ("select * from spans a join spans b on interval_befor(a.start, a.end, b.start, b.end)", "interval_before"),
        ("select /*+ band_join(memory='1MB') */ a.id from spans a join spans b on a.start < b.end", "interval_join"),
        ("select * from spans a asof join spans b on a.k = b.k", "0 inequalities"),
    ],
)
def test_our_functions_keep_our_errors(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], query: str, message: str
) -> None:
    capfd.readouterr()
    with pytest.raises(DovetailError, match=message):
        spark.sql(query)
    assert "ERROR" not in capfd.readouterr().err, "Spark was not asked"


def test_parameters_of_our_joins(spark: SparkSession) -> None:
    query = RANGE + " where a.t = :text and b.id in (:one, :two)"
    args: dict[str, Any] = {"text": "x", "one": 7, "two": 9}
    for asked in (query, query.replace("join", "left join")):
        ours, theirs = spark.sql(asked, args), type(spark).sql(spark, asked, args)
        assert ours.schema == theirs.schema
        assert oracle.bag(map(tuple, ours.collect())) == oracle.bag(map(tuple, theirs.collect()))
    assert sparks_plan(spark.sql(query, args)) != sparks_plan(type(spark).sql(spark, query, args))
    asof = "select a.id, b.id as other from spans a asof join spans b on a.start > b.start and b.id < ? where a.id = ?"
    assert spark.sql(asof, [5, 30]).collect() == [(30, 4)]
    assert spark.sql("select :x as x, :y as y", {"x": 1, "y": F.array(F.lit(1))}).collect() == [(1, [1])]
    with pytest.raises(Exception, match="UNBOUND_SQL_PARAMETER"):
        spark.sql(query, {"one": 1})


def test_statements_run_once(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"create table made (id int, other int) using parquet location '{tmp_path}/made'")
    asof = "select a.id, b.id from spans a asof join spans b on a.start > b.start where a.id < :n"
    try:
        spark.sql("insert into made select 1, :n", {"n": 2})
        spark.sql(f"insert into made {asof}", {"n": 2})
        assert sorted(spark.table("made").collect()) == [(1, 0), (1, 2)]
    finally:
        spark.sql("drop table made")


def test_explain_shows_our_plan(spark: SparkSession) -> None:
    asof = "select a.id, b.id as other from spans a asof join spans b on a.start > b.start"
    for query in (asof, "select * from count_overlaps(spans, spans, invalid => 'null')", RANGE):
        for kind in ("", "extended", "formatted"):
            frame = spark.sql(f"explain {kind} {query}")
            assert frame.columns == ["plan"]
            assert "== Physical Plan ==" in frame.collect()[0][0]
    assert "MapInArrow" in spark.sql(f"explain {asof}").collect()[0][0]
    assert spark.sql("explain select 1 as one").schema == type(spark).sql(spark, "explain select 1 as one").schema
