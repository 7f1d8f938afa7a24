"""How fast a stream gives its rows in real time: evenly, or as one of the arrival processes says."""

from __future__ import annotations

from dataclasses import dataclass
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

    def arrived(self, first: int, seconds: float) -> int:
        """Every row whose time is not after that of row `first` plus the time since; block by block from there."""
        if first >= self.rows:
            return self.rows
        block = first // BLOCK_ROWS
        until = int(self._times(block)[first % BLOCK_ROWS]) + int(seconds * 1e6)
        while True:
            start, times = block * BLOCK_ROWS, self._times(block)
            row = start + int(np.searchsorted(times, until, side="right"))
            if row < start + len(times) or row >= self.rows:
                return max(first, row)
            block += 1

    def _times(self, block: int) -> I64:
        count = min(BLOCK_ROWS, self.rows - block * BLOCK_ROWS)
        return self.arrivals.times_us(self.seed, "pace", block, count, self.rows)
