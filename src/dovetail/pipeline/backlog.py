"""Rows that a source has and a stream has not read yet, from what Spark tells of offsets; and how long rows waited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.pipeline.declared import Step

QUANTILES = {"latency_p50_s": 0.50, "latency_p95_s": 0.95, "latency_p99_s": 0.99}


class Arrivals:
    """When the rows of one source became available, as a curve of time and number, and what it says of each batch."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._read = 0
        self._points: list[tuple[float, float]] = []
        self._began: tuple[float, int] | None = None
        self.backlog: float | None = None
        self.rate: float | None = None

    def batch(self, progress: Mapping[str, Any], at: float, done: float) -> dict[str, float]:
        """Take in a micro-batch whose offsets were fixed `at` and that was over when `done`; how long its rows waited.

        Within a batch rows are taken in the order of their arrival.
        """
        first = self._read
        self._read += int(progress["numInputRows"])
        self.backlog = self._waiting(progress, at)
        self._advance(at, self._read + (self.backlog or 0.0))
        if self._read == first:
            return {}
        times, numbers = zip(*self._points, strict=True)
        rows = [self._read - q * (self._read - first) for q in QUANTILES.values()]
        arrived = np.interp(rows, numbers, times)
        return {name: max(0.0, done - float(when)) for name, when in zip(QUANTILES, arrived, strict=True)}

    def _advance(self, at: float, available: float) -> None:
        if self._points:
            before, had = self._points[-1]
            self.rate = max(0.0, available - had) / max(1e-3, at - before)
        # Numbers must rise for a curve that can be read backwards; rows that were there at once arrived at once.
        self._points.append((at, max(available, self._points[-1][1] if self._points else 0.0)))
        kept = next((n for n, (_, number) in enumerate(self._points) if number >= self._read), len(self._points)) - 2
        del self._points[: max(0, kept - 1_000)]

    def _waiting(self, progress: Mapping[str, Any], at: float) -> float | None:
        """Rows that are available and not read; None where nobody can tell."""
        end, latest = progress.get("endOffset"), progress.get("latestOffset")
        if self._step.type == "workload" and isinstance(end, Mapping) and isinstance(latest, Mapping):
            return max(0.0, self._arrived(progress, at) - float(end["row"]))
        if self._step.type == "kafka" and isinstance(end, Mapping) and isinstance(latest, Mapping):
            return float(sum(_behind(end, latest)))
        if self._step.type == "rate" and isinstance(end, (int, float)) and isinstance(latest, (int, float)):
            return max(0.0, float(latest - end)) * float(self._step.values.get("rows_per_second", 1))
        files = (progress.get("metrics") or {}).get("numFilesOutstanding")
        rows = int(progress["numInputRows"])
        return None if files is None else float(files) * max(1, rows)

    def _arrived(self, progress: Mapping[str, Any], at: float) -> float:
        """Rows of a workload that its pace has let through; without a pace all are there at once."""
        total = float(progress["latestOffset"]["row"])
        options = {key.replace("_", "").lower(): value for key, value in self._step.values.get("options", {}).items()}
        pace = float(options.get("rowspersecond", 0))
        if not pace:
            return total
        if self._began is None:
            start = progress.get("startOffset") or {"row": 0}
            self._began = at, int(start["row"])
        since, first = self._began
        return min(total, first + (at - since) * pace)


def _behind(end: Mapping[str, Any], latest: Mapping[str, Any]) -> list[int]:
    """How far each partition of each topic is behind."""
    return [
        max(0, int(newest) - int(end.get(topic, {}).get(part, 0)))
        for topic, parts in latest.items()
        for part, newest in parts.items()
    ]
