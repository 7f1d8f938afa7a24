"""How early results came: a curve of results over arrivals and time, in bounded memory."""

from __future__ import annotations

from dovetail.engine.clock import Clock
from dovetail.engine.metrics import Metrics
from dovetail.joins.online.phases import PHASES

MARKS = (1, 10, 50, 90)
_MOST_POINTS = 512


class Progress:
    """Results of each phase, and points (rows arrived, nanoseconds, results) at most 512 of them, evenly thinned."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._start_ns = clock, clock.now_ns()
        self.arrived = 0
        self.results = dict.fromkeys(PHASES, 0)
        self._points: list[tuple[int, int, int]] = []
        self._every, self._skipped = 1, 0

    @property
    def total(self) -> int:
        """Results so far."""
        return sum(self.results.values())

    def gave(self, phase: str, n: int) -> None:
        """So many results went out."""
        self.results[phase] += n
        self._skipped += 1
        if self._skipped >= self._every:
            self._skipped = 0
            self._points.append((self.arrived, self._clock.now_ns() - self._start_ns, self.total))
            if len(self._points) > _MOST_POINTS:
                self._points = self._points[1::2]
                self._every *= 2

    def marks(self) -> dict[int, tuple[int, int]]:
        """For 1, 10, 50 and 90 % of the results so far: rows arrived and nanoseconds when they had come."""
        total = self.total
        now = (self.arrived, self._clock.now_ns() - self._start_ns, total)
        found = {}
        for mark in MARKS if total else ():
            point = next((p for p in self._points if p[2] * 100 >= mark * total), now)
            found[mark] = point[0], point[1]
        return found

    def record(self, metrics: Metrics) -> None:
        """Write the marks down."""
        for mark, (arrived, ns) in self.marks().items():
            metrics.peak(f"arrivals_to_{mark}_percent", arrived, unit="rows")
            metrics.peak(f"time_to_{mark}_percent", ns, unit="ns")
