"""The three phases of an online join, and the moment at which it must give control back."""

from __future__ import annotations

from collections.abc import Callable

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
