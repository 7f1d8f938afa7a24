"""Identifies the running task attempt: its query, micro-batch, partition and attempt."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark import TaskContext

from dovetail.errors import ConfigError

_STATE = "spark.sql.streaming.internal.stateStore.partitions"
_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at one partition of a query.

    `query` is the id of a streaming query and `batch` the number of its micro-batch; in batch queries they are empty.
    `run` identifies a run of a streaming query, `execution` an action of a session. On the driver all are empty.
    """

    query: str = ""
    batch: int = -1
    run: str = ""
    execution: str = ""
    partition: int = 0
    attempt: int = 0

    @classmethod
    def here(cls) -> TaskAttempt:
        """The attempt that the calling code runs in."""
        context = TaskContext.get()
        if context is None:
            return cls()
        query, batch, execution = (
            context.getLocalProperty(name) or ""
            for name in ("sql.streaming.queryId", "streaming.sql.batchId", "spark.sql.execution.id")
        )
        run = _run_of(context) if query else ""
        return cls(query, int(batch or -1), run, execution, context.partitionId(), context.taskAttemptId())


def _run_of(context: TaskContext) -> str:
    """The run of the query, whose id Spark gives its jobs as their group.

    If the function of foreachBatch named a group of its own, the application stands for the run.
    """
    group = context.getLocalProperty("spark.jobGroup.id") or ""
    if _RUN_ID.fullmatch(group):
        return group[:8]
    return context.getLocalProperty("spark.app.startTime") or "0"


def state_partitions() -> int:
    """Partitions of the running query's state: `spark.sql.shuffle.partitions` as it was when the checkpoint began.

    A restarted query uses the session's setting for other shuffles, and this number for its state. It is known in tasks
    only: the checkpoint is not known when a query is planned.
    """
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(_STATE)
    if not found:
        raise ConfigError(
            f"Spark does not tell this task how many partitions the query's state has ({_STATE}): df.rdd, df.foreach "
            f"and df.foreachPartition do not pass it on in threads that foreachBatch starts. Use df.write or "
            f"df.collect there, or wrap the function: pyspark.inheritable_thread_target(df.sparkSession)(function)."
        )
    return int(found)
