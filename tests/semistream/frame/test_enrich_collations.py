"""Collated keys are refused by enrichments, which compare bytes; collated columns of the stream keep their type."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail import MasterStore
from dovetail.errors import PlanError
from dovetail.pipeline.steps.sources import inferred_schema

COLLATED = "string collate UTF8_LCASE"


def test_collated_keys_are_refused_with_a_remedy_that_works(spark: SparkSession, tmp_path: Path) -> None:
    master = spark.createDataFrame([("ab", 1)], f"k {COLLATED}, a int")
    stream = spark.createDataFrame([("Ab", "X"), ("ab", "Y")], f"k {COLLATED}, note {COLLATED}")
    with pytest.raises(PlanError, match=r"'k' is string collate UTF8_LCASE.*cast\('string'\)"):
        MasterStore.build(master, tmp_path / "pages", "k")
    master.write.parquet(str(tmp_path / "collated"))
    with pytest.raises(PlanError, match=r"'k' has the collation .*UTF8_LCASE.*cast\('string'\)"):
        MasterStore.parquet(str(tmp_path / "collated"), "k")
    plain = master.withColumn("k", F.col("k").cast("string"))
    store = MasterStore.build(plain, tmp_path / "pages", "k")
    with pytest.raises(PlanError, match=r"on: column 'k' is string collate UTF8_LCASE.*cast\('string'\)"):
        dovetail.enrich(stream, store, on="k")
    found = dovetail.enrich(stream.withColumn("k", F.col("k").cast("string")), store, on="k")
    assert found.schema["note"].dataType.simpleString() == COLLATED
    assert [tuple(row) for row in found.collect()] == [("ab", "Y", 1)]


def test_files_of_a_pipeline_keep_the_collations_that_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("ab", 1)], f"k {COLLATED}, a int")
    frame.write.parquet(str(tmp_path / "files"))
    found = inferred_schema(spark, "parquet", str(tmp_path / "files"), {})
    assert found == spark.read.parquet(str(tmp_path / "files")).schema
    assert found["k"].dataType.simpleString() == COLLATED
