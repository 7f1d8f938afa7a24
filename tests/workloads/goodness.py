"""Measures how a sample fits a law: p-values, with rare values pooled so that the chi-square approximation holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

ENOUGH = 1e-5
"""A right law gives any p-value equally often, so some two hundred tests need a bound far below 1 in 200.

What the bound still notices is tested beside each law: one that is a little off falls below it.
"""


def chi_square_p(sample: I64, probability: F64, first: int = 0) -> float:
    """p-value of whole numbers first, first + 1, ... against their probabilities; 0 if there are any others."""
    place = sample - first
    if place.min() < 0 or place.max() >= probability.size:
        return 0.0
    observed = np.bincount(place, minlength=probability.size).astype(np.float64)
    expected = probability / probability.sum() * sample.size
    bins = _pooled(expected)
    o, e = np.add.reduceat(observed, bins), np.add.reduceat(expected, bins)
    return float(stats.chisquare(o, e).pvalue) if o.size > 1 else 1.0


def _pooled(expected: F64) -> npt.NDArray[np.intp]:
    """Starts of bins that each expect at least ten; the last one takes what is left over."""
    starts, held = [0], 0.0
    for place, value in enumerate(expected):
        if held >= 10:
            starts.append(place)
            held = 0.0
        held += value
    if held < 10 and len(starts) > 1:
        starts.pop()
    return np.array(starts)


def ks_p(sample: F64, cdf: Callable[[F64], F64]) -> float:
    """Kolmogorov-Smirnov p-value of a continuous sample."""
    return float(stats.kstest(sample, cdf).pvalue)


def rounded_normal(first: int, last: int, mean: float, variance: float) -> F64:
    """Probabilities of first..last for a normal value rounded to the nearest whole number."""
    edges = np.arange(first, last + 2) - 0.5
    return np.diff(stats.norm.cdf(edges, mean, np.sqrt(variance)))
