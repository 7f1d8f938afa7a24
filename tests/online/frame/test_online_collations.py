"""Collated keys of online joins mean what Spark's own join means by them, and values come out as they went in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import PlanError

TEXTS = ("Ab", "aB", "ab ", "ΑΣ", "ας", "é", "e\u0301", "E", None, "")


def side(spark: SparkSession, collation: str, value: str, key: str = "k") -> DataFrame:
    rows = [(k, at) for at, k in enumerate(TEXTS * 2)]
    return spark.createDataFrame(rows, f"{key} string collate {collation}, {value} int")


def shown(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI_RTRIM", "UTF8_BINARY_RTRIM"])
def test_two_inputs_match_as_spark_matches_them(spark: SparkSession, collation: str) -> None:
    left, right = side(spark, collation, "a"), side(spark, collation, "b")
    wanted = left.join(right, "k")
    for algorithm in ("diner", "shj"):
        found = dovetail.online_join(left, right, on="k", algorithm=algorithm, partitions=3)
        assert found.columns == ["k", "a", "b"]
        assert found.schema["k"].dataType == left.schema["k"].dataType
        assert shown(found) == shown(wanted)
    other = side(spark, collation, "b", "k2")
    found = dovetail.online_join(left, other, on=[("k", "k2")], with_phase=True)
    assert found.columns == ["k", "a", "k2", "b", "_phase"]
    assert shown(found.drop("_phase")) == shown(left.join(other, F.expr("k = k2")))


def test_many_inputs_match_as_spark_matches_them(spark: SparkSession) -> None:
    inputs = {name: side(spark, "UTF8_LCASE", name, f"k{name}") for name in "xyz"}
    found = dovetail.online_multijoin(inputs, on=[("x.kx", "y.ky"), ("y.ky", "z.kz")], partitions=2)
    wanted = inputs["x"].join(inputs["y"], F.expr("kx = ky")).join(inputs["z"], F.expr("ky = kz"))
    assert found.columns == wanted.columns
    assert shown(found) == shown(wanted)
    some = dovetail.online_multijoin(inputs, on=[("x.kx", "y.ky"), ("y.ky", "z.kz")], columns=["z", "x"])
    assert shown(some) == shown(wanted.select("z", "x"))


def test_different_collations_and_hot_collated_keys_are_refused(spark: SparkSession) -> None:
    left, right, plain = side(spark, "UTF8_LCASE", "a"), side(spark, "UNICODE_CI", "b"), side(spark, "UTF8_BINARY", "c")
    for other in (right, plain):
        with pytest.raises(PlanError, match="different collations"):
            dovetail.online_join(left, other, on="k")
        with pytest.raises(PlanError, match="different collations"):
            dovetail.online_multijoin({"l": left, "r": other}, on=[("l.k", "r.k")])
    with pytest.raises(PlanError, match="leave hot out"):
        dovetail.online_join(left, left.withColumnRenamed("a", "b"), on="k", hot=["ab"])


def test_a_stream_keeps_collated_keys_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    left, right = side(spark, "UTF8_LCASE", "a"), side(spark, "UTF8_LCASE", "b")
    frames = {"l": left, "r": right}

    def streamed(collation: str) -> DataFrame:
        streams = (spark.readStream.schema(frames[n].schema).parquet(str(tmp_path / n)) for n in "lr")
        inputs = [stream.withColumn("k", F.collate("k", collation)) for stream in streams]
        return dovetail.online_join(*inputs, on="k", partitions=2, owed="batch", retain="1 hour")

    def run(condition: str, collation: str) -> None:
        for name, value in (("l", "a"), ("r", "b")):
            frames[name].where(condition.format(value)).coalesce(1).write.mode("append").parquet(str(tmp_path / name))
        query = (
            streamed(collation).writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start(str(tmp_path / "out"))
        )  # fmt: skip
        query.awaitTermination()

    for condition in ("{} % 2 = 0", "{} % 2 = 1"):
        run(condition, "UTF8_LCASE")
    assert shown(spark.read.parquet(str(tmp_path / "out"))) == shown(left.join(right, "k"))
    with pytest.raises(StreamingQueryException, match=r"another online join: .*UTF8_LCASE.* there, .*UNICODE_CI"):
        run("{} < 5", "UNICODE_CI")
