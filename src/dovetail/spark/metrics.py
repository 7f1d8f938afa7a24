"""Brings metrics from tasks to the driver, for batch queries and for streams.

It is a Spark accumulator. Updates travel with the result of each successful task, so they need no files and no extra
jobs, and failed tasks report nothing.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession

from dovetail.engine.metrics import Metrics
from dovetail.errors import UnsupportedError
from dovetail.spark.connect import is_connect
from dovetail.spark.task import TaskAttempt

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
