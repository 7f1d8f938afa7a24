"""enrich with null_safe: null equals null, as Spark's `<=>` says, in batches, streams, and with rows set aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.semistream.frame.cases import bag, drop_file, file_stream, page_store, rows_of

from dovetail import MasterStore, dead_letter, enrich, plan_enrich
from dovetail.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = pa.table(
    {
        "k": pa.array([n % 40 if n % 11 else None for n in range(90)], pa.int64()),
        "name": pa.array([f"n{n % 3}" if n % 7 else None for n in range(90)]),
        "text": pa.array([f"row {n}" for n in range(90)]),
    }
)


def rows(first: int, n: int = 120) -> pa.Table:
    keys = pa.array([at % 50 if at % 5 else None for at in range(n)], pa.int64())
    names = pa.array([f"n{at % 4}" if at % 6 else None for at in range(n)])
    return pa.table({"id": list(range(first, first + n)), "k": keys, "name": names})


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MasterStore:
    path = tmp_path_factory.mktemp("nulls") / "m.pages"
    return MasterStore.build(spark.createDataFrame(MASTER), path, ["k", "name"], page=512, keep_nulls=True)


def joined(stream: DataFrame, how: str) -> DataFrame:
    other = stream.sparkSession.createDataFrame(MASTER).alias("m")
    on = F.col("s.k").eqNullSafe(F.col("m.k")) & F.col("s.name").eqNullSafe(F.col("m.name"))
    found = stream.alias("s").join(other, on, how)
    return found.select("s.*") if how in ("left_semi", "left_anti") else found.select("s.*", "m.text")


@pytest.mark.parametrize(
    ("how", "algorithm", "exchange"), [("left", "cachejoin", "master"), ("left_anti", "auto", "none")]
)
def test_a_batch_equals_sparks_null_safe_join(
    spark: SparkSession, store: MasterStore, how: str, algorithm: str, exchange: str
) -> None:
    stream = spark.createDataFrame(rows(0)).repartition(2)
    plan = plan_enrich(
        stream, store, on=["k", "name"], how=how, algorithm=algorithm, exchange=exchange, memory="1MB", null_safe=True
    )
    assert "null_safe" in plan.explain()
    assert bag(plan.frame()) == bag(joined(stream, how))
    assert joined(stream, "inner").where("k IS NULL AND name IS NOT NULL").count() > 0


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
def test_streams_set_only_those_aside_that_have_no_match(
    spark: SparkSession, store: MasterStore, tmp_path: Path, mode: str
) -> None:
    drop_file(tmp_path / "in", rows(0), 0)
    out = enrich(
        file_stream(spark, tmp_path / "in"), store, on=["k", "name"], algorithm="cachejoin", memory="1MB", mode=mode,
        tune="off", null_safe=True, on_miss=dead_letter(tmp_path / "letters"), versions=str(tmp_path / "versions"),
    )  # fmt: skip
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    inputs = spark.read.parquet(str(tmp_path / "in"))
    assert rows_of(spark.read.parquet(str(tmp_path / "out")).toArrow()) == bag(joined(inputs, "inner"))
    letters = spark.read.parquet(str(tmp_path / "letters"))
    assert rows_of(letters.toArrow()) == bag(joined(inputs, "left_anti"))


def test_what_cannot_be_is_said(spark: SparkSession, store: MasterStore, tmp_path: Path) -> None:
    stream = spark.createDataFrame(rows(0))
    with pytest.raises(PlanError, match=r"null_safe=True with keys of types that differ.*cast the stream's"):
        enrich(stream.selectExpr("CAST(k AS DECIMAL(20, 2)) AS k", "name"), store, on=["k", "name"], null_safe=True)
    with pytest.raises(PlanError, match="null_safe='yes' must be True or False"):
        enrich(stream, store, on=["k", "name"], null_safe="yes")  # type: ignore[arg-type]
    without = page_store(tmp_path / "m.pages", MASTER, ["k", "name"])
    with pytest.raises(PlanError, match=r"built without its [0-9]+ rows .* build it with keep_nulls=True"):
        enrich(stream, without, on=["k", "name"], null_safe=True)
