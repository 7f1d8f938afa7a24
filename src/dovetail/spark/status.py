"""Reads Spark's own figures of its queries: rows, spills and memory of plan nodes, and times of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dovetail.engine.memory import parse_bytes
from dovetail.engine.metrics import Metrics

_NUMBER = re.compile(r"^[\d,]+$")
_SIZE = re.compile(r"^([\d.,]+) (B|KiB|MiB|GiB|TiB)")


def each(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence that lives in the JVM."""
    return map(sequence.apply, range(sequence.size()))


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a plan that ran: its name, its description, and its counts and sizes by Spark's names for them.

    Counts are exact. Sizes are totals over all tasks as Spark prints them, so they have three digits.
    """

    name: str
    description: str
    values: dict[str, int]


@dataclass(frozen=True, slots=True)
class Execution:
    """One query that ran."""

    nodes: tuple[Node, ...]
    stages: tuple[int, ...]


def last_execution(spark: SparkSession, mark: str = "") -> Execution | None:
    """The newest query whose plan contains the mark, with all its events; None if there is none."""
    session: Any = spark
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = session._jsparkSession.sharedState().statusStore()
    for number in reversed(range(store.executionsCount())):
        query = store.executionsList(number, 1).head()
        if mark in query.physicalPlanDescription():
            return Execution(tuple(_nodes(store, query.executionId())), tuple(map(int, each(query.stages().toSeq()))))
    return None


def task_milliseconds(spark: SparkSession, stage: int) -> list[int]:
    """The run times of the tasks of a stage; empty if Spark skipped it or no longer has it."""
    context: Any = spark.sparkContext
    store = context._jsc.sc().statusStore()
    try:
        attempt = store.lastStageAttempt(stage).attemptId()
    except Py4JJavaError:  # no such stage
        return []
    tasks = store.taskList(stage, attempt, 100_000)
    finished = (task.taskMetrics() for task in each(tasks))
    return [int(metrics.get().executorRunTime()) for metrics in finished if metrics.isDefined()]


def add_costs(spark: SparkSession, run: Execution, metrics: Metrics) -> None:
    """Count the bytes that the run spilled, and the task times of its longest stage, which show the skew."""
    metrics.add("bytes_written", sum(node.values.get("spill size", 0) for node in run.nodes), unit="bytes")
    stages = [task_milliseconds(spark, stage) for stage in run.stages]
    for milliseconds in max(stages, key=sum, default=[]):
        task = Metrics()
        task.add_ns("task_time", milliseconds * 1_000_000, per_task=True)
        metrics.merge(task)


def _nodes(store: Any, execution: int) -> Iterator[Node]:
    texts = store.executionMetrics(execution)
    for node in each(store.planGraph(execution).allNodes()):
        found = ((metric.name(), texts.get(metric.accumulatorId())) for metric in each(node.metrics()))
        values = {name: _value(text.get()) for name, text in found if text.isDefined()}
        yield Node(node.name(), node.desc(), {name: value for name, value in values.items() if value is not None})


def _value(text: str) -> int | None:
    """The number in Spark's text of a metric; the total of a distribution; None if it is not a number."""
    shown = text.splitlines()[-1].strip()
    if _NUMBER.match(shown):
        return int(shown.replace(",", ""))
    size = _SIZE.match(shown)
    if size is None:
        return None
    amount = float(size[1].replace(",", ""))
    return parse_bytes(f"{amount} {size[2]}") if amount else 0
