"""Settings that a streaming query's checkpoint fixes for good, as tasks of the query see them."""

from __future__ import annotations

from pyspark import TaskContext

from dovetail.errors import ConfigError

_STATE = "spark.sql.streaming.internal.stateStore.partitions"


def state_partitions() -> int:
    """Partitions of the running query's state: `spark.sql.shuffle.partitions` as it was when the checkpoint began.

    A restarted query has the session's setting for other shuffles, and this number for its state. It is known in tasks
    only: when a query is planned, its checkpoint is not known yet.
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
