"""What a row costs on its way through Spark: from Python to the JVM, and through a shuffle.

Costs are core seconds: wall time times the number of tasks, less the time of the same job without the rows. They are
of rows of eight columns, two of them text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dovetail.calibrate.kernel_costs import wide_batch
from dovetail.calibrate.unit_cost import Effort, repeated, timed
from dovetail.engine.profile import Cost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 10_000
SCHEMA = "n0 long, n1 long, n2 long, n3 long, n4 long, n5 long, t0 string, t1 string"


def python_to_jvm_row(spark: SparkSession, effort: Effort) -> Cost:
    """One row from a Python worker to a JVM that throws it away."""
    tasks = _tasks(spark)
    batches = max(1, effort.spark_rows // BATCH_ROWS // tasks)
    full = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_rows, batches), SCHEMA)
    empty = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_rows, 0), SCHEMA)
    return _difference(full, empty, tasks, batches * tasks * BATCH_ROWS, effort.spark_repeats)


def shuffle_row(spark: SparkSession, effort: Effort) -> Cost:
    """One row of the JVM written to and read from a shuffle by hash, on local disk."""
    tasks = _tasks(spark)
    plain = _wide_frame(spark, effort.spark_rows, tasks)
    return _difference(plain.repartition(tasks, "n1"), plain, tasks, effort.spark_rows, effort.spark_repeats)


def _difference(more: DataFrame, less: DataFrame, tasks: int, rows: int, repeats: int) -> Cost:
    return repeated(lambda: (timed(partial(_drain, more)) - timed(partial(_drain, less))) * tasks / rows, repeats)


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _tasks(spark: SparkSession) -> int:
    return spark.sparkContext.defaultParallelism


def _wide_frame(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    numbers = [f"id * {i + 1} AS n{i}" for i in range(6)]
    texts = [f"concat('word ', id % {1000 + i}) AS t{i}" for i in range(2)]
    return spark.range(0, rows, 1, tasks).selectExpr(*numbers, *texts)


def _rows(batches: int, given: Iterable[Any]) -> Iterator[Any]:
    batch = wide_batch(BATCH_ROWS)
    for _ in given:
        for _ in range(batches):
            yield batch
