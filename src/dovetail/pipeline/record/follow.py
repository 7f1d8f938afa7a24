"""Follows Spark's queries into the record of a run: progress, backlog and latency, one follower a query."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dovetail.engine.metrics import Metrics
from dovetail.joins.semistream.plan.plan import measured_rate
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.file.wiring import streams
from dovetail.pipeline.record.figures import collected, expected, measured, totals
from dovetail.pipeline.record.watch import Lag, Watch
from dovetail.pipeline.steps.build import Lineage

QUANTILES = {"latency_p50_s": 0.50, "latency_p95_s": 0.95, "latency_p99_s": 0.99}


class Arrivals:
    """Arrival times of the rows of one source, as a curve of time and row number; gives backlog, rate and latency."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.has_partitions = step.type == "kafka"
        self._read = 0
        self._points: list[tuple[float, float]] = []
        self._newest: tuple[float, float] | None = None
        self.backlog: float | None = None
        self.rate: float | None = None

    def batch(self, progress: Mapping[str, Any], at: float, done: float) -> dict[str, float]:
        """Add a micro-batch whose offsets were fixed `at` and that ended when `done`; quantiles of its rows' latency.

        Within a batch rows are taken in the order of their arrival.
        """
        first = self._read
        self._read += int(progress["numInputRows"])
        self.backlog = self._waiting(progress)
        available = self._read + (self.backlog or 0.0)
        # Workloads report their latest offset at the end of a batch, other sources when its offsets are fixed.
        known = done if self._step.type == "workload" else at
        self._advance(at, self._read)
        self._advance(known, available)
        self._measure(known, available)
        waited = self._waited(first, done)
        self._forget(first)
        return waited

    def _waited(self, first: int, done: float) -> dict[str, float]:
        if self._read == first:
            return {}
        times, numbers = zip(*self._points, strict=True)
        rows = [self._read - q * (self._read - first) for q in QUANTILES.values()]
        arrived = np.interp(rows, numbers, times)
        return {name: max(0.0, done - float(when)) for name, when in zip(QUANTILES, arrived, strict=True)}

    def _advance(self, at: float, available: float) -> None:
        """Add a point to the curve, which never falls; rows that existed at the start arrived then."""
        if self._points:
            at, available = max(at, self._points[-1][0]), max(available, self._points[-1][1])
        self._points.append((at, available))

    def _measure(self, at: float, available: float) -> None:
        if self._newest is not None and at > self._newest[0]:
            self.rate = max(0.0, available - self._newest[1]) / (at - self._newest[0])
        self._newest = at, available

    def _forget(self, first: int) -> None:
        """Drop points that only answered rows need."""
        needed = next((n for n, (_, number) in enumerate(self._points) if number >= first), 0)
        del self._points[: max(0, needed - 1)]

    def _waiting(self, progress: Mapping[str, Any]) -> float | None:
        """Rows that are available and not read; None if the source does not report it."""
        end, latest = progress.get("endOffset"), progress.get("latestOffset")
        if isinstance(end, Mapping) and isinstance(latest, Mapping):
            if self._step.type == "workload":
                return max(0.0, float(latest["row"]) - float(end["row"]))
            if self._step.type == "kafka":
                return float(sum(lag.behind for lag in lags(progress)))
        if self._step.type == "rate" and isinstance(end, (int, float)) and isinstance(latest, (int, float)):
            return max(0.0, float(latest - end)) * float(self._step.values.get("rows_per_second", 1))
        files = (progress.get("metrics") or {}).get("numFilesOutstanding")
        return None if files is None else float(files) * max(1, int(progress["numInputRows"]))


def lags(progress: Mapping[str, Any]) -> list[Lag]:
    """How far a Kafka source has read each partition of each topic; empty if Spark does not report it."""
    end, latest = progress.get("endOffset"), progress.get("latestOffset")
    if not (isinstance(end, Mapping) and isinstance(latest, Mapping)):
        return []
    found = [
        Lag(topic, int(part), int(end.get(topic, {}).get(part, 0)), int(newest))
        for topic, parts in latest.items()
        for part, newest in parts.items()
    ]
    return sorted(found, key=lambda lag: (lag.topic, lag.partition))


