"""How fast a stream gives its rows in real time: evenly, or as one of the arrival processes says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dovetail.workloads.arrivals import Arrivals
from dovetail.workloads.blocks import BLOCK_ROWS, I64


class Pace(Protocol):
    """Tells how far a stream has come."""

    def arrived(self, first: int, seconds: float) -> int:
        """Rows that have arrived so long after row `first` did; a stream that starts again goes on from its row."""
        ...


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All rows are there from the start."""

    rows: int

    def arrived(self, first: int, seconds: float) -> int:
        """All of them."""
        return self.rows


@dataclass(frozen=True, slots=True)
class Steady:
    """So many rows a second."""

    rows: int
    rows_per_second: float

    def arrived(self, first: int, seconds: float) -> int:
        """The share of the time."""
        return min(self.rows, first + int(seconds * self.rows_per_second))


@dataclass(frozen=True, slots=True)
class Drawn:
    """At the times of an arrival process, which the seed fixes."""

    rows: int
    arrivals: Arrivals
    seed: int
    _passed: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    def arrived(self, first: int, seconds: float) -> int:
        """Every row whose time is not after that of row `first` plus the time since.

        Blocks that have arrived whole since `first` are not drawn again, so asking costs the same however long the
        stream has run.
        """
        if first >= self.rows:
            return self.rows
        began, block = self._start(first, int(seconds * 1e6))
        until = began + int(seconds * 1e6)
        while True:
            start, times = block * BLOCK_ROWS, self._times(block)
            row = start + int(np.searchsorted(times, until, side="right"))
            if row < start + len(times) or row >= self.rows:
                self._passed[first] = (began, block)
                return max(first, row)
            block += 1

    def _start(self, first: int, elapsed_us: int) -> tuple[int, int]:
        """The time of row `first`, and a block before which everything has arrived."""
        if first in self._passed:
            began, block = self._passed[first]
            if int(self._times(block)[0]) <= began + elapsed_us:
                return began, block
        block = first // BLOCK_ROWS
        return int(self._times(block)[first % BLOCK_ROWS]), block

    def _times(self, block: int) -> I64:
        count = min(BLOCK_ROWS, self.rows - block * BLOCK_ROWS)
        return self.arrivals.times_us(self.seed, "pace", block, count, self.rows)
