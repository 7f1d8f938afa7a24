"""Clocks that can be passed in: the machine's, or a virtual one that moves only when it is advanced."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Clock(Protocol):
    """A clock for durations; its zero point has no meaning."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed moment; never decreases."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds of the machine's monotonic high-resolution clock."""
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        if seconds > 0:
            time.sleep(seconds)


class VirtualClock:
    """A clock that stands still until it is advanced, so that a run gives the same times on every machine.

    >>> clock = VirtualClock()
    >>> clock.sleep(0.5); clock.advance(0.25); clock.now_ns()
    750000000
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """Nanoseconds that this clock was advanced by, from its start."""
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """Advance at once, without waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; time never runs backwards."""
        self.advance_ns(round(seconds * 1e9))

    def advance_ns(self, nanoseconds: int) -> None:
        """Let whole nanoseconds pass, exactly."""
        if nanoseconds < 0:
            raise ValueError(f"a clock cannot go back by {-nanoseconds} ns.")
        self._now_ns += nanoseconds


def queued_ns() -> int:
    """Nanoseconds for which this thread was ready to run but had no processor; 0 where the system does not report
    it."""
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(file, 100).split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        os.close(file)
