"""Many wide answers at once through `online_join`: 48,400 pairs of 1 KB in any budget, of tables and of streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.semistream.frame.cases import drop_file

from dovetail.joins.online.api import online_join, online_multijoin, plan_online_join
from dovetail.joins.online.operators import ALGORITHMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
SIDE = 220
MEMORY = {"1MB": 1 << 20, "16MB": 1 << 24, "128MB": 1 << 27}
CASES = [(name, memory) for name in ALGORITHMS for memory in MEMORY if (name, memory) != ("shj", "1MB")]


def rows(column: str, n: int, key: int, text: str) -> pa.Table:
    return pa.table({"k": np.full(n, key), column: np.arange(n), f"{column}_text": [text] * n})


def pairs_of(out: DataFrame) -> tuple[int, int, int]:
    """How many pairs, different pairs, and characters."""
    size = F.length("a_text") + F.length("b_text")
    found = out.select("a", "b", size.alias("size")).agg(
        F.count("*"), F.countDistinct("a", "b"), F.coalesce(F.sum("size"), F.lit(0))
    )
    return tuple(found.collect()[0])  # type: ignore[return-value]  # three numbers


EVERY = (SIDE * SIDE, SIDE * SIDE, 1000 * SIDE * SIDE)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("algorithm", "memory"), CASES, ids=[" ".join(case) for case in CASES])
def test_pairs_of_two_tables(spark: SparkSession, algorithm: str, memory: str) -> None:
    left, right = (
        spark.createDataFrame(pa.concat_tables([rows(c, 9, 1 + at, ""), rows(c, SIDE, 7, "x" * 500)]))
        for at, c in enumerate("ab")
    )
    plan = plan_online_join(left, right, on="k", algorithm=algorithm, memory=memory, partitions=1)
    assert pairs_of(plan.frame()) == EVERY
    peak = plan.metrics().value("memory_peak")
    assert 0 < peak <= MEMORY[memory]


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("algorithm", "memory"), CASES, ids=[" ".join(case) for case in CASES])
def test_pairs_of_two_streams(spark: SparkSession, tmp_path: Path, algorithm: str, memory: str) -> None:
    """The first files have no text; all pairs of the last micro-batch are settled in it."""
    for at, column in enumerate("ab"):
        drop_file(tmp_path / column, rows(column, 9, 1 + at, ""), 0)
        drop_file(tmp_path / column, rows(column, SIDE, 7, "x" * 500), 1)
    left, right = (
        spark.readStream.schema(f"k long, {c} long, {c}_text string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / c))
        for c in "ab"
    )
    out = online_join(
        left, right, on="k", algorithm=algorithm, memory=memory, partitions=1, owed="batch", retain="1 hour"
    )
    writer = out.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
    query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert pairs_of(spark.read.parquet(str(tmp_path / "out"))) == EVERY


@pytest.mark.parametrize("algorithm", ["miner", "mjoin"])
def test_combinations_of_three_tables(spark: SparkSession, algorithm: str) -> None:
    n = 37
    inputs = {
        c: spark.createDataFrame(pa.concat_tables([rows(c, 9, 1 + at, ""), rows(c, n, 7, "x" * 333)]))
        for at, c in enumerate("abc")
    }
    on = [("a.k", "b.k"), ("b.k", "c.k")]
    out = online_multijoin(inputs, on=on, algorithm=algorithm, memory="1MB", partitions=1)
    size = F.length("a_text") + F.length("b_text") + F.length("c_text")
    assert tuple(out.agg(F.count("*"), F.sum(size)).collect()[0]) == (n**3, 999 * n**3)
