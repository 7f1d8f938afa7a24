"""Models how often master rows are requested: power laws, samples, shares of segments, and the skew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, Protocol

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64
from dovetail.errors import PlanError

Share = Callable[[F64], F64]
"""The share of the stream that asks for the rows up to each rank, most requested first; ranks may be fractional."""

_EXACT_SEGMENTS = 32  # most requested segments, each a group of its own

_GROWTH = 1.12  # how much longer each later group is than the one before

_PER_E_FOLD = 8  # groups of segments whose shares lie within a factor e

_DRAWN = 2**16  # rows of a shuffle that are placed one by one; the rest is spread evenly


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Groups of segments: `count` of them, each asked for by `share` of the stream tuples that reach storage.

    The shares of all segments add to 1, unless nothing reaches storage; segments that no tuple asks for are in
    `n_segments` only.
    """

    count: F64
    share: F64
    n_segments: int

    def without_top(self, n: int) -> tuple[float, Demand]:
        """The share of the stream that asks for the n most requested segments, and the other segments."""
        order = np.argsort(-self.share, kind="stable")
        count, share = self.count[order], self.share[order]
        taken = np.minimum(count, np.maximum(0.0, n - (np.cumsum(count) - count)))
        left = count - taken
        some = left > 0
        rest = _asked(left[some], share[some], max(0, self.n_segments - n))
        return float(np.sum(taken * share)), rest


