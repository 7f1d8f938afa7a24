"""The three phases of an online join, and the moment at which it must give control back."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.engine.clock import Clock
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError

ARRIVING, REACTIVE, CLEANUP = "arriving", "reactive", "cleanup"
PHASES = (ARRIVING, REACTIVE, CLEANUP)
PHASE_COLUMN = "_phase"


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
