"""Rows that a source has and a stream has not read yet, from what Spark tells of offsets; and how long rows waited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.pipeline.file.declared import Step

QUANTILES = {"latency_p50_s": 0.50, "latency_p95_s": 0.95, "latency_p99_s": 0.99}


class Arrivals:
    """When the rows of one source became available, as a curve of time and number, and what it says of each batch."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._read = 0
        self._points: list[tuple[float, float]] = []
        self._newest: tuple[float, float] | None = None
        self.backlog: float | None = None
        self.rate: float | None = None

    def batch(self, progress: Mapping[str, Any], at: float, done: float) -> dict[str, float]:
        """Take in a micro-batch whose offsets were fixed `at` and that was over when `done`; how long its rows waited.

        Within a batch rows are taken in the order of their arrival.
        """
        first = self._read
        self._read += int(progress["numInputRows"])
        self.backlog = self._waiting(progress)
        available = self._read + (self.backlog or 0.0)
        # Workloads tell how far they have come when a batch is over, other sources when its offsets are fixed.
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
        """One more point of the curve; it never falls, and rows that were there at the start arrived then."""
        if self._points:
            at, available = max(at, self._points[-1][0]), max(available, self._points[-1][1])
        self._points.append((at, available))

    def _measure(self, at: float, available: float) -> None:
        if self._newest is not None and at > self._newest[0]:
            self.rate = max(0.0, available - self._newest[1]) / (at - self._newest[0])
        self._newest = at, available

    def _forget(self, first: int) -> None:
        """Drop points that only rows which were answered before need."""
        needed = next((n for n, (_, number) in enumerate(self._points) if number >= first), 0)
        del self._points[: max(0, needed - 1)]

    def _waiting(self, progress: Mapping[str, Any]) -> float | None:
        """Rows that are available and not read; None where nobody can tell."""
        end, latest = progress.get("endOffset"), progress.get("latestOffset")
        if isinstance(end, Mapping) and isinstance(latest, Mapping):
            if self._step.type == "workload":
                return max(0.0, float(latest["row"]) - float(end["row"]))
            if self._step.type == "kafka":
                return float(sum(_behind(end, latest)))
        if self._step.type == "rate" and isinstance(end, (int, float)) and isinstance(latest, (int, float)):
            return max(0.0, float(latest - end)) * float(self._step.values.get("rows_per_second", 1))
        files = (progress.get("metrics") or {}).get("numFilesOutstanding")
        return None if files is None else float(files) * max(1, int(progress["numInputRows"]))


def _behind(end: Mapping[str, Any], latest: Mapping[str, Any]) -> list[int]:
    """How far each partition of each topic is behind."""
    return [
        max(0, int(newest) - int(end.get(topic, {}).get(part, 0)))
        for topic, parts in latest.items()
        for part, newest in parts.items()
    ]
