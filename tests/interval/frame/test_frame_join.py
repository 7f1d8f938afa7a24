"""Interval joins on Spark against the oracle: every algorithm, relation and join type in a covering selection."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.interval.frame.answers import SCHEMA, answered, expected, random_rows

from dovetail.engine.rows.layout import HOWS
from dovetail.errors import UnsupportedError
from dovetail.joins.interval.api import interval_join, plan_interval_join
from dovetail.joins.interval.plan.bins import BinCells, OrderCells
from dovetail.joins.interval.plan.choose import choose_join
from dovetail.joins.interval.plan.statistics import Inputs
from dovetail.joins.interval.relation import RELATIONS, Relation, strategy
from dovetail.spark.frames import RESERVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALGORITHMS = ("native", "bins", "sort_merge", "time_sweep", "forward_scan", "oip", "dip", "nested_loop", "auto")
KEYS = (None, [("k", "k")], [("k", "k"), ("j", "j")])
CLOSED = ("left", "both", "right", "neither", ("both", "left"), ("left", "right"))


def frames(spark: SparkSession, seed: int, n: int = 40, kind: str = "long") -> tuple[Any, Any, DataFrame, DataFrame]:
    left, right = random_rows(seed, n), random_rows(seed + 1, n)
    schema = SCHEMA.format(kind)
    return left, right, spark.createDataFrame(left, schema), spark.createDataFrame(right, schema)


def covering() -> list[tuple[str, str, str]]:
    """Three join types of every relation that bins answer, one of every other; algorithms take turns.

    `python -m tests.interval.frame.product` works through all combinations.
    """
    turns = itertools.cycle(ALGORITHMS)
    cases = []
    for number, relation in enumerate(RELATIONS):
        bins = strategy(Relation.parse(relation)) == "bins"
        hows = HOWS[number % 2 :: 2] if bins else [HOWS[number % len(HOWS)]]
        cases += [(next(turns), relation, how) for how in hows]
    return cases


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("algorithm", "relation", "how"), covering())
def test_equals_the_oracle(spark: SparkSession, algorithm: str, relation: str, how: str) -> None:
    number = RELATIONS.index(relation) * len(HOWS) + HOWS.index(how)
    on, closed = KEYS[number % 3], CLOSED[number % len(CLOSED)]
    arguments: dict[str, Any] = {"relation": relation, "closed": closed, "strict": number % 4 == 0}
    left, right, l_frame, r_frame = frames(spark, 100 + number)
    answer = interval_join(
        l_frame, r_frame, how=how, on=on, algorithm=algorithm, partitions=1 + number % 5, **arguments
    )
    assert answered(answer) == expected(left, right, how, on=on or (), **arguments)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("algorithm", "partitions"), [("sort_merge", 9), ("forward_scan", 5), ("dip", 4)])
def test_partitions_neither_lose_nor_repeat(spark: SparkSession, algorithm: str, partitions: int) -> None:
    left, right, l_frame, r_frame = frames(spark, 7 * partitions)
    plan = plan_interval_join(l_frame, r_frame, how="full", algorithm=algorithm, partitions=partitions)
    assert plan.route.algorithm == algorithm
    assert answered(plan.frame()) == expected(left, right, "full")


def test_a_set_of_relations_gives_each_pair_once(spark: SparkSession) -> None:
    left, right, l_frame, r_frame = frames(spark, 11)
    for relations in ({"starts", "covered_by", "equals"}, {"meets", "met_by", "overlapping"}):
        answer = interval_join(l_frame, r_frame, relation=relations, how="left")
        assert answered(answer) == expected(left, right, "left", relation=relations)


def test_split_points_are_honoured(spark: SparkSession) -> None:
    left, right, l_frame, r_frame = frames(spark, 13)
    plan = plan_interval_join(l_frame, r_frame, split_points=[20, 5, 5, -3])
    assert plan.route.cells is not None
    assert plan.route.cells.points == (-3, 5, 20)  # type: ignore[union-attr]
    assert answered(plan.frame()) == expected(left, right, "inner")


@pytest.mark.parametrize("how", ["inner", "left_semi", "full"])
def test_a_condition_is_part_of_the_match(spark: SparkSession, how: str) -> None:
    left, right, l_frame, r_frame = frames(spark, 17)
    answer = interval_join(l_frame, r_frame, how=how, condition="id < id_right + 5", on=[("k", "k")])
    wanted = expected(left, right, how, on=[("k", "k")], condition=lambda a, b: a["id"] < b["id"] + 5)
    assert answered(answer) == wanted


def test_route_and_algorithm_are_what_explain_says(spark: SparkSession) -> None:
    _, _, left, right = frames(spark, 19)
    text = plan_interval_join(left, right, algorithm="time_sweep", partitions=4).explain()
    assert "route: in_memory, algorithm: time_sweep (named by the user)" in text
    assert "SPLIT x SPLIT" in text
    assert "predicted rows" in text
    meets = plan_interval_join(left, right, relation="meets", algorithm="time_sweep").explain()
    assert "route: native, algorithm: equality (a relation with an equality of bounds is an equality join" in meets
    covers = plan_interval_join(left, right, relation="covers", algorithm="forward_scan").explain()
    assert "SPLIT x PROJECT" in covers
    semi = plan_interval_join(left, right, how="left_semi").explain()
    assert "route: in_memory, algorithm: index" in semi


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("how", "keep"),
    [*((how, "all") for how in HOWS), *itertools.product(("inner", "left"), ("first", "last"))],
)
def test_few_rows_a_key_are_joined_by_the_keys(spark: SparkSession, how: str, keep: str) -> None:
    left, right, l_frame, r_frame = frames(spark, 37)
    arguments: dict[str, Any] = {"how": how, "keep": keep, "on": [("k", "k"), ("j", "j")]}
    plan = plan_interval_join(l_frame, r_frame, algorithm="native", **arguments)
    assert (plan.route.name, plan.route.algorithm, plan.route.cells) == ("native", "keys", None)
    steps = plan.frame()._jdf.queryExecution().executedPlan().toString()
    hashed = [line.partition("[")[2].partition("]")[0] for line in steps.splitlines() if "Join [" in line]
    assert {keys.count(",") for keys in hashed} == {1}, "Spark is to hash the two keys, nothing else"
    assert "Spark's own equality join on the keys" in plan.explain()
    bins = plan_interval_join(l_frame, r_frame, algorithm="bins", **arguments)
    assert isinstance(bins.route.cells, BinCells)
    joined = answered(plan.frame())
    if keep == "all":
        assert joined == expected(left, right, how, on=arguments["on"])
    assert joined == answered(bins.frame()) == answered(interval_join(l_frame, r_frame, **arguments))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("relation", ["before", "after"])
def test_few_rows_a_key_are_not_copied_to_later_ranges(spark: SparkSession, relation: str, how: str) -> None:
    left, right, l_frame, r_frame = frames(spark, 43)
    arguments: dict[str, Any] = {"relation": relation, "how": how, "on": [("k", "k"), ("j", "j")]}
    plan = plan_interval_join(l_frame, r_frame, algorithm="native", **arguments)
    way = "extremes" if how in ("left_semi", "left_anti") else "keys"
    assert (plan.route.name, plan.route.algorithm, plan.route.cells) == ("native", way, None)
    ranges = plan_interval_join(l_frame, r_frame, partitions=3, algorithm="native", **arguments)
    assert isinstance(ranges.route.cells, OrderCells), "ranges that were asked for are used"
    wanted = expected(left, right, how, relation=relation, on=arguments["on"])
    assert answered(plan.frame()) == answered(ranges.frame()) == wanted


def test_few_keys_are_cut_by_time_for_before(spark: SparkSession) -> None:
    keyed = spark.range(20_000).selectExpr("id % 3 as k", "id as start", "id + 2 as end")
    plan = plan_interval_join(keyed, keyed, on="k", relation="before", algorithm="native")
    assert isinstance(plan.route.cells, OrderCells)


def test_many_rows_a_key_are_not_joined_by_the_keys_alone(spark: SparkSession) -> None:
    keyed = spark.range(6_000).selectExpr("id % 3 as k", "id as start", "id + 2 as end")
    for how in ("inner", "left", "full"):
        assert isinstance(plan_interval_join(keyed, keyed, on="k", how=how, algorithm="native").route.cells, BinCells)


def test_a_match_kept_by_keys_needs_no_second_join(spark: SparkSession) -> None:
    _, _, l_frame, r_frame = frames(spark, 41)
    plan = plan_interval_join(l_frame, r_frame, on=[("k", "k")], how="left", keep="first", algorithm="native")
    tree = plan.frame()._jdf.queryExecution().optimizedPlan().toString()
    assert tree.count("Join ") == 1, tree


def test_metrics_count_what_the_tasks_did(spark: SparkSession) -> None:
    left, right, l_frame, r_frame = frames(spark, 23, n=60)
    plan = plan_interval_join(l_frame, r_frame, algorithm="forward_scan", partitions=3)
    rows = plan.frame().count()
    metrics = plan.metrics()
    assert metrics.value("pairs") == rows == sum(expected(left, right, "inner").values())
    assert 0 < metrics.value("memory") <= 64 * 2**20
    assert metrics.tasks == 3
    figures = metrics.as_dict()
    assert figures["replication.left"] == metrics.value("placed", "left") / metrics.value("rows", "left") >= 1
    assert figures["placed.right.skew"] >= 1


def test_spark_tells_what_the_native_route_did(spark: SparkSession) -> None:
    left, right, l_frame, r_frame = frames(spark, 29, n=60)
    plan = plan_interval_join(l_frame, r_frame, algorithm="native")
    assert plan.metrics().value("placed") == 0
    rows = plan.frame().count()
    plan_interval_join(l_frame, r_frame, algorithm="native").frame().limit(1).collect()  # someone else's query
    metrics = plan.metrics()
    assert metrics.value("pairs") == rows == sum(expected(left, right, "inner").values())
    assert metrics.as_dict()["replication.left"] >= 1
    assert metrics.skew("task_time") is not None


@pytest.mark.parametrize(("algorithm", "how"), [("native", "full"), ("forward_scan", "inner")])
def test_columns_that_are_not_asked_for_are_not_read(spark: SparkSession, algorithm: str, how: str) -> None:
    _, _, l_frame, r_frame = frames(spark, 31, n=40)
    wide = interval_join(l_frame, r_frame, algorithm=algorithm, how=how)
    names = [wide.columns[-1], wide.columns[0]]
    narrow = interval_join(l_frame, r_frame, algorithm=algorithm, how=how, columns=names)
    assert Counter(map(tuple, narrow.collect())) == Counter(map(tuple, wide.select(*names).collect()))


def test_a_stream_is_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value as start", "value + 1 as end")
    with pytest.raises(UnsupportedError, match="left input is a stream"):
        interval_join(stream, stream)


@pytest.mark.parametrize("algorithm", ["forward_scan", "oip"])
def test_columns_that_are_compared_with_several(spark: SparkSession, algorithm: str) -> None:
    """A key is compared with two columns, one of which is both bounds of its side."""
    left = spark.range(40).selectExpr("id % 5 as k", "id % 5 as start", "id % 5 + 3 as end", "id")
    right = spark.range(40).selectExpr("id % 5 as a", "id % 7 as b", "id")
    options: dict[str, Any] = {"on": [("k", "a"), ("k", "b")], "right_interval": ("a", "a"), "closed": "both"}
    for how in ("inner", "full"):
        answer = interval_join(left, right, how=how, algorithm=algorithm, partitions=3, **options)
        wanted = left.alias("l").join(right.alias("r"), F.expr("l.k = r.a and l.k = r.b"), how)
        assert Counter(map(tuple, answer.collect())) == Counter(map(tuple, wanted.collect()))


def grown(spark: SparkSession, how: str, keep: str, rows: tuple[int, int]) -> Inputs:
    """A join of events and intervals by 100,000 keys, as planning sees it: samples and numbers of rows."""
    events = spark.range(4096).selectExpr("pmod(xxhash64(id), 100000) as k", "id as start")
    spans = spark.range(4096).selectExpr("pmod(xxhash64(-id), 100000) as k", "id as start", "id + 100 as end")
    options: dict[str, Any] = {"left_interval": ("start", "start"), "closed": ("both", "left"), "on": "k"}
    inputs = plan_interval_join(events, spans, how=how, keep=keep, **options).inputs
    left, right = (
        replace(stats, rows=n, usable=n, sample=replace(stats.sample, rows=n))
        for stats, n in zip(inputs.statistics, rows, strict=True)
    )
    return replace(inputs, statistics=(left, right))


@pytest.mark.parametrize(
    ("how", "keep"), [("left_semi", "all"), ("left_anti", "all"), ("inner", "first"), ("left", "first")]
)
def test_an_index_is_priced_with_the_reading_of_its_rows(spark: SparkSession, how: str, keep: str) -> None:
    many = choose_join(grown(spark, how, keep, (2_000_000, 500_000))).route
    assert (many.name, many.algorithm) == ("native", "keys"), "all cores would wait for the driver to read right rows"
    few = choose_join(grown(spark, how, keep, (2_000, 500))).route
    assert few.name == "native", "reading a right side of any size takes a job"


def test_small_inputs_are_not_sent_to_operators(spark: SparkSession) -> None:
    rows = spark.range(10_000).selectExpr("id * 100 as start", "id * 100 + if(id % 10 = 0, 2000, 25) as end")
    for how in ("inner", "left"):
        assert plan_interval_join(rows, rows, how=how).route.name == "native"


def test_rows_without_keys_are_exchanged_in_packets(spark: SparkSession) -> None:
    """Spark moves a row for many rows, and tasks sort: fewer and cheaper rows in the exchange."""
    rows = spark.range(2_000).selectExpr("id", "id * 7 % 1000 as start", "id * 7 % 1000 + 5 as end")
    plan = plan_interval_join(rows, rows, route="in_memory", partitions=2)
    placed, _ = plan.route.inner_tasks(*plan.inputs.checked())  # type: ignore[attr-defined]  # a ranges route
    sizes = [row[0] for row in placed.selectExpr(f"octet_length({RESERVED}rows)").collect()]
    assert sum(sizes) >= 4_000 * 3 * 8
    assert len(sizes) < 4_000 / 8
    wanted = rows.alias("l").join(rows.alias("r"), F.expr("l.start < r.end and r.start < l.end"))
    assert plan.frame().count() == wanted.count()
