"""Arrival times of rows, in virtual time: evenly, as a Poisson process with source delays, or in bursts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from dovetail.workloads.blocks import BLOCK_ROWS, F64, I64, generator, require, require_count, require_seed, whole
from dovetail.workloads.options import parse_call


class Arrivals(Protocol):
    """A process that gives every row number its time; times never decrease."""

    def times_us(self, seed: int, purpose: str, block: int, n: int, rows: int) -> I64:
        """Microseconds from the start, for the first n rows of one block of a stream of `rows` rows."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """One row every gap_us microseconds."""

    gap_us: float = 1000.0

    def __post_init__(self) -> None:
        require(self.gap_us >= 0, f"gap_us must not be negative; it is {self.gap_us}.")

    def times_us(self, seed: int, purpose: str, block: int, n: int, rows: int) -> I64:
        """Row r arrives at r * gap_us."""
        return whole((block * BLOCK_ROWS + np.arange(n, dtype=np.float64)) * self.gap_us)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Exponential gaps of mean gap_us. With `fragments` and `delay`, the source pauses after each fragment.

    The rows are cut into that many fragments of equal size; after each one nothing arrives for `delay` times the time
    that the fragment took (0.1 to 0.5 in the experiments). So with delays, times depend on the total number of rows.
    The source gives no unit for the gaps; its periods of 10 s for 10,000 rows mean 1 ms.
    Reference: Bornea 2010, 5.3; docs/algorithms/online.md, 6.1.
    """

    gap_us: float = 1000.0
    fragments: int = 1
    delay: float = 0.0

    def __post_init__(self) -> None:
        require(self.gap_us > 0, f"gap_us must be positive; it is {self.gap_us}.")
        require_count("fragments", self.fragments, 1)
        require(self.delay >= 0, f"delay must not be negative; it is {self.delay}.")

    def times_us(self, seed: int, purpose: str, block: int, n: int, rows: int) -> I64:
        """Every pause is a share of the time before it, so all pauses before a fragment are that share of its start."""
        times = self._undelayed(seed, purpose, block)[:n]
        if self.delay and self.fragments > 1:
            size = -(-rows // self.fragments)
            fragment = (block * BLOCK_ROWS + np.arange(n)) // size
            for number in np.unique(fragment[fragment > 0]):
                times[fragment == number] += self.delay * self._time_of(seed, purpose, int(number) * size - 1)
        return whole(times)

    def _undelayed(self, seed: int, purpose: str, block: int) -> F64:
        """A block of a Poisson process takes a Gamma-distributed time, whatever the relative gaps inside it are.

        So one draw for each earlier block gives the start of this one, and the blocks themselves stay independent.
        """
        spans = _block_spans(seed, purpose, 1 << block.bit_length())
        gaps = generator(seed, f"{purpose} gaps", block).standard_exponential(BLOCK_ROWS)
        inside = np.cumsum(gaps)
        times: F64 = (float(spans[:block].sum()) + inside * (spans[block] / inside[-1])) * self.gap_us
        return times

    def _time_of(self, seed: int, purpose: str, row: int) -> float:
        return float(self._undelayed(seed, purpose, row // BLOCK_ROWS)[row % BLOCK_ROWS])


@lru_cache(maxsize=64)
def _block_spans(seed: int, purpose: str, blocks: int) -> F64:
    return generator(seed, f"{purpose} spans").standard_gamma(BLOCK_ROWS, blocks)


@dataclass(frozen=True, slots=True)
class Bursty:
    """Bursts over time scales from 2 to 2^sources steps: on/off sources, source i giving 2^i rows per step while on.

    A source stays on or off for a uniform part of 2^i steps. The rows of a step are spread evenly over it; the mean is
    2^sources - 1 rows per step, the most 2^(sources+1) - 2.
    Corrected: each source has its own state, and none is lost.
    Reference: Naeem 2012, figure 5.4, lines 1 to 27; docs/algorithms/semistream.md, 4.2.
    """

    step_us: int = 1_000_000
    sources: int = 10

    def __post_init__(self) -> None:
        require_count("step_us", self.step_us, 1)
        require(1 <= self.sources <= 30, f"sources must be from 1 to 30, not {self.sources}.")

    def times_us(self, seed: int, purpose: str, block: int, n: int, rows: int) -> I64:
        """A row's step is where the running total passes its number; its place within the step follows."""
        numbers = block * BLOCK_ROWS + np.arange(n, dtype=np.int64)
        counts, totals = _steps_for(seed, purpose, self.sources, block * BLOCK_ROWS + n)
        step = np.searchsorted(totals, numbers, side="right").astype(np.int64)
        place = numbers - (totals[step] - counts[step])
        within: I64 = np.floor_divide(place * self.step_us, counts[step])
        return step * self.step_us + within


def bursty_counts(steps: int, seed: int, sources: int = 10, purpose: str = "arrival") -> I64:
    """Rows per step of the bursty process; fewer steps are a prefix of more steps."""
    require_count("steps", steps, 1)
    require_seed(seed)
    clock = np.arange(steps, dtype=np.float64)
    total = np.zeros(steps, dtype=np.int64)
    for source in range(1, sources + 1):
        switches = np.searchsorted(switch_times(seed, purpose, source, steps), clock, side="right")
        total += (switches % 2) << source
    return total


def switch_times(seed: int, purpose: str, source: int, until: int) -> F64:
    """When one source switches, in steps, up to the first switch after `until`; it starts off."""
    n = 16 + 3 * until // (1 << source)
    while True:
        waits = (1.0 - generator(seed, f"{purpose} source {source}").random(n)) * (1 << source)
        times = np.cumsum(waits)
        if times[-1] > until:
            return times
        n *= 2


def _steps_for(seed: int, purpose: str, sources: int, rows: int) -> tuple[I64, I64]:
    """Counts and running totals of enough steps for `rows` rows."""
    steps = 1024
    while True:
        counts, totals = _totals(seed, purpose, sources, steps)
        if totals[-1] >= rows:
            return counts, totals
        steps *= 2


@lru_cache(maxsize=32)
def _totals(seed: int, purpose: str, sources: int, steps: int) -> tuple[I64, I64]:
    counts = bursty_counts(steps, seed, sources, purpose)
    return counts, np.cumsum(counts)


ARRIVALS: dict[str, Callable[..., Arrivals]] = {"constant": Constant, "poisson": Poisson, "bursty": Bursty}


def parse_arrivals(text: str) -> Arrivals:
    """Arrivals from text: "constant(1000)", "poisson(1000, 10, 0.2)", "bursty(1000000, 10)"; microseconds first.

    >>> parse_arrivals("poisson(1000, 10, 0.2)")
    Poisson(gap_us=1000, fragments=10, delay=0.2)
    """
    return parse_call(text, ARRIVALS)
