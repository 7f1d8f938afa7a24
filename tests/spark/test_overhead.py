"""Memory beside the JVM: what an executor has by its settings, and what the joins that stay there may hold."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from dovetail.spark.overhead import PYTHON_BYTES, limit_of, overhead_bytes, resident_limit

MIB = 1 << 20
OVERHEAD = "spark.executor.memoryOverhead"


@pytest.mark.parametrize(
    ("settings", "mib"),
    [
        ({}, 384),
        ({"spark.executor.memory": "8g"}, 819),
        ({"spark.executor.memory": "8192"}, 819),
        ({"spark.executor.memory": "8g", "spark.executor.memoryOverheadFactor": "0.4"}, 3276),
        ({OVERHEAD: "2g"}, 2048),
        ({OVERHEAD: "700"}, 700),
        ({OVERHEAD: "900MiB"}, 900),
    ],
)
def test_the_overhead_is_what_spark_makes_of_its_settings(settings: Mapping[str, str], mib: int) -> None:
    assert overhead_bytes(settings.get) // MIB == mib


def test_joins_that_may_need_more_than_there_is_are_told_with_the_line_to_set() -> None:
    asked = {"spark.master": "yarn", "spark.executor.instances": "4", OVERHEAD: "1g"}
    room, trouble = limit_of(asked.get, 64 * MIB, 64, lambda: 99)
    assert room == 1024 * MIB - PYTHON_BYTES
    assert "16 buckets with memory=64 MiB" in trouble
    wanted = trouble.partition(f"set {OVERHEAD}=")[2].partition(",")[0]
    assert limit_of({**asked, OVERHEAD: wanted}.get, 64 * MIB, 64, lambda: 99)[1] == ""
    assert limit_of(asked.get, 64 * MIB, 64, lambda: 99)[1] == trouble
    assert limit_of({"spark.master": "k8s://host"}.get, 64 * MIB, 4, lambda: 4) == (64 * MIB, "")  # one at a time


def test_where_nothing_ends_executors_there_is_no_limit_unless_it_is_set(spark: SparkSession) -> None:
    assert limit_of({"spark.master": "spark://host:7077"}.get, 64 * MIB, 64, lambda: 1) == (None, "")
    set_there = {"spark.master": "spark://host:7077", OVERHEAD: "8g"}
    assert limit_of(set_there.get, 64 * MIB, 64, lambda: 1)[0] == 8192 * MIB - PYTHON_BYTES
    assert resident_limit(spark, 64 * MIB, 64) is None