def in_frequency_order(share: Share, rows: int, segment_rows: int, cached: int = 0, bend: int = 0) -> Demand:
    """Demand of rows stored most requested first, without the first `cached` ones, which never reach storage.

    Groups do not cross `bend`, a rank at which shares drop.
    """
    n = _n_segments(rows - cached, segment_rows)
    edges = np.unique(np.append(_group_edges(n), np.clip(-(-(bend - cached) // segment_rows), 0, n)))
    ranks = np.minimum(cached + edges * float(segment_rows), float(rows))
    mass = np.diff(share(ranks))
    count = np.diff(edges).astype(np.float64)
    return _asked(count, mass / count, n)


@lru_cache(maxsize=256)
def shuffled(share: Share, rows: int, segment_rows: int, cached: int = 0) -> Demand:
    """Demand of rows stored in no order, without the `cached` most requested ones, which never reach storage.

    The shuffle is random, and the same every time. The most requested rows are dealt to the segments one by one,
    equally many to each; rarer rows are spread evenly.
    """
    n = _n_segments(rows, segment_rows)
    drawn = min(rows - cached, max(_DRAWN, n))
    heavy = np.diff(share(cached + np.arange(drawn + 1.0)))
    tail = share(np.array([cached + drawn, rows], np.float64))
    return grouped(np.bincount(_shuffle(drawn) % n, heavy, n) + (tail[1] - tail[0]) / n)


@lru_cache(maxsize=4)
def _shuffle(rows: int) -> I64:
    """A random permutation of the numbers below `rows`, the same one every time."""
    return np.random.default_rng(0).permutation(rows)


def grouped(shares: F64) -> Demand:
    """Groups the given segments by their share; shares need not add to 1."""
    asked = shares[shares > 0]
    if not asked.size:
        return _asked(np.zeros(0), np.zeros(0), shares.size)
    bins = np.round(np.log(asked) * _PER_E_FOLD).astype(np.int64)
    bins -= bins.min()
    count = np.bincount(bins).astype(np.float64)
    some = count > 0
    return _asked(count[some], np.bincount(bins, asked)[some] / count[some], shares.size)


def _n_segments(rows: int, segment_rows: int) -> int:
    if segment_rows < 1 or rows < 0:
        raise PlanError(
            f"{rows} rows in segments of {segment_rows} rows were given; rows cannot be fewer than the cached ones, "
            f"and a segment has at least 1 row."
        )
    return -(-rows // segment_rows)


def _group_edges(n: int) -> F64:
    if n <= _EXACT_SEGMENTS:
        return np.arange(n + 1.0)
    steps = int(np.ceil(np.log(n / _EXACT_SEGMENTS) / np.log(_GROWTH)))
    rest = np.round(np.geomspace(_EXACT_SEGMENTS, n, steps + 1))
    return np.unique(np.concatenate([np.arange(_EXACT_SEGMENTS), rest]))


def _asked(count: F64, share: F64, n: int) -> Demand:
    used = share > 0
    whole = float(np.sum(count * share))
    return Demand(count[used], share[used] / whole if whole else share[used], n)


Law = Literal["integral", "discrete"]

_NEAR_ONE = 1e-9  # closer to exponent 1 than this, the power law's integral is taken as the logarithm

_SUMMED = 4096  # terms of a discrete law that are added one by one

_TERMS: Final = np.arange(_SUMMED + 1.0)


class Distribution(Protocol):
    """The shares of the stream that ask for rows, by rank; rank 1 is the most requested row."""

    @property
    def rows(self) -> int:
        """Rows of the master data, R_t."""
        ...

    def share(self, ranks: F64) -> F64:
        """p_N: the share of the stream that asks for the rows up to each rank; ranks may be fractional."""
        ...

    def segments(self, segment_rows: int, *, ordered: bool, cached: int = 0) -> Demand:
        """The p_i of segments of `segment_rows` rows, among tuples that the `cached` most requested rows do not answer.

        `ordered`: rows are stored most requested first, and the cached ones are in no segment. Otherwise rows are
        stored in the order that the distribution knows, or in none.
        """
        ...


def cached_share(distribution: Distribution, cached: int) -> float:
    """p_N: the share of the stream that the `cached` most requested rows answer."""
    return float(distribution.share(np.array([float(cached)]))[0])


@dataclass(frozen=True, slots=True)
class Zipf:
    """Rank r is requested in proportion to r^-exponent; exponent 0 is uniform.

    "integral" is the power law of the source's generator, continuous and cut into unit steps: rank r has the integral
    from r to r + 1, and p_N of the first k ranks is F(k + 1) / F(rows + 1), exact for streams made so. "discrete" is
    Zipf's own law, whose head is heavier.
    Reference: Naeem 2012, 5.3 and figure 5.4, made general in the exponent; docs/algorithms/semistream.md, 4.1.

    >>> round(cached_share(Zipf(2_000_000, 1.0), 16_000), 3)
    0.667
    """

    rows: int
    exponent: float = 1.0
    law: Law = "integral"

    def __post_init__(self) -> None:
        if self.rows < 1 or not 0 <= self.exponent < float("inf"):
            raise PlanError(
                f"a Zipf distribution over {self.rows} rows with exponent {self.exponent} was given; there must be a "
                f"row, and the exponent is finite and not negative."
            )
        if self.law not in ("integral", "discrete"):
            raise PlanError(f"law {self.law!r} was given; it is 'integral' or 'discrete'.")

    def share(self, ranks: F64) -> F64:
        """The share of the stream that asks for the rows up to each rank."""
        inside = np.clip(np.asarray(ranks, np.float64), 0.0, float(self.rows))
        if self.law == "integral":
            return power_area(inside + 1.0, self.exponent) / power_area(np.float64(self.rows + 1.0), self.exponent)
        return power_sum(inside, self.exponent) / power_sum(np.array([float(self.rows)]), self.exponent)

    def segments(self, segment_rows: int, *, ordered: bool, cached: int = 0) -> Demand:
        """The p_i of segments; rows that are not ordered are taken as shuffled."""
        place = in_frequency_order if ordered else shuffled
        return place(self.share, self.rows, segment_rows, min(cached, self.rows))


def uniform(rows: int) -> Zipf:
    """Every row is requested equally often."""
    return Zipf(rows, 0.0)


def power_area(x: F64 | np.float64, exponent: float) -> F64:
    """The integral of t^-exponent from 1 to x, continuous through exponent 1."""
    g = 1.0 - exponent
    area: F64 = np.log(x) if abs(g) < _NEAR_ONE else np.expm1(g * np.log(x)) / g
    return area


def power_sum(n: F64, exponent: float) -> F64:
    """The sum of i^-exponent for i up to n: the head term by term, the tail by Euler and Maclaurin; between, a line."""
    head = _head_sums(exponent)
    near = np.interp(n, _TERMS, head)
    m, k = float(_SUMMED), np.maximum(n, _SUMMED)
    area = power_area(k, exponent) - power_area(np.float64(m), exponent)
    slope = -exponent * (k ** (-exponent - 1) - m ** (-exponent - 1)) / 12
    far: F64 = head[-1] + area + (k**-exponent - m**-exponent) / 2 + slope
    return np.where(n <= _SUMMED, near, far)


@lru_cache(maxsize=32)
def _head_sums(exponent: float) -> F64:
    """The sums of the first 0, 1, 2 ... terms."""
    sums: F64 = np.concatenate([[0.0], np.cumsum(_TERMS[1:] ** -exponent)])
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class Empirical:
    """Key frequencies of a sample; the share of unseen keys is spread evenly over the other rows.

    The share left to unseen rows is the share of keys that the sample had once (Good and Turing), taken from all seen
    keys alike, so that those seen often keep theirs. `wanted` are the shares of the seen keys, most requested first.
    Rows that are not in order of frequency are taken as shuffled.
    """

    rows: int
    wanted: F64

    def __post_init__(self) -> None:
        if self.rows < max(1, self.wanted.size):
            raise PlanError(f"{self.wanted.size} keys were seen in master data of {self.rows} rows; give all its rows.")
        if self.wanted.size and (self.wanted.min() < 0 or self.wanted.sum() > 1 + 1e-9):
            raise PlanError("the shares of seen keys must not be negative, nor add to more than 1.")

    @classmethod
    def of_sample(cls, keys: I64, rows: int) -> Empirical:
        """The distribution behind a sample of stream keys.

        Keys are codes: equal codes are equal keys. Leave out keys that the master data does not have.
        """
        if keys.size == 0:
            return cls(rows, np.zeros(0))
        counts = np.sort(np.unique(keys, return_counts=True)[1])[::-1]
        discount = np.count_nonzero(counts == 1) / counts.size if counts.size < rows else 0.0
        return cls(rows, (counts - discount) / keys.size)

    @property
    def unseen(self) -> float:
        """The share of the stream that asks for rows which the sample did not see."""
        return max(0.0, 1.0 - float(self.wanted.sum()))

    def share(self, ranks: F64) -> F64:
        """The share of the stream that asks for the rows up to each rank; unseen rows rank last."""
        curve = np.concatenate([[0.0], np.cumsum(self.wanted)])
        inside = np.clip(np.asarray(ranks, np.float64), 0.0, float(self.rows))
        seen: F64 = np.interp(inside, np.arange(curve.size, dtype=np.float64), curve)
        others = self.rows - self.wanted.size
        if not others:
            return seen / (curve[-1] or 1.0)
        rest: F64 = self.unseen * np.maximum(0.0, inside - self.wanted.size) / others
        return seen + rest

    def segments(self, segment_rows: int, *, ordered: bool, cached: int = 0) -> Demand:
        """The p_i of segments; rows that are not ordered are taken as shuffled."""
        cached = min(cached, self.rows)
        if ordered:
            return in_frequency_order(self.share, self.rows, segment_rows, cached, bend=self.wanted.size)
        return shuffled(self.share, self.rows, segment_rows, cached)


_EXACT_RANKS = 200

_GROUPS = 400


def rank_groups(distribution: Distribution) -> tuple[F64, F64]:
    """Groups of ranks, most requested first: the size of each group, and the share of the stream per rank."""
    edges, count = _rank_edges(distribution.rows)
    wanted: F64 = np.diff(distribution.share(edges)) / count
    return count, wanted


def seen_share(distribution: Distribution, rows: int) -> float:
    """The share of the stream whose key occurs among the `rows` tuples before it."""
    count, wanted = rank_groups(distribution)
    return float(np.sum(count * wanted * -np.expm1(-wanted * rows)))


@lru_cache(maxsize=64)
def _rank_edges(rows: int) -> tuple[F64, F64]:
    """Where the groups begin and end, the first ranks one by one, and how many ranks are in each."""
    near = np.arange(0.0, min(_EXACT_RANKS, rows) + 1)
    far = np.round(np.geomspace(near[-1], rows, _GROUPS)) if rows > near[-1] else near
    edges = np.unique(np.concatenate([near, far]))
    return edges, np.diff(edges)


_LARGEST = 3.0
_COUNTED = 24  # keys seen more often than this are one class by doubling
_LIKELY = 2.0  # fall of the log-likelihood at the ends of the interval: about 95 %
_FITS = 4.0  # mean squared deviation of the counts, in variances, up to which a power law is believed


@dataclass(frozen=True, slots=True)
class SkewEstimate:
    """The power law that explains a sample best, and the sample itself.

    `exponent` lies between `low` and `high` with some 95 % certainty. `fits` says whether the sample looks like a power
    law at all; `distribution` is that law if so, else the sample's own frequencies.
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
        """The share of the stream that the `cached` most requested rows answer."""
        return cached_share(self.distribution, cached)

    def explain(self) -> str:
        """The estimate in one line."""
        shape = f"exponent {self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})" if self.fits else "no power law"
        return f"skew: {shape}, from {self.sample_rows:,} keys, {self.distinct:,} of them different"


def estimate_skew(keys: I64, master_rows: int) -> SkewEstimate:
    """The skew behind a sample of stream keys in no special order, for master data of `master_rows` rows.

    Ranks of keys are not used, since a sample shows them for the most requested keys only. The numbers of keys that
    occur once, twice, and so on are compared: of ranks with shares p, sum of Poisson(k; n p) keys are expected k times.
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
