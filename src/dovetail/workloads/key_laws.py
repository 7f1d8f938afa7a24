"""How join keys are distributed and ordered in the two-relation experiments of the online joins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from dovetail.workloads.blocks import BLOCK_ROWS, F64, I64, generator, require, require_count, whole
from dovetail.workloads.zipf import ZipfLaw


class KeyLaw(Protocol):
    """A sequence of keys; the purpose tells the sides of a join apart."""

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """The first n keys of one block."""
        ...


def nearest_whole(values: F64) -> I64:
    """Each value rounded to the nearest whole number: equality joins need values that can be equal."""
    return whole(np.rint(values))


@dataclass(frozen=True, slots=True)
class NormalKeys:
    """Normal values rounded to whole numbers."""

    mean: float = 500.0
    variance: float = 50.0

    def __post_init__(self) -> None:
        require(self.variance > 0, f"variance must be positive; it is {self.variance}.")

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Independent draws."""
        z = generator(seed, f"{purpose} normal", block).standard_normal(n)
        return nearest_whole(self.mean + z * np.sqrt(self.variance))


@dataclass(frozen=True, slots=True)
class MovingMean:
    """Normal values whose mean moves up by `shift` from period to period; a period is an equal part of the rows."""

    rows: int
    shift: float
    mean: float = 75.0
    variance: float = 15.0
    periods: int = 10

    def __post_init__(self) -> None:
        require_count("periods", self.periods, 1)
        require(self.variance > 0, f"variance must be positive; it is {self.variance}.")

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """In period i = 1, 2, ... the mean is mean + i * shift."""
        z = generator(seed, f"{purpose} normal", block).standard_normal(n)
        period = 1 + (block * BLOCK_ROWS + np.arange(n)) * self.periods // max(1, self.rows)
        return nearest_whole(self.mean + period * self.shift + z * np.sqrt(self.variance))


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """Zipf values, sorted, cut into `runs` equal pieces whose order is shuffled.

    Only how often each value occurs is drawn (as one multinomial), so any block can be made without sorting the rest.
    """

    rows: int
    runs: int
    domain: int = 999
    exponent: float = 1.0

    def __post_init__(self) -> None:
        require_count("runs", self.runs, 1)

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Ascending inside a run."""
        counts = _value_counts(self.rows, self.domain, self.exponent, seed, purpose)
        edges = self.rows * np.arange(self.runs + 1) // self.runs
        order = generator(seed, f"{purpose} runs").permutation(self.runs)
        ends = np.cumsum(np.diff(edges)[order])
        row = block * BLOCK_ROWS + np.arange(n)
        run = np.searchsorted(ends, row, side="right")
        sorted_row = edges[order[run] + 1] - (ends[run] - row)
        return np.searchsorted(np.cumsum(counts), sorted_row, side="right").astype(np.int64) + 1


@lru_cache(maxsize=16)
def _value_counts(rows: int, domain: int, exponent: float, seed: int, purpose: str) -> I64:
    law = ZipfLaw(domain, exponent)
    shares = np.diff([law.share(k) for k in range(domain + 1)])
    return generator(seed, f"{purpose} counts").multinomial(rows, shares / shares.sum())


@dataclass(frozen=True, slots=True)
class StockPrices:
    """Prices in cents: one random walk that both sides follow, each trade with its own noise."""

    rows: int
    step: float = 0.35
    noise: float = 3.0
    opening: float = 2_000.0

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Rounded to whole cents."""
        first = block * BLOCK_ROWS
        walk = _walk(self.rows, seed)[first : first + n] * self.step
        z = generator(seed, f"{purpose} noise", block).standard_normal(n)
        return nearest_whole(self.opening + walk + z * self.noise)


@lru_cache(maxsize=8)
def _walk(rows: int, seed: int) -> F64:
    return np.cumsum(generator(seed, "walk").standard_normal(rows))


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Air temperature in tenths of a degree in three years: a yearly and a daily sine, and lasting weather (AR(1))."""

    rows: int
    shift: float = 0.0
    years: float = 3.0

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Rounded to tenths; `shift` moves the seasons by that part of a year."""
        first = block * BLOCK_ROWS
        year = (first + np.arange(n)) * (self.years / max(1, self.rows))
        seasons = 100.0 * np.sin(2 * np.pi * (year + self.shift)) + 60.0 * np.sin(2 * np.pi * 365.0 * year)
        weather = _persistent(self.rows, 0.995, 2.0, seed, purpose)[first : first + n]
        return nearest_whole(150.0 + seasons + weather)


@lru_cache(maxsize=8)
def _persistent(rows: int, memory: float, sd: float, seed: int, purpose: str) -> F64:
    """AR(1): each value is `memory` times the last one plus normal noise; it starts at 0."""
    noise = generator(seed, f"{purpose} weather").standard_normal(rows) * sd
    out = np.empty(rows)
    chunk, last = 4096, 0.0  # memory**-4096 stays far from overflow
    powers = memory ** np.arange(1, chunk + 1)
    for first in range(0, rows, chunk):
        part = noise[first : first + chunk]
        decay = powers[: part.size]
        out[first : first + chunk] = decay * (np.cumsum(part / decay) + last)
        last = float(out[first + part.size - 1])
    return out
