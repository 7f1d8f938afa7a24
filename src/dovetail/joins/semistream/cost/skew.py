"""How skewed a stream is, from a sample of its keys: the exponent, and the share that a cache of any size answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Distribution, Empirical, Law, Zipf, cached_share, rank_groups

_LARGEST = 3.0
_COUNTED = 24  # keys seen more often than this are one class by doubling
_LIKELY = 2.0  # fall of the log-likelihood at the ends of the interval: about 95 %
_FITS = 4.0  # mean squared deviation of the counts, in variances, up to which a power law is believed


@dataclass(frozen=True, slots=True)
class SkewEstimate:
    """The power law that explains a sample best, and the sample itself.

    `exponent` lies between `low` and `high` with some 95 % certainty. `fits` says whether the sample looks like a power
    law at all; `distribution` is that law if so, and else what the sample had.
    """

    exponent: float
    low: float
    high: float
    law: Law
    fits: bool
    sample_rows: int
    distinct: int
    distribution: Distribution

    def p_n(self, cached: int) -> float:
        """The share of the stream that the `cached` most wanted rows answer."""
        return cached_share(self.distribution, cached)

    def explain(self) -> str:
        """The estimate in one line."""
        shape = f"exponent {self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})" if self.fits else "no power law"
        return f"skew: {shape}, from {self.sample_rows:,} keys, {self.distinct:,} of them different"


def estimate_skew(keys: I64, master_rows: int) -> SkewEstimate:
    """The skew behind a sample of stream keys in no special order, for master data of `master_rows` rows.

    No rank of a key is needed, which a sample shows only for the most wanted ones. What is compared is how many keys
    the sample has once, twice, and so on: of ranks with shares p, sum of Poisson(k; n p) keys are expected k times.
    Reference: docs/algorithms/semistream.md, 3.10.
    """
    if keys.size < 2:
        raise PlanError(f"a sample of {keys.size} keys was given; give at least 2 to estimate skew.")
    if np.unique(keys).size > master_rows:
        raise PlanError(f"the sample has more different keys than master data has rows, {master_rows:,}.")
    counts = np.unique(keys, return_counts=True)[1]
    seen = _spectrum(counts)
    integral, discrete = (_fit(seen, keys.size, master_rows, law) for law in ("integral", "discrete"))
    best = max(integral, discrete, key=lambda fit: fit.likelihood)
    law = Zipf(master_rows, best.exponent, best.law)
    fits = _deviation(seen, expected_spectrum(law, keys.size)) <= _FITS
    return SkewEstimate(
        best.exponent,
        best.low,
        best.high,
        best.law,
        fits,
        int(keys.size),
        int(counts.size),
        law if fits else Empirical.of_sample(keys, master_rows),
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    exponent: float
    low: float
    high: float
    likelihood: float
    law: Law


def _fit(seen: F64, n: int, rows: int, law: Law) -> _Fit:
    """The likeliest exponent, on a grid that is narrowed around the best point, and where the likelihood falls off."""

    def likelihood(exponent: float) -> float:
        expected = np.maximum(expected_spectrum(Zipf(rows, exponent, law), n, seen.size), 1e-12)
        return float(np.sum(seen * np.log(expected) - expected))

    centre, width = _LARGEST / 2, _LARGEST / 2
    while width > 5e-4:
        points = np.clip(np.linspace(centre - width, centre + width, 13), 0.0, _LARGEST)
        values = [likelihood(float(point)) for point in points]
        best = int(np.argmax(values))
        centre, width = float(points[best]), width / 5
    top = likelihood(centre)
    low, high = (_end(lambda e: likelihood(e) > top - _LIKELY, centre, sign) for sign in (-1, 1))
    return _Fit(centre, low, high, top, law)


def _end(likely: Callable[[float], bool], centre: float, sign: int) -> float:
    """Where the exponent stops being likely in one direction."""
    width = 1e-3
    while 0 < centre + sign * width < _LARGEST and likely(centre + sign * width):
        width *= 1.25
    return min(max(0.0, centre + sign * width), _LARGEST)


def _bounds(classes: int) -> list[int]:
    """The first count of each class: 1, 2, ... then doubling."""
    exact = list(range(1, min(classes, _COUNTED) + 1))
    return exact + [_COUNTED * 2**i + 1 for i in range(classes - len(exact))]


def _spectrum(counts: I64) -> F64:
    """How many keys were seen 1, 2, 3 ... times, then in classes that double."""
    largest = int(counts.max())
    classes = min(largest, _COUNTED) + max(0, math.ceil(math.log2(max(largest / _COUNTED, 1.0))))
    edges = np.array([*_bounds(classes), np.iinfo(np.int64).max])
    return np.histogram(counts, edges)[0].astype(np.float64)


def expected_spectrum(distribution: Distribution, n: int, classes: int | None = None) -> F64:
    """How many keys a sample of n should have once, twice, ... as `_spectrum` counts them."""
    count, wanted = rank_groups(distribution)
    mean = np.maximum(n * wanted, 1e-300)[:, None]
    classes = classes or _COUNTED
    firsts = np.array(_bounds(classes), np.float64)
    exact = min(classes, _COUNTED)
    k = firsts[:exact]
    chance = np.exp(k * np.log(mean) - mean - _log_factorials(exact))
    if classes > exact:
        reached = 1 / (1 + np.exp(-1.702 * np.clip((mean - firsts[exact:] + 0.5) / np.sqrt(mean), -40, 40)))
        beyond = np.concatenate([reached[:, 1:], np.zeros_like(mean)], axis=1)
        chance = np.concatenate([chance, np.maximum(0.0, reached - beyond)], axis=1)
    spectrum: F64 = (count[:, None] * chance).sum(axis=0)
    return spectrum


def _log_factorials(n: int) -> F64:
    return np.cumsum(np.log(np.arange(1.0, n + 1)))


def _deviation(seen: F64, expected: F64) -> float:
    """The mean squared deviation of well filled classes, in variances; for the head of the spectrum."""
    m = min(seen.size, expected.size)
    filled = np.maximum(seen[:m], expected[:m]) >= 5
    off = (seen[:m] - expected[:m])[filled] ** 2 / np.maximum(expected[:m][filled], 1.0)
    return float(off.mean()) if off.size else 0.0
