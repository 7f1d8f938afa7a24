"""Query shapes under the rule of `dovetail.install`: subqueries, caches, settings; its rows are always Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.sql.test_sql_rule import LEAST_PAIRS, SCHEMA, SWITCH, WIDTHS, bag, query, rows

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OVER = "r.start < s.end and s.start < r.end"
SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.adaptive.enabled", "spark.sql.autoBroadcastJoinThreshold")
VALUES = (("true", "true", "10MB"), ("false", "false", "-1"), ("true", "false", "10MB"))


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    for name, seed, n in (("r", 1, 120), ("s", 2, 90), ("t", 3, 40)):
        spark.createDataFrame(rows(seed, n), SCHEMA).coalesce(1).createOrReplaceTempView(name)
    dovetail.install(spark)
    spark.conf.set(LEAST_PAIRS, "0")
    spark.conf.set(WIDTHS, "9,100")
    yield
    dovetail.uninstall(spark)
    for key in (SWITCH, LEAST_PAIRS, WIDTHS):
        spark.conf.unset(key)
    for name in ("r", "s", "t"):
        spark.catalog.dropTempView(name)


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in SETTINGS}
    yield
    for key, value in before.items():
        spark.conf.set(key, value or "")


def both(spark: SparkSession, make: Any) -> tuple[Any, Any, str]:
    """The outcome without and with the rule, rows or the condition of an error, and what was planned by bins."""
    found, said = [], ""
    for on in ("false", "true"):
        spark.conf.set(SWITCH, on)
        try:
            frame: DataFrame = make()
            found.append((frame.schema, bag(frame)))
            said = dovetail.explain_joins(frame)
        except Exception as error:
            condition = getattr(error, "getCondition", None)
            found.append(condition() if condition else repr(error))
    return found[0], found[1], said


SHAPES = {
    "exists": f"select * from r where exists (select 1 from s where {OVER})",
    "not exists": f"select * from r where not exists (select 1 from s where {OVER})",
    "not exists, keyed": f"select * from r where not exists (select 1 from s where r.k = s.k and {OVER})",
    "exists or": f"select * from r where r.v = 1 or exists (select 1 from s where {OVER})",
    "in": f"select * from r where r.v in (select s.v from s where {OVER})",
    "not in": f"select * from r where r.v not in (select s.v from s where {OVER})",
    "not in nulls": f"select * from r where r.k not in (select s.k from s where {OVER})",
    "scalar subquery": f"select id, (select count(*) from s where {OVER}) from r",
    "scalar of a maximum": "select id from r where v < (select max(v) from s where s.start < 10)",
    "subquery in the condition": f"select * from r join s on {OVER} and r.v < (select avg(v) from t)",
    "lateral": f"select r.id, x.v from r, lateral (select v from s where {OVER}) x",
    "left lateral": f"select r.id, x.v from r left join lateral (select v from s where {OVER}) x on true",
    "full": f"select * from r full join s on {OVER}",
    "cross and where": f"select * from r cross join s where {OVER}",
    "comma and where": f"select r.id, s.id from r, s where {OVER} and r.v = 2",
    "three inputs": f"select r.id, t.id from r join s on {OVER} left join t on t.start < s.end and s.start < t.end",
    "self join": "select a.id, b.id from r a join r b on a.start < b.end and b.start < a.end and a.id < b.id",
    "outer of an outer": f"select count(*) from (select r.*, s.id i from r left join s on {OVER}) where i is null",
    "union of two": f"select r.id from r join s on {OVER} union all select r.id from r left semi join s on {OVER}",
    "with": f"with w as (select * from r where v > 0) select r.* from w r join s on {OVER} join w x on x.id = r.id",
    "aggregates": f"select r.k, count(*), sum(count(*)) over (order by r.k) from r join s on {OVER} group by r.k",
    "limit inside": f"select * from (select * from r order by id, start, end, v limit 20) r join s on {OVER}",
    "random in the condition": f"select count(*) >= 0 from r join s on {OVER} and rand(5) >= 0",
    "random input": f"select r.id from (select *, rand(5) x from r) r join s on {OVER} where x >= 0",
    "ids of rows": f"select r.id, n from (select *, monotonically_increasing_id() n from r) r join s on {OVER}",
    "names in other letters": f"SELECT R.ID FROM R JOIN S ON {OVER.upper()}",
    "a struct's fields": "select r.id from (select id, struct(start, end) p from r) r join s on r.p.start < s.end and "
                          "s.start < r.p.end",
    "a generator": f"select r.id, e from r join s on {OVER} lateral view explode(array(r.v, s.v)) as e",
    "nulls made by the condition": f"select r.id, s.id from r left join s on {OVER} and nullif(r.v, 2) = s.v",
    "case": f"select r.id from r join s on {OVER} and case when r.v = 0 then false else true end",
    "not of it": "select r.id from r left anti join s on not (r.start >= s.end or s.start >= r.end)",
    "int with bigint": "select r.id from r join (select bigint(start) start, bigint(end) end from s) s "
                        f"on {OVER}",
    "int with double": f"select r.id from r join (select double(start) start, double(end) end from s) s on {OVER}",
    "int with decimal": "select r.id from r join (select cast(start as decimal(12, 2)) start, "
                         f"cast(end as decimal(12, 2)) end from s) s on {OVER}",
    "int with text": f"select r.id from r join (select string(start) start, string(end) end from s) s on {OVER}",
    "tinyint with bigint": "select r.id from (select *, tinyint(start % 100) a, tinyint(end % 100) b from r) r join "
                            "(select bigint(start) start, bigint(end) end from s) s on r.a < s.end and s.start < r.b",
    "date with timestamp": "select r.id from (select id, date_add(date'2024-03-01', start) start, "
                            "date_add(date'2024-03-01', end) end from r) r join (select timestamp'2024-03-01' + "
                            "make_dt_interval(start) start, timestamp'2024-03-01' + make_dt_interval(end) end "
                            f"from s) s on {OVER}",
    "sums that overflow": "select r.id from (select id, start + 2147483000 a, end from r) r join s on r.a < s.end and "
                           "s.start < r.end",
    "division by zero": f"select r.id from r join s on {OVER} and 1 / (r.v - 1) > 0",
}  # fmt: skip
LEFT_TO_SPARK = {
    "exists or",
    "scalar of a maximum",
    "full",
    "random in the condition",
    "ids of rows",
    "int with text",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.usefixtures("settings")
def test_rows_and_errors_are_those_of_spark(spark: SparkSession, name: str) -> None:
    planned = []
    for values in VALUES:
        for key, value in zip(SETTINGS, values, strict=True):
            spark.conf.set(key, value)
        without, found, said = both(spark, query(spark, SHAPES[name]))
        assert found == without, (values, said)
        planned.append("by bins" in said)
    assert any(planned) == (name not in LEFT_TO_SPARK), said


def test_cached_and_written_inputs(spark: SparkSession, tmp_path: Any) -> None:
    """A cached join is the same rows; so are joins of cached inputs and of files."""
    cached = spark.table("r").cache()
    try:
        one = cached.alias("r").join(spark.table("s").alias("s"), F.expr(OVER))
        assert "by bins" in dovetail.explain_joins(one)
        without, found, _ = both(spark, lambda: cached.alias("r").join(spark.table("s").alias("s"), F.expr(OVER)))
        assert found == without
        kept = one.select("r.id", "s.v").cache()
        spark.conf.set(SWITCH, "false")
        assert bag(kept) == bag(one.select("r.id", "s.v"))
        spark.conf.set(SWITCH, "true")
        assert bag(kept) == bag(one.select("r.id", "s.v"))
        kept.unpersist()
    finally:
        cached.unpersist()
    cached.write.parquet(str(tmp_path / "r"))
    files = spark.read.parquet(str(tmp_path / "r"))
    without, found, said = both(spark, lambda: files.alias("r").join(spark.table("s").alias("s"), F.expr(OVER)))
    assert found == without
    assert "by bins" in said


def test_functions_of_the_user_stay_with_spark(spark: SparkSession) -> None:
    plus = F.udf(lambda x: x, "int")
    left, right = spark.table("r").alias("r"), spark.table("s").alias("s")
    for join in (
        lambda: left.join(right, F.expr(OVER) & (plus(F.col("r.v")) == F.col("s.v"))),
        lambda: left.withColumn("start", plus("start")).alias("r").join(right, F.expr(OVER)),
    ):
        without, found, said = both(spark, join)
        assert found == without
        assert "by bins" not in said


def test_names_that_differ_in_letters_alone(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.caseSensitive")
    try:
        spark.conf.set("spark.sql.caseSensitive", "true")
        text = """select r.ID, r.id from (select id, -id ID, start, end START from r) r
                  join s on r.start < s.end and s.start < r.START"""
        without, found, said = both(spark, query(spark, text))
        assert found == without
        assert "by bins" in said
    finally:
        spark.conf.set("spark.sql.caseSensitive", before or "false")
