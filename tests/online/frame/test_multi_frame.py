"""`online_multijoin` of batch DataFrames against Spark's own joins, and what is refused before a job starts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.multi_cases import SHAPES, MultiFeed, bag_of, spark_join, tables_of

import dovetail
from dovetail.errors import PlanError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frames_of(spark: SparkSession, shape: str, rows: int = 80, seed: int = 1) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(table) for name, table in tables_of(shape, rows, 14, seed).items()}


@pytest.mark.parametrize(
    ("shape", "algorithm", "buckets"),
    [("chain3", "miner", 6), ("chain3", "mjoin", 1), ("star3", "mjoin", 3), ("snowflake4", "miner", 5)],
)
def test_it_gives_what_sparks_own_joins_give(spark: SparkSession, shape: str, algorithm: str, buckets: int) -> None:
    tables = tables_of(shape, 80, 14, seed=2)
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    plan = dovetail.plan_online_multijoin(
        frames, on=SHAPES[shape], algorithm=algorithm, memory="160KB", partitions=buckets, with_phase=True
    )
    found = plan.frame().toArrow()
    wanted = spark_join(spark, tables, shape)
    assert wanted
    assert bag_of(found.to_pylist(), tables) == wanted
    phases, measured = Counter(found["_phase"].to_pylist()), plan.metrics()
    assert {phase: measured.value(f"results_{phase}") for phase in phases} == dict(phases)
    assert 0 < measured.value("memory_peak") <= 160 * 1024
    assert f"{plan.buckets} partitions of" in plan.explain()
    assert ("no row is copied" in plan.explain()) == (shape == "star3" or buckets == 1)


def test_names_that_several_inputs_have_get_the_input_before_them(spark: SparkSession) -> None:
    frames = frames_of(spark, "chain3")
    out = dovetail.online_multijoin(frames, on=SHAPES["chain3"], memory="1MB")
    assert out.columns == [
        "orders_id", "customer", "orders_n", "order_id", "part", "kind", "items_n", "parts_id", "price", "parts_n",
    ]  # fmt: skip
    some = dovetail.plan_online_multijoin(frames, on=SHAPES["chain3"], memory="1MB", columns=["price", "orders_id"])
    assert some.frame().columns == ["price", "orders_id"]
    assert [field.names for field in some.task.join.schemas.values()] == [["id"], ["order_id", "part"], ["id", "price"]]
    wanted = Counter((row["price"], row["orders_id"]) for row in out.collect())
    assert Counter(map(tuple, some.frame().collect())) == wanted


def test_suffixes_by_input(spark: SparkSession) -> None:
    frames = frames_of(spark, "chain3", 20)
    plain = dovetail.online_multijoin(frames, on=SHAPES["chain3"], memory="1MB")
    suffixes = {"parts": "_of_part", "items": "_of_item"}
    out = dovetail.online_multijoin(frames, on=SHAPES["chain3"], memory="1MB", suffixes=suffixes)
    assert out.columns == [
        "id", "customer", "orders_n", "order_id", "part", "kind", "items_n", "id_of_part", "price", "parts_n",
    ]  # fmt: skip
    assert Counter(map(tuple, out.collect())) == Counter(map(tuple, plain.collect()))
    named = {"on": SHAPES["chain3"], "suffixes": suffixes, "columns": ["id_of_part", "id"]}
    some = dovetail.online_multijoin(frames, memory="1MB", with_phase=True, **named)
    assert some.columns == ["id_of_part", "id", "_phase"]
    assert Counter((row[0], row[1]) for row in some.collect()) == Counter(
        (row["parts_id"], row["orders_id"]) for row in plain.collect()
    )


def test_an_empty_input_and_types_of_keys(spark: SparkSession) -> None:
    frames = frames_of(spark, "chain3")
    assert dovetail.online_multijoin(frames | {"parts": frames["parts"].limit(0)}, on=SHAPES["chain3"]).count() == 0
    words = [("x", 1.5), ("y", 2.5), (None, 3.5), ("x", float("nan"))]
    a = spark.createDataFrame(words, "w string, f double")
    b = spark.createDataFrame([("x", 10), ("z", 20)], "w string, n int")
    c = spark.createDataFrame([(10, 1.25), (10, 9.0)], "n int, g double")
    on = [("a.w", "b.w"), ("b.n", "c.n")]
    assert dovetail.online_multijoin({"a": a, "b": b, "c": c}, on=on, memory="1MB").count() == 4
    near = [("a.w", "b.w"), ("a.f", "c.g", -0.5, 0.0)]
    found = dovetail.online_multijoin({"a": a, "b": b, "c": c}, on=near, memory="1MB", partitions=4)
    assert [(row["f"], row["a_w"], row["g"]) for row in found.collect()] == [(1.5, "x", 1.25)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on": [*SHAPES["chain3"], ("orders.customer", "parts.price")]}, "cycle at orders and parts"),
        ({"on": SHAPES["chain3"][:1]}, r"nothing in .* connects \['parts'\] with 'orders'"),
        ({"on": [("orders.id", "things.id")]}, "'things.id', which is no column of an input"),
        ({"on": [("orders.nothing", "items.order_id"), SHAPES["chain3"][1]]}, "no column"),
        ({"on": "orders.id = items.order_id"}, "give a list of predicates"),
        ({"algorithm": "mminer"}, "did you mean 'miner'"),
        ({"memory": "1KB"}, "too small for 3 inputs"),
        ({"columns": ["id"]}, "the result has no column 'id'"),
        ({"columns": []}, "must be a list of output column names"),
        ({"rows": {"orders": 0}}, "a number above 0"),
        ({"suffixes": {"order": "_o"}}, "give a text for some of"),
        ({"suffixes": ("", "_r")}, "give a text for some of"),
        ({"suffixes": {"orders": ""}}, "would appear twice"),
        ({"partitions": 0}, "is not possible"),
        ({"inputs": []}, "DataFrames by name"),
    ],
)
def test_what_is_refused(spark: SparkSession, changes: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"inputs": frames_of(spark, "chain3", 2), "on": SHAPES["chain3"]} | changes
    with pytest.raises(PlanError, match=message):
        dovetail.online_multijoin(whole.pop("inputs"), **whole)


def test_streams_need_an_end_and_company(spark: SparkSession, tmp_path: Path) -> None:
    feed = MultiFeed(tmp_path, "chain3", rows=2)
    feed.add()
    streams, on = feed.streams(spark), SHAPES["chain3"]
    with pytest.raises(PlanError, match=r"3 streams without an end.*retain='2 hours'.*end_of_input.*withWatermark"):
        dovetail.online_multijoin(streams, on=on)
    with pytest.raises(PlanError, match=r"items is a stream and orders is not.*dovetail\.enrich"):
        dovetail.online_multijoin(streams | {"orders": frames_of(spark, "chain3", 2)["orders"]}, on=on, retain="1 hour")
    with pytest.raises(PlanError, match=r"given for \['orders'\]; give a Column for each"):
        dovetail.online_multijoin(streams, on=on, end_of_input={"orders": F.lit(True)})
    with pytest.raises(UnsupportedError, match="2 bands"):
        dovetail.online_multijoin(
            streams, on=[("orders.id", "items.part", 0, 1), ("orders.id", "items.kind", 0, 1), on[1]]
        )
