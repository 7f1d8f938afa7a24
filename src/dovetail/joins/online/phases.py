"""The three phases of an online join: when it must give control back, and how early its results came."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.engine.clock import Clock
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError

ARRIVING, REACTIVE, CLEANUP = "arriving", "reactive", "cleanup"
PHASES = (ARRIVING, REACTIVE, CLEANUP)
PHASE_COLUMN = "_phase"
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
        """Results went out."""
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
        """Write down the results of each phase, and the marks."""
        for phase, n in self.results.items():
            metrics.add(f"results_{phase}", n)
        for mark, (arrived, ns) in self.marks().items():
            metrics.peak(f"arrivals_to_{mark}_percent", arrived, unit="rows")
            metrics.peak(f"time_to_{mark}_percent", ns, unit="ns")


class Handover:
    """What a host passes to `idle`: true once more than `max_new_arrivals` rows wait in its input buffer.

    Going back for a single row would cost more than it brings. Remembers the largest number of rows seen waiting.

    >>> handover = Handover(lambda: 1001, max_new_arrivals=1000)
    >>> handover(), handover.largest
    (True, 1001)
    """

    def __init__(self, waiting: Callable[[], int], max_new_arrivals: int = 1000) -> None:
        if max_new_arrivals < 0:
            raise PlanError(f"max_new_arrivals={max_new_arrivals} is not possible; give 0 or more rows.")
        self._waiting, self.max_new_arrivals = waiting, max_new_arrivals
        self.largest = 0

    def __call__(self) -> bool:
        """Whether to go back to the arriving rows now."""
        waiting = self._waiting()
        self.largest = max(self.largest, waiting)
        return waiting > self.max_new_arrivals


class Asked:
    """Another `until` that is asked after each unit of work, with the longest time between two questions.

    >>> from dovetail.engine.clock import RealClock
    >>> asked = Asked(lambda: True, RealClock())
    >>> asked(), asked.longest_ns >= 0
    (True, True)
    """

    def __init__(self, until: Callable[[], bool], clock: Clock) -> None:
        self._until, self._clock, self._last = until, clock, clock.now_ns()
        self.longest_ns = 0

    def __call__(self) -> bool:
        """What the other one says."""
        now = self._clock.now_ns()
        self.longest_ns, self._last = max(self.longest_ns, now - self._last), now
        return self._until()

    def record(self, metrics: Metrics) -> None:
        """Write down the hand-over delay, and the rows that waited meanwhile where they were counted."""
        metrics.peak("handover_delay", self.longest_ns, unit="ns")
        if isinstance(self._until, Handover):
            metrics.peak("input_buffer", self._until.largest, unit="rows")
