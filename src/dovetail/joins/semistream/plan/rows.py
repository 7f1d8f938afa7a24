"""How many rows a task of a batch DataFrame has, as far as Spark knows before anything runs."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from dovetail.spark.connect import is_connect, parallelism

_TASK_BYTES = 128 << 20  # what Spark reads in one task, at most
_UNKNOWN_BYTES = 1 << 60  # Spark's size of what it knows nothing of is the largest number there is


def task_rows(frame: DataFrame, row_bytes: float, at_least: int) -> int | None:
    """Rows of one task, by Spark's statistics of the plan; None where it has none, as over Spark Connect.

    A row count is there for ranges, local data and analysed tables; otherwise bytes of files or of what a plan makes of
    them, in rows of `row_bytes`. So many as `at_least` are there in all.
    """
    if is_connect(frame):
        return None
    statistics: Any = frame._jdf.queryExecution().optimizedPlan().stats()
    nbytes, counted = int(str(statistics.sizeInBytes())), statistics.rowCount()
    if counted.isDefined():
        rows = int(str(counted.get()))
    elif nbytes < _UNKNOWN_BYTES:
        rows = int(nbytes / max(1.0, row_bytes))
    else:
        return None
    tasks = max(parallelism(frame.sparkSession), -(-min(nbytes, _UNKNOWN_BYTES) // _TASK_BYTES))
    return max(1, max(rows, at_least) // tasks)