class Follower:
    """Adds each finished micro-batch of one query to the record.

    `owned` are the steps that this query reports: a step that several sinks read is reported by one of them.
    """

    def __init__(self, watch: Watch, lineage: Lineage, query: StreamingQuery, owned: frozenset[str]) -> None:
        self._watch, self._lineage, self._query, self._owned = watch, lineage, query, owned
        self._sources = source_order(lineage)
        self._arrivals = {
            step.name: Arrivals(step) for step in lineage.steps if step.kind == "source" and streams(step)
        }
        self._rows: dict[str, int] = {}
        self._before: dict[str, Metrics] = {}
        self._seen = -1

    def poll(self) -> None:
        """Add the micro-batches that have finished since the last call."""
        last = self._query.lastProgress
        if last is None or int(last["batchId"]) <= self._seen:
            return
        for progress in self._query.recentProgress:
            batch = json.loads(progress.json)
            if int(batch["batchId"]) > self._seen and "addBatch" in batch["durationMs"]:
                self._seen = int(batch["batchId"])
                self._take(batch)

    def _take(self, batch: Mapping[str, Any]) -> None:
        began = datetime.datetime.fromisoformat(str(batch["timestamp"])).timestamp()
        seconds = float(batch["durationMs"].get("triggerExecution", batch.get("batchDuration", 0))) / 1000
        shared = {"batch": float(batch["batchId"]), "batch_s": seconds}
        latency: dict[str, float] = {}
        for name, progress in zip(self._sources, batch["sources"], strict=False):
            if name is not None:
                waited = self._source(name, progress, began, began + seconds, shared)
                latency = max(latency, waited, key=lambda found: found.get("latency_p50_s", -1.0))
        observed = batch.get("observedMetrics") or {}
        for step in self._lineage.steps:
            if step.kind in ("join", "sink"):
                self._step(step, observed, shared | latency, seconds)

    def _source(
        self, name: str, progress: Mapping[str, Any], began: float, done: float, shared: Mapping[str, float]
    ) -> dict[str, float]:
        n_rows, arrivals = int(progress["numInputRows"]), self._arrivals[name]
        waited = arrivals.batch(progress, began, done)
        self._rows[name] = self._rows.get(name, 0) + n_rows
        values = {"rows_in": self._rows[name], "rows_out": self._rows[name], **shared, **waited}
        values["service_rows_per_s"] = n_rows / max(1e-3, shared["batch_s"])
        if arrivals.backlog is not None:
            values["backlog_rows"] = arrivals.backlog
        if arrivals.rate is not None:
            values["arrival_rows_per_s"] = arrivals.rate
        self._add(name, values)
        if arrivals.has_partitions and name in self._owned:
            self._watch.lag(name, lags(progress))
        return waited

    def _step(self, step: Step, observed: Mapping[str, Any], shared: Mapping[str, float], seconds: float) -> None:
        before = self._rows.get(f"in:{step.name}", 0)
        values = dict(shared)
        known = [self._rows[name] for name in step.sources if name in self._rows]
        if known:
            values["rows_in"] = self._rows[f"in:{step.name}"] = sum(known)
            values["service_rows_per_s"] = (sum(known) - before) / max(1e-3, seconds)
        rates = [self._arrivals[name].rate for name in step.sources if name in self._arrivals]
        if rates and all(rate is not None for rate in rates):
            values["arrival_rows_per_s"] = sum(rate for rate in rates if rate is not None)
        backlogs = [self._arrivals[name].backlog for name in step.sources if name in self._arrivals]
        if backlogs and all(rows is not None for rows in backlogs):
            values["backlog_rows"] = sum(rows for rows in backlogs if rows is not None)
        if step.name in observed:
            self._rows[step.name] = self._rows.get(step.name, 0) + int(observed[step.name]["rows"])
        if step.kind == "sink" and known:
            self._rows[step.name] = sum(known)
        if step.name in self._rows:
            values["rows_out"] = self._rows[step.name]
        self._add(step.name, values | self._measured(step))

    def _measured(self, step: Step) -> dict[str, float]:
        plan = self._lineage.plans.get(step.name)
        if plan is None or step.name not in self._owned:
            return {}
        metrics = collected(plan)
        values = totals(plan, metrics)
        rate = measured_rate(metrics)
        if rate is not None:
            values["task_rows_per_s"] = rate
        self._watch.predict(step.name, expected(metrics))
        self._watch.measured(step.name, measured(plan, metrics))
        if step.type == "enrich" and "page_loads" in values:
            shown = {key: values[key] for key in ("page_loads", "cache_hits", "cache_misses")}
            self._add(str(step.values["master"]), shown)
        return values

    def _add(self, step: str, values: Mapping[str, float]) -> None:
        if step in self._owned:
            self._watch.add(step, values)


def source_order(lineage: Lineage) -> list[str | None]:
    """The source steps in the order in which Spark reports the sources of the query; None for any other source.

    A source is identified by the expression ids of its columns.
    """
    known = {marks: name for name, frame in lineage.sources.items() for marks in _leaves(frame)}
    found = [known.get(marks) for marks in _leaves(lineage.frame)]
    if None in found:
        # Spark renumbers the columns of a source that a query reads twice. With one source there is no doubt.
        only = [step.name for step in lineage.steps if step.kind == "source" and streams(step)]
        found = [only[0]] if len(only) == 1 else found
    return list(dict.fromkeys(found))


def _leaves(frame: DataFrame) -> list[tuple[int, ...]]:
    jvm: Any = frame
    leaves = jvm._jdf.queryExecution().analyzed().collectLeaves()
    streaming = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
    return [
        tuple(int(leaf.output().apply(at).exprId().id()) for at in range(leaf.output().size())) for leaf in streaming
    ]


def record_batch(watch: Watch, lineage: Lineage, owned: frozenset[str], rows: int | None, seconds: float) -> None:
    """Add a batch that was written as a whole to the record."""
    shared = {"batch_s": seconds}
    for step in lineage.steps:
        if step.name not in owned:
            continue
        values: dict[str, float] = dict(shared)
        plan = lineage.plans.get(step.name)
        if plan is not None:
            metrics = collected(plan)
            values |= totals(plan, metrics)
            if metrics.value("rows"):
                values["rows_in"] = metrics.value("rows")
            watch.measured(step.name, measured(plan, metrics))
        if rows is not None and step.name in (lineage.sink.name, lineage.sink.values["from"]):
            values["rows_out"] = rows
            if step.kind == "sink":
                values["rows_in"] = rows
        watch.add(step.name, values)
