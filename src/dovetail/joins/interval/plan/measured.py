"""What a run of the native route did, read from what Spark recorded of it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.plan.cells import name
from dovetail.joins.interval.plan.sides import Side
from dovetail.spark.connect import require_classic
from dovetail.spark.status import Execution, Node, last_execution, task_milliseconds

ROWS_OUT = "number of output rows"


def native_metrics(spark: SparkSession, left: Side, right: Side) -> Metrics:
    """Rows placed in bins, joined rows, spills and memory of the plan's last run, as Spark counted them.

    Spark does not count the candidate pairs that a join condition turned down, so there are no comparisons here.
    Empty when the plan has not run, or when Spark has forgotten the run (spark.sql.ui.retainedExecutions).
    """
    require_classic(spark, "metrics of a run", "run the query in a classic session to see them")
    metrics = Metrics()
    run = last_execution(spark, left.mark)
    if run is None:
        return metrics
    for side in (left, right):
        placed = [node.values.get(ROWS_OUT, 0) for node in run.nodes if _makes(node, name(side, "bin"))]
        if placed:
            metrics.add("placed", max(placed), side=side.name)
    joins = [node for node in run.nodes if node.name.endswith("Join") and left.mark in node.description]
    metrics.add("pairs", sum(node.values.get(ROWS_OUT, 0) for node in joins))
    metrics.add("bytes_written", _total(run, "spill size"), unit="bytes")
    metrics.note("counted by Spark: pairs include rows that an outer join kept, bytes_written is the size of spills")
    _add_times(spark, run, metrics)
    return metrics


def _makes(node: Node, column: str) -> bool:
    """Whether the node is the explode that makes this column: the column is the last thing that it names."""
    return node.name == "Generate" and f"[{column}#" in node.description


def _total(run: Execution, what: str) -> int:
    return sum(node.values.get(what, 0) for node in run.nodes)


def _add_times(spark: SparkSession, run: Execution, metrics: Metrics) -> None:
    """The task times of the stage that worked longest, each task kept, so that the skew can be told."""
    stages = [task_milliseconds(spark, stage) for stage in run.stages]
    for milliseconds in max(stages, key=sum, default=[]):
        task = Metrics()
        task.add_ns("task_time", milliseconds * 1_000_000, per_task=True)
        metrics.merge(task)
