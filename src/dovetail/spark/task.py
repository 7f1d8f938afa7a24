"""Identifies the running task attempt, and brings its metrics to the driver, in batch queries and in streams.

Metrics travel by a Spark accumulator. Updates come with the result of each successful task, so they need no files and
no extra jobs, and failed tasks report nothing.
"""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass, field

from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession

from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, UnsupportedError
from dovetail.spark.frames import is_connect

_STATE = "spark.sql.streaming.internal.stateStore.partitions"
_STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
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


def commits_name_state() -> bool:
    """Whether all attempts of a micro-batch of the running query start from the same state; true on the driver.

    In Spark's checkpoint format 2 the commit of a micro-batch names the state that its attempt left. In format 1 the
    running query continues with that state, and a restarted one may find that of an earlier attempt. A checkpoint keeps
    the format that it began with, whatever the session says.
    """
    context = TaskContext.get()
    return context is None or (context.getLocalProperty(_STATE_FORMAT) or "1") != "1"


_KEPT = 100  # executions or micro-batches


@dataclass(frozen=True, slots=True)
class _Unit:
    """One execution: a query (its execution number) or a micro-batch (its stream and batch number)."""

    stream: str
    number: int


@dataclass(slots=True)
class _Ledger:
    """The reports by unit and partition, newest unit last; old micro-batches are one sum per stream."""

    keep: int
    units: dict[_Unit, dict[int, tuple[int, Metrics]]] = field(default_factory=dict)
    older: dict[str, Metrics] = field(default_factory=dict)

    def record(self, unit: _Unit, partition: int, attempt: int, metrics: Metrics) -> None:
        """Adds to what this attempt reported, and replaces what an earlier attempt at the same partition reported."""
        reports = self.units.pop(unit, {})
        self.units[unit] = reports
        known, before = reports.get(partition, (-1, Metrics()))
        if attempt == known:
            before.merge(metrics)
        elif attempt > known:
            reports[partition] = (attempt, Metrics().merge(metrics))
        self._forget()

    def absorb(self, other: _Ledger) -> None:
        for unit, reports in other.units.items():
            for partition, (attempt, metrics) in reports.items():
                self.record(unit, partition, attempt, metrics)

    def total(self, unit: _Unit) -> Metrics:
        together = Metrics()
        for _, metrics in list(self.units.get(unit, {}).values()):
            together.merge(metrics)
        return together

    def _forget(self) -> None:
        # A driver may run one stream for months. Spark replays only the newest batch, so an old one is final.
        if len(self.units) > self.keep:
            unit = next(iter(self.units))
            if unit.stream:
                self.older.setdefault(unit.stream, Metrics()).merge(self.total(unit))
            del self.units[unit]


class _LedgerParam(AccumulatorParam[_Ledger]):
    def zero(self, value: _Ledger) -> _Ledger:
        return _Ledger(value.keep)

    def addInPlace(self, value1: _Ledger, value2: _Ledger) -> _Ledger:  # noqa: N802  (Spark's name)
        value1.absorb(value2)
        return value1


class MetricsSink:
    """Collects the metrics of the tasks of one query or stream on the driver.

    Create it on the driver, close over it in the function that Spark runs, call `task` there, and read `collect` or
    `batches` on the driver when the action or the batch is over. A partition counts once however often it was tried,
    speculated or recomputed. Each execution of a query is counted apart, and so is each micro-batch of a stream. A
    task that Spark stops early, because a limit is satisfied, reports nothing. A sink holds the newest 100
    executions or micro-batches; older batches stay in the stream's total.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._accumulator: Accumulator[_Ledger] | None = None
        if not is_connect(spark):
            self._accumulator = spark.sparkContext.accumulator(_Ledger(_KEPT), _LedgerParam())
            # Spark keeps every accumulator for the life of the process and ignores updates for one that is gone.
            weakref.finalize(self, _accumulatorRegistry.pop, self._accumulator.aid, None)

    def task(self, metrics: Metrics) -> None:
        """Reports from inside a task, before its last batch is yielded; several reports of one task add up.

        Over Spark Connect this does nothing.
        """
        if self._accumulator is None:
            return
        unit, partition, attempt = _whereabouts()
        report = _Ledger(2)
        report.record(unit, partition, attempt, metrics)
        self._accumulator.add(report)

    def collect(self) -> Metrics:
        """All tasks of the newest execution together; of a stream, all its micro-batches so far.

        Empty before the first task has ended. Raises UnsupportedError over Spark Connect.
        """
        ledger = self._ledger()
        newest = next(reversed(list(ledger.units)), None)
        if newest is None:
            return Metrics()
        if not newest.stream:
            return ledger.total(newest)
        together = Metrics().merge(ledger.older.get(newest.stream, Metrics()))
        for metrics in self.batches(newest.stream).values():
            together.merge(metrics)
        return together

    def streams(self) -> set[str]:
        """The query ids of streams that have reported so far."""
        return set() if self._accumulator is None else {unit.stream for unit in list(self._ledger().units)} - {""}

    def batches(self, stream: str | None = None) -> dict[int, Metrics]:
        """Metrics by micro-batch number, of the stream with this query id, or of all streams that used this sink."""
        ledger = self._ledger()
        found = [unit for unit in list(ledger.units) if unit.stream and stream in (None, unit.stream)]
        together: dict[int, Metrics] = {}
        for unit in found:
            together.setdefault(unit.number, Metrics()).merge(ledger.total(unit))
        return together

    def _ledger(self) -> _Ledger:
        if self._accumulator is None:
            raise UnsupportedError(
                "metrics of a run do not reach a Spark Connect client, which has no accumulators; "
                "run the query in a classic session (dovetail.session() without spark.remote) to see them"
            )
        return self._accumulator.value


def _whereabouts() -> tuple[_Unit, int, int]:
    """The unit, partition and attempt that the calling task belongs to; of the driver, one nameless unit."""
    at = TaskAttempt.here()
    return _Unit(at.query, at.batch if at.query else int(at.execution or -1)), at.partition, at.attempt
