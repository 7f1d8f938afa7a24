"""Counts, semi and anti joins, kept matches and the longest overlaps: answers without pairs, against the oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interval.frame.answers import LEFT_COLUMNS, RIGHT_COLUMNS, SCHEMA, answered, expected, random_rows

import oracle
from dovetail.errors import BudgetExceeded, DataError, PlanError
from dovetail.joins.interval.api import (
    count_overlaps,
    count_rows,
    interval_count,
    interval_join,
    interval_topk,
    plan_interval_join,
)
from dovetail.joins.interval.plan import choose, index
from dovetail.joins.interval.plan import statistics as frame_statistics
from dovetail.joins.interval.plan.index import IndexRoute
from dovetail.joins.interval.plan.ranges import range_cells
from dovetail.joins.interval.relation import RELATIONS
from dovetail.joins.interval.request import CountOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dovetail.joins.interval.plan.statistics import SideStatistics

KEYS = (None, [("k", "k")], [("k", "k"), ("j", "j")])


def frames(spark: SparkSession, seed: int, n: int = 50) -> tuple[Any, Any, DataFrame, DataFrame]:
    left, right = random_rows(seed, n), random_rows(seed + 1, n)
    schema = SCHEMA.format("long")
    return left, right, spark.createDataFrame(left, schema), spark.createDataFrame(right, schema)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(0, len(RELATIONS), 2))
def test_counts_equal_the_oracle(spark: SparkSession, number: int) -> None:
    on, closed = KEYS[number % 3], ("left", "both", "right", "neither", ("both", "right"))[number % 5]
    left, right, l_frame, r_frame = frames(spark, 31 + number)
    arguments: dict[str, Any] = {"relation": RELATIONS[number], "closed": closed, "strict": number % 4 == 2}
    assert interval_count(l_frame, r_frame, on=on, **arguments) == oracle.interval_count(
        left, right, on=on or (), **arguments
    )
    rows = oracle.bag(
        (*row[:-1], row[-1]) for row in map(tuple, count_overlaps(l_frame, r_frame, on=on, **arguments).collect())
    )
    wanted = oracle.count_overlaps(left, right, on=on or (), **arguments)
    assert rows == oracle.bag((*(row[c] for c in LEFT_COLUMNS), n) for row, n in wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", ["overlapping", "covers"])
def test_counts_in_ranges_add_up(spark: SparkSession, relation: str) -> None:
    left, right, l_frame, r_frame = frames(spark, 47)
    plan = plan_interval_join(l_frame, r_frame, relation=relation, how="left_anti", partitions=6, on=[("k", "k")])
    cells = range_cells(plan.inputs, 6)
    assert cells.ranges > 3
    route = IndexRoute(plan.inputs, "ranges are tested", cells)
    counted = route.counts(*plan.inputs.checked()).select(*LEFT_COLUMNS, "n_overlaps")
    wanted = oracle.count_overlaps(left, right, relation=relation, on=[("k", "k")])
    assert answered(counted) == oracle.bag((*(row[c] for c in LEFT_COLUMNS), n) for row, n in wanted)


@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_semi_and_anti_by_ranges_that_do_not_fit_an_index(spark: SparkSession, how: str) -> None:
    left, right = random_rows(3, 60, span=20_000, longest=400), random_rows(4, 60, span=20_000, longest=400)
    many = spark.range(12_000).selectExpr("30000 + id as start", "30001 + id as end", "id", "id as k", "'a' as j")
    schema = SCHEMA.format("long")
    r_frame = spark.createDataFrame(right, schema).unionByName(many)
    plan = plan_interval_join(spark.createDataFrame(left, schema), r_frame, how=how, memory="1MB")
    assert "each range has an index" in plan.explain()
    assert answered(plan.frame()) == expected(left, right, how)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("keep", "how", "algorithm"), [
    ("first", "inner", "auto"), ("last", "left", "auto"), ("any", "left", "auto"),
    ("first", "left", "native"), ("last", "inner", "forward_scan"), ("any", "inner", "native"),
])  # fmt: skip
def test_one_match_is_kept(spark: SparkSession, keep: str, how: str, algorithm: str) -> None:
    left, right, l_frame, r_frame = frames(spark, 53)
    answer = interval_join(l_frame, r_frame, keep=keep, how=how, on=[("k", "k")], algorithm=algorithm)
    pairs = []
    for row in answer.collect():
        values = tuple(row)
        a, b = dict(zip(LEFT_COLUMNS, values[:5], strict=True)), dict(zip(RIGHT_COLUMNS, values[5:], strict=True))
        pairs.append((a, None if b["start"] is None else b))
    assert oracle.agrees_with_kept(pairs, oracle.kept(left, right, keep, how, on=[("k", "k")]))


@pytest.mark.parametrize(("keep", "algorithm", "relation"), [
    ("first", "auto", "overlapping"), ("last", "native", "before"), ("any", "forward_scan", "overlapping"),
])  # fmt: skip
def test_one_match_is_kept_by_right_rows(spark: SparkSession, keep: str, algorithm: str, relation: str) -> None:
    """What the left join with exchanged sides keeps, in columns of this one."""
    left, right, l_frame, r_frame = frames(spark, 53)
    answer = interval_join(
        l_frame, r_frame, relation=relation, keep=keep, how="right", on=[("k", "k")], algorithm=algorithm
    )
    assert answer.columns == interval_join(l_frame, r_frame, how="right", on=[("k", "k")]).columns
    pairs = []
    for row in answer.collect():
        values = tuple(row)
        a, b = dict(zip(LEFT_COLUMNS, values[:5], strict=True)), dict(zip(RIGHT_COLUMNS, values[5:], strict=True))
        pairs.append((b, None if a["start"] is None else a))
    inverse = {"before": "after"}.get(relation, relation)
    wanted = oracle.kept(right, left, keep, "left", relation=inverse, on=[("k", "k")])
    assert oracle.agrees_with_kept(pairs, wanted)
    shared = interval_join(l_frame, r_frame, keep=keep, how="right", on="k", columns=["id_right", "k", "id"])
    assert shared.columns == ["id_right", "k", "id"]
    keys = {row["id"]: row["k"] for row in right}
    assert {row.id_right: row.k for row in shared.collect()} == keys


@pytest.mark.parametrize("small_rows", [1 << 18, 20])
def test_few_rows_are_counted_by_one_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small_rows: int) -> None:
    """Unless a partition has more rows than its size tells: then tasks count."""
    monkeypatch.setattr(choose, "SMALL_ROWS", small_rows)
    bounds = "id % 3 as k", "if(id % 7 = 0, null, id) as start", "id + id % 5 - 1 as end"
    frames = [spark.range(0, rows, 1, 1).selectExpr(*bounds) for rows in (60, 70)]
    context = spark.sparkContext
    context.setJobGroup(f"counting {small_rows}", "counting")
    try:
        found = interval_count(*frames, on="k", invalid="drop")
        jobs = len(context.statusTracker().getJobIdsForGroup(f"counting {small_rows}"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # how Spark is told: no group
    assert found == interval_join(*frames, on="k", invalid="drop").count()
    assert (jobs == 1) == (small_rows > 100)


@pytest.mark.parametrize("kind", ["cached", "files", "filtered", "union"])
def test_rows_that_the_cache_or_footers_count_need_no_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setattr(choose, "SMALL_BYTES", 0)
    rows = spark.range(0, 90, 1, 2).selectExpr("id as start", "id + id % 5 + 1 as end")
    if kind == "cached":
        rows = rows.cache()
        rows.count()
    else:
        rows.write.parquet(str(tmp_path / "rows"))
        rows = spark.read.parquet(str(tmp_path / "rows"))
    rows = {"filtered": rows.where("start % 2 = 0"), "union": rows.union(rows)}.get(kind, rows)
    context = spark.sparkContext
    context.setJobGroup(f"told {kind}", "counting")
    try:
        found = interval_count(rows, rows)
        jobs = len(context.statusTracker().getJobIdsForGroup(f"told {kind}"))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # how Spark is told: no group
        rows.unpersist()
    assert found == interval_join(rows, rows).count()
    assert (jobs == 1) == (kind != "union")


def test_keep_for_right_rows_is_explained_as_asked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    collected = frame_statistics._collected

    def counted(sides: list[Any]) -> list[SideStatistics]:
        asked.extend(one.side.shown for one in sides)
        return collected(sides)

    monkeypatch.setattr(frame_statistics, "_collected", counted)
    monkeypatch.setattr(frame_statistics, "_BY_PLAN", {})
    left, right = (spark.range(n).selectExpr("id", "id as start", "id + 1 as end") for n in (3, 5))
    plan = plan_interval_join(left, right, relation="covers", closed=("left", "right"), keep="first", how="right")
    assert sorted(asked) == ["left", "right"]
    lines = plan.explain().splitlines()
    assert lines[0].startswith("IntervalJoin: covers, how=right, keys=none, keep=first")
    assert "the left side fits the budget: right rows stream past an index of it" in lines[1]
    assert lines[2].startswith("left: 3 rows, 3 usable, bigint bounds closed left")
    assert lines[3].startswith("right: 5 rows, 5 usable, bigint bounds closed right")
    plan.frame().collect()
    measured = plan.metrics()
    assert measured.value("rows", "left") == 3
    assert (measured.value("rows", "right"), measured.value("placed", "right")) == (5, 5)
    inverted = spark.sql("select 1 as id, 5 as start, 2 as end")
    with pytest.raises(DataError, match=r"^right input has 1 interval"):
        interval_join(left, inverted, keep="any", how="right")


@pytest.mark.parametrize(("k", "kind"), [(1, "long"), (7, "double"), (10_000, "int")])
def test_longest_overlaps(spark: SparkSession, k: int, kind: str) -> None:
    left, right = random_rows(61, 50), random_rows(62, 50)
    if kind == "double":
        for row in (*left, *right):
            row["start"], row["end"] = (None if v is None else float(v) / 4 for v in (row["start"], row["end"]))
    schema = SCHEMA.format(kind)
    answer = interval_topk(spark.createDataFrame(left, schema), spark.createDataFrame(right, schema), k=k)
    lengths = [min(r["end"], r["end_right"]) - max(r["start"], r["start_right"]) for r in answer.collect()]
    assert lengths == oracle.longest_overlaps(left, right, k)
    assert not set(map(tuple, answer.collect())) - set(expected(left, right, "inner"))


def test_longest_overlaps_with_keys_and_a_condition(spark: SparkSession) -> None:
    left, right, l_frame, r_frame = frames(spark, 67)
    arguments: dict[str, Any] = {"on": [("k", "k")]}
    rows = interval_topk(l_frame, r_frame, k=5, condition="id <> id_right", **arguments).collect()
    lengths = [min(r["end"], r["end_right"]) - max(r["start"], r["start_right"]) for r in rows]
    assert lengths == oracle.longest_overlaps(left, right, 5, condition=lambda a, b: a["id"] != b["id"], **arguments)


@pytest.mark.parametrize("algorithm", ["native", "forward_scan"])
def test_a_route_that_forms_pairs_counts_and_ranks_them(spark: SparkSession, algorithm: Any) -> None:
    left, right, l_frame, r_frame = frames(spark, 83)
    options: dict[str, Any] = {"on": [("k", "k")], "algorithm": algorithm}
    route = plan_interval_join(l_frame, r_frame, **options).route
    assert route.total() == oracle.interval_count(left, right, on=[("k", "k")])
    lengths = [min(r["end"], r["end_right"]) - max(r["start"], r["start_right"]) for r in route.top(9).collect()]
    assert lengths == oracle.longest_overlaps(left, right, 9, on=[("k", "k")])
    plan = plan_interval_join(l_frame, r_frame, how="left_anti", **options)
    assert plan.route.name == route.name
    counted = plan.route.counts(*plan.inputs.checked()).select(*LEFT_COLUMNS, "n_overlaps")
    wanted = oracle.count_overlaps(left, right, on=[("k", "k")])
    assert answered(counted) == oracle.bag((*(row[c] for c in LEFT_COLUMNS), n) for row, n in wanted)


def test_totals_in_tasks(spark: SparkSession) -> None:
    """Of an index of all right rows, and of one a range; a column named as the count is not in the way."""
    left, right, l_frame, r_frame = frames(spark, 89)
    inputs = plan_interval_join(l_frame.withColumnRenamed("id", "n_overlaps"), r_frame, on=[("k", "k")]).inputs
    wanted = oracle.interval_count(left, right, on=[("k", "k")])
    assert choose.choose_total(inputs).total() == wanted
    assert IndexRoute(inputs, "ranges are tested", range_cells(inputs, 5)).total() == wanted


def test_more_rows_than_the_driver_reads_are_ranked_by_a_join(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right, l_frame, r_frame = frames(spark, 97)
    monkeypatch.setattr(index, "row_counts", lambda _: [1 << 40, 0])
    rows = interval_topk(l_frame, r_frame, k=5).collect()
    lengths = [min(r["end"], r["end_right"]) - max(r["start"], r["start_right"]) for r in rows]
    assert lengths == oracle.longest_overlaps(left, right, 5)


def test_counting_with_a_condition_counts_joined_pairs(spark: SparkSession) -> None:
    left, right, l_frame, r_frame = frames(spark, 71)
    wanted = Counter[Any]()
    for row, n in oracle.count_overlaps(left, right, condition=lambda a, b: a["id"] < b["id"]):
        wanted[(*(row[c] for c in LEFT_COLUMNS), n)] += 1
    counted = count_rows(l_frame, r_frame, CountOptions(condition="id < id_right").request())
    assert answered(counted) == wanted
    assert interval_count(l_frame, r_frame, condition="id < id_right") == oracle.interval_count(
        left, right, condition=lambda a, b: a["id"] < b["id"]
    )


def test_arguments_that_do_not_apply_are_refused(spark: SparkSession) -> None:
    _, _, left, right = frames(spark, 73)
    with pytest.raises(TypeError, match="has no option 'how'"):
        interval_count(left, right, how="left")
    with pytest.raises(TypeError, match="has no option 'keep'"):
        count_overlaps(left, right, keep="first")
    with pytest.raises(PlanError, match="by='start' is not known"):
        interval_topk(left, right, by="start")
    with pytest.raises(PlanError, match="k=0"):
        interval_topk(left, right, k=0)
    with pytest.raises(TypeError, match="has no option 'relatoin'; did you mean 'relation'"):
        interval_count(left, right, relatoin="covers")


def test_rows_that_came_since_they_were_counted_are_counted_by_tasks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DataFrame is counted once; that it reads more rows later costs the shortcut, not the answer."""
    *_, rows, others = frames(spark, seed=3)
    wanted = interval_count(rows, others, memory="1MB", invalid="drop")

    def too_many(*_: object) -> None:
        raise BudgetExceeded("rows of left: 9 GB are asked for, 2 MB are there")

    monkeypatch.setattr(IndexRoute, "_read_bounds", too_many)
    assert interval_count(rows, others, memory="1MB", invalid="drop") == wanted > 0
