"""Interval joins of rows at the edge: numbers beyond doubles, wide rows, keys of rare types, zones, NaN beside null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.api import count_overlaps, interval_count, interval_join, interval_topk, plan_interval_join
from dovetail.joins.interval.index.answers import Question, RightIndex, answer
from dovetail.joins.interval.relation import Relation, SideColumns

FAR = 10**18  # doubles are 128 apart here


@pytest.mark.parametrize("condition", [None, "id >= 0"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (f"{FAR} + id * 1000", f"{FAR} + id * 1000 + 60 + id"),
        (f"cast({FAR} + id * 1000 as decimal(30, 2))", f"cast({FAR} + id * 1000 + 60 + id as decimal(30, 2))"),
        (f"timestamp_micros({FAR // 4} + id * 1000)", f"timestamp_micros({FAR // 4} + id * 1000 + 60 + id)"),
        ("float(id * 1000)", "float(id * 1000 + 60 + id)"),
        ("double(id * 1000)", "if(id > 16, double('Infinity'), double(id * 1000 + 60 + id))"),
    ],
)
def test_longest_overlaps_are_measured_exactly(
    spark: SparkSession, start: str, end: str, condition: str | None
) -> None:
    rows = spark.range(20).selectExpr("id", f"{start} as start", f"{end} as end")
    longest = {row.id for row in interval_topk(rows, rows, k=3, on=[("id", "id")], condition=condition).collect()}
    assert longest == {17, 18, 19}


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.usefixtures("elsewhere")
def test_timestamp_keys_mean_the_same_in_every_zone(spark: SparkSession) -> None:
    rows = spark.sql("select id, timestamp_seconds(id % 2) as k, 0 as start, 10 as end from range(4)")
    others = spark.sql("select id, timestamp_seconds(id) as k, 5 as start, 6 as end from range(1)")
    _check_keyed(rows, others, {0, 2})


@pytest.mark.parametrize("key", ["named_struct('x', id % 2)", "array(id % 2)", "make_ym_interval(0, id % 2)"])
def test_keys_that_only_spark_compares(spark: SparkSession, key: str) -> None:
    rows = spark.range(4).selectExpr("id", f"{key.replace('id', 'int(id)')} as k", "0 as start", "10 as end")
    others = spark.range(1).selectExpr("id", f"{key.replace('id', 'int(id)')} as k", "5 as start", "6 as end")
    _check_keyed(rows, others, {0, 2})
    plan = plan_interval_join(rows, others, on="k", algorithm="dip")
    assert "have no codes" in plan.explain() or "do not reach tasks in Python" in plan.explain()
    assert plan.frame().count() == 2


def _check_keyed(rows: DataFrame, others: DataFrame, matching: set[int]) -> None:
    def ids(**arguments: Any) -> set[int]:
        return {row.id for row in interval_join(rows, others, on="k", **arguments).select("id").collect()}

    assert ids(how="left_semi") == ids() == ids(keep="first") == matching
    assert ids(how="left_anti") == {0, 1, 2, 3} - matching
    assert interval_count(rows, others, on="k") == len(matching)
    counts = {row.id: row.n_overlaps for row in count_overlaps(rows, others, on="k").drop("k").collect()}
    assert counts == {n: int(n in matching) for n in range(4)}
    assert interval_topk(rows, others, k=9, on="k").count() == len(matching)


def test_columns_that_only_spark_knows_do_not_hinder(spark: SparkSession) -> None:
    rows = spark.sql("select id, 0 as start, 10 as end, make_ym_interval(1, 0) as age from range(2)")
    others = spark.sql("select id as other, 5 as start, 6 as end from range(2)")
    assert interval_join(rows, others, how="left_semi").count() == 2
    kept = interval_join(others, rows, keep="first", how="left").selectExpr("other", "cast(age as string) as age")
    assert [row.age for row in kept.collect()] == ["INTERVAL '1-0' YEAR TO MONTH"] * 2
    assert count_overlaps(rows, others).count() == 2


def test_keys_that_nothing_compares_are_refused(spark: SparkSession) -> None:
    rows = spark.sql("select array(map(1, 2)) as k, 0 as start, 10 as end")
    with pytest.raises(PlanError, match=r"left key 'k' holds a map<int,int>, and Spark compares none of these"):
        interval_join(rows, rows, on="k")


@pytest.mark.parametrize("memory", ["1MB", "4MB"])
def test_wide_rows_are_kept(spark: SparkSession, memory: str) -> None:
    rows = spark.range(40).selectExpr("id", "id as start", "id + 1 as end")
    wide = spark.range(400).selectExpr(
        "id as other", "id div 2 as start", "id div 2 + 1 as end", "repeat('x', 20000) t"
    )
    plan = plan_interval_join(rows, wide, keep="last", how="left", memory=memory)
    found = plan.frame().selectExpr("id", "other", "length(t) as n").collect()
    assert {(row.id, row.other, row.n) for row in found} == {(n, 2 * n + 1, 20_000) for n in range(40)}
    assert len(found) == 40


def test_wide_text_keys_fit_the_smallest_budget(spark: SparkSession) -> None:
    rows = spark.range(400).selectExpr("id", "repeat(string(id % 200), 5000) as k", "0 as start", "9 as end")
    others = spark.range(190).selectExpr("id", "repeat(string(id), 5000) as k", "0 as start", "9 as end")
    assert interval_join(rows, others, on="k", how="left_semi", memory="1MB").count() == 380
    assert sum(row.n_overlaps for row in count_overlaps(rows, others, on="k", memory="1MB").collect()) == 380


@pytest.mark.parametrize("outer", [True, False])
def test_kept_rows_leave_in_batches_that_the_budget_takes(outer: bool) -> None:
    memory, size, rows = 1 << 20, 30_000, 500
    right = pa.RecordBatch.from_pydict({"rs": [0] * 10, "re": [50] * 10, "text": ["x" * size] * 10})
    left = pa.RecordBatch.from_pydict({"ls": np.arange(rows) % 100, "le": np.arange(rows) % 100 + 1})
    columns = (SideColumns({f"{p}s": f"{p}s", f"{p}e": f"{p}e"}, f"{p}s", f"{p}e", (), "left") for p in "lr")
    question = Question("first", Relation.parse("overlapping"), *columns, memory, outer)
    budget = MemoryBudget(memory, "answers")
    found = 0
    for batch in answer(question, RightIndex(question, right, budget), left):
        assert batch.nbytes <= memory
        found += batch.num_rows
    assert found == (rows if outer else rows // 2)
    assert budget.peak <= memory


@pytest.mark.parametrize(
    "bounds", ["double('NaN') as start, double(null) as end", "double(null) as start, double('NaN') as end"]
)
def test_a_nan_beside_a_null_is_a_null_interval(spark: SparkSession, bounds: str) -> None:
    rows = spark.sql(f"select 1 as id, {bounds}")
    others = spark.sql("select 2 as id, 1D as start, 2D as end")
    for arguments in ({}, {"invalid": "drop"}, {"algorithm": "sort_merge"}):
        assert interval_join(rows, others, how="left", **arguments).count() == 1
    assert interval_count(rows, others) == 0
