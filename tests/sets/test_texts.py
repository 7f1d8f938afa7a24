"""Sets of intervals between texts: they have an order, and no lengths."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests import oracle

import dovetail
from dovetail.errors import DataError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
WORDS = ["", "a", "a/1", "a/10", "a/2", "b", "é", "z", "中", "𝄞"]


def made(seed: int, n: int) -> Rows:
    random = Random(seed)  # noqa: S311  (repeatable, no secrets)
    rows: Rows = []
    for number in range(n):
        start, end = sorted(random.choices(WORDS, k=2))
        hidden = random.choice([None, None, None, None, "start", "end"])
        row = {"k": random.choice(["x", "y", None]), "start": start, "end": end, "v": number}
        rows.append(row if hidden is None else row | {hidden: None})
    return rows


def frame_of(spark: SparkSession, rows: Rows) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in rows], "k string, start string, end string, v int")


def bag(frame: DataFrame) -> Any:
    return oracle.bag(tuple(row) for row in frame.collect())


def test_one_set_equals_the_definition(spark: SparkSession) -> None:
    rows = made(1, 30)
    frame = frame_of(spark, rows).cache()
    for gap, closed in ((0, "left"), (None, "both")):
        groups = oracle.clusters(rows, gap, ["k"], closed)
        wanted = [(g[0]["k"], min(r["start"] for r in g), max(r["end"] for r in g), len(g)) for g in groups]
        assert bag(dovetail.interval_merge(frame, on="k", gap=gap, closed=closed)) == oracle.bag(wanted)  # type: ignore[arg-type]
    by_key = oracle.by_key(rows, ["k"])
    depths = [(*key, *piece) for key, group in by_key.items() for piece in oracle.interval_depth(group)]
    assert bag(dovetail.interval_depth(frame, on="k")) == oracle.bag(depths)
    gaps = [(*key, *gap) for key, group in by_key.items() for gap in oracle.uncovered(group, "", "zz")]
    assert bag(dovetail.interval_complement(frame, on="k", limits=("", "zz"))) == oracle.bag(gaps)
    pieces = [
        (*key, low, high, row["v"])
        for key, group in by_key.items()
        for low, high in oracle.pieces(group)
        for row in group
        if row["start"] <= low and high <= row["end"]
    ]
    assert bag(dovetail.make_disjoint(frame, on="k")) == oracle.bag(pieces)


def test_differences_equal_the_definition(spark: SparkSession) -> None:
    left, right = made(2, 15), made(3, 12)
    others = oracle.by_key(right, ["k"])
    wanted = []
    for row in left:
        if row["start"] is None or row["end"] is None or row["start"] >= row["end"]:
            continue
        group = [] if row["k"] is None else others.get((row["k"],), [])
        wanted += [(row["k"], *piece, row["v"]) for piece in oracle.uncovered(group, row["start"], row["end"])]
    found = dovetail.interval_subtract(frame_of(spark, left), frame_of(spark, right), on="k")
    assert bag(found) == oracle.bag(wanted)


def test_what_needs_a_length_is_refused(spark: SparkSession) -> None:
    frame = frame_of(spark, made(4, 3))
    for call, argument in (
        (lambda: dovetail.interval_merge(frame, gap=1), "gap"),
        (lambda: dovetail.interval_window(frame, width=2), "interval"),
        (lambda: dovetail.interval_coverage(frame, frame), "left_interval"),
    ):
        with pytest.raises(PlanError, match="have an order but no lengths") as raised:
            call()
        assert raised.value.argument == argument
    mixed = frame.selectExpr("start", "1 as end")
    with pytest.raises(PlanError, match="text bounds must all be string"):
        dovetail.interval_merge(mixed)
    with pytest.raises(DataError, match="from b to a"):
        dovetail.interval_merge(spark.createDataFrame([("b", "a")], "start string, end string")).collect()


def test_the_last_text_before_each(spark: SparkSession) -> None:
    left, right = made(5, 20), made(6, 15)
    one, other = frame_of(spark, left).drop("end"), frame_of(spark, right).drop("end").withColumnRenamed("v", "w")
    found = dovetail.asof_join(one, other, on="start", by="k", how="left", ties=("last", "w"))
    wanted = {}
    for row in left:
        near = [
            (r["start"], r["v"])
            for r in right
            if None not in (r["k"], r["start"], row["start"]) and r["k"] == row["k"] and r["start"] <= row["start"]
        ]
        wanted[row["v"]] = max(near)[1] if near else None
    assert {row["v"]: row["w"] for row in found.collect()} == wanted
    with pytest.raises(PlanError, match="texts have an order but no distances"):
        dovetail.asof_join(one, other, on="start", tolerance=1)
