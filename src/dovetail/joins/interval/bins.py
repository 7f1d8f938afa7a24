"""The bin widths of the native route, chosen by price on a sample of both inputs.

A row is copied to every bin that it touches. With one width, short intervals share bins with many rows that they do not
match, or long ones are copied to many bins; so lengths are cut into levels, each with its own width. The home level of
a row is the one that fits its length; it is also copied to every level above. Two rows meet on the home level of the
longer one, once: home rows of a level join home rows and copies of the other side, copies never join copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

ROW_COST = 0.5e-6  # seconds to explode, shuffle and sort one row
CANDIDATE_COST = 8e-9  # seconds to test one pair that shares a bin, in a merge join
HASHED_CANDIDATE_COST = 80e-9  # the same in a hash join, where rows of a bin are scattered in memory
MAX_LEVELS = 6
PRICED_ROWS = 1024
MAX_BINS_PER_ROW = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Positions of sampled usable rows of one side, and how many usable rows it stands for."""

    start: F64
    end: F64
    key: I64
    rows: int

    @property
    def weight(self) -> float:
        """Rows of the input for each row of the sample."""
        return self.rows / max(1, len(self.start))

    def thinned(self, most: int) -> Sample:
        """The first `most` rows of the sample, which stand for the same number of input rows."""
        return Sample(self.start[:most], self.end[:most], self.key[:most], self.rows)


@dataclass(frozen=True, slots=True)
class Bins:
    """Bin widths, narrowest first, over positions clamped to [low, high]; with the price they were chosen for."""

    low: float
    high: float
    widths: tuple[float, ...]
    rows: float = field(default=0.0, compare=False)
    candidates: float = field(default=0.0, compare=False)
    candidate_cost: float = field(default=CANDIDATE_COST, compare=False)

    @property
    def levels(self) -> int:
        """How many levels of bins there are."""
        return len(self.widths)

    @property
    def seconds(self) -> float:
        """Predicted time of one core for exploding, shuffling and testing."""
        return self.rows * ROW_COST + self.candidates * self.candidate_cost

    def home(self, length: F64) -> I64:
        """The home level of an interval of this length: the narrowest whose bins are no shorter."""
        return np.minimum(np.searchsorted(np.asarray(self.widths), length, side="left"), self.levels - 1)

    def spans(self, length: float) -> bool:
        """Whether an interval of this length fills few enough bins without being cut to the range."""
        return length <= self.widths[-1] * MAX_BINS_PER_ROW / 4

    def whole(self) -> Bins:
        """These bins with widths that are whole numbers."""
        return replace(self, widths=tuple(sorted({max(1.0, float(round(width))) for width in self.widths})))

    def explain(self) -> str:
        """The bins in one line."""
        widths = ", ".join(f"{width:.6g}" for width in self.widths)
        return (
            f"{self.levels} level(s) of bins, width {widths}; {self.rows:,.0f} rows after replication, "
            f"{self.candidates:,.0f} candidate pairs predicted"
        )


@lru_cache(maxsize=16)  # explain, then run: samples are the same objects as long as the statistics are
def choose_bins(left: Sample, right: Sample, max_length: float = 0.0, candidate_cost: float = CANDIDATE_COST) -> Bins:
    """The cheapest layout that a short search finds for these two samples; any layout is correct.

    The best single width comes first, then the level that helps most, and so on while one helps. `max_length` is the
    longest interval of the whole input: a sample may miss it, and it must not fill too many bins.
    """
    low, high = _range(left, right)
    longest = min(max_length, high - low)
    left, right = left.thinned(PRICED_ROWS), right.thinned(PRICED_ROWS)
    grid = _grid(left, right, high - low)
    empty = Bins(low, high, (high - low,), np.inf, candidate_cost=candidate_cost)

    def priced(layouts: set[tuple[float, ...]]) -> Bins:
        return min((_priced(left, right, replace(empty, widths=w)) for w in sorted(layouts)), key=lambda b: b.seconds)

    best = empty
    while best.levels <= MAX_LEVELS:
        chosen = best.widths if np.isfinite(best.rows) else ()
        layouts = {_topped(tuple(sorted({*chosen, width})), longest) for width in grid}
        found = priced(layouts)
        if found.seconds >= best.seconds * 0.9:
            break
        best = found
    if not np.isfinite(best.rows):
        return replace(empty, widths=_topped((high - low,), longest), rows=0.0)
    finer = {_topped(tuple(sorted({*best.widths[1:], best.widths[0] * by})), longest) for by in (0.6, 1.0, 1.7)}
    return priced(finer)


def key_pairs(left: Sample, right: Sample) -> float:
    """How many pairs of the two inputs have equal keys, as their samples tell; whatever their intervals are."""
    return max(1.0, _meetings(left.key, right.key)) * left.weight * right.weight


def _topped(widths: tuple[float, ...], longest: float) -> tuple[float, ...]:
    return widths if longest <= widths[-1] * MAX_BINS_PER_ROW / 4 else (*widths, longest)


def _range(left: Sample, right: Sample) -> tuple[float, float]:
    points = np.concatenate([left.start, left.end, right.start, right.end])
    points = points[np.isfinite(points)]
    if not len(points):
        return 0.0, 1.0
    # Open ends ("9999-12-31", the largest long) would stretch the axis; positions beyond the bulk share the edge bins.
    low, high = np.quantile(points, [0.001, 0.98])
    starts = np.concatenate([left.start, right.start])
    starts = starts[np.isfinite(starts)]
    low, high = min(low, float(starts.min())), max(high, float(starts.max()))
    least = max(1.0, abs(float(low)) * 1e-9)  # one place only: any width will do, as long as doubles can tell it
    return float(low), float(high) if high > low else float(low) + least


def _grid(left: Sample, right: Sample, span: float) -> list[float]:
    """Widths worth trying: factors of three from the short intervals to the whole range."""
    lengths = np.concatenate([left.end - left.start, right.end - right.start])
    lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
    shortest = float(np.quantile(lengths, 0.1)) if len(lengths) else span / 1000
    steps = int(np.ceil(np.log(max(span / max(shortest, 1e-300), 3.0)) / np.log(3.0)))
    return sorted({_clamped(span / 3.0**step, span) for step in range(min(steps, 24) + 1)})


def _clamped(width: float, span: float) -> float:
    return float(min(max(width, span / 1e12, 1e-12), span * 2))


def _priced(left: Sample, right: Sample, bins: Bins) -> Bins:
    rows = candidates = 0.0
    if max(_most_bins(left, bins), _most_bins(right, bins)) > MAX_BINS_PER_ROW:
        return replace(bins, rows=np.inf)
    left_home, right_home = _home(left, bins), _home(right, bins)
    for level, width in enumerate(bins.widths):
        l_home, l_visit = _occupancy(left, left_home, level, width, bins)
        r_home, r_visit = _occupancy(right, right_home, level, width, bins)
        twice = 2 if level else 1
        rows += left.weight * (l_home.size + l_visit.size) + right.weight * (twice * r_home.size + r_visit.size)
        everything = np.concatenate([r_home, r_visit])
        candidates += _meetings(l_home, everything) + _meetings(l_visit, r_home)
    candidates *= left.weight * right.weight
    return replace(bins, rows=rows, candidates=candidates)


def _most_bins(sample: Sample, bins: Bins) -> float:
    """Bins of the longest sampled row on the widest level."""
    lengths = np.clip(sample.end, bins.low, bins.high) - np.clip(sample.start, bins.low, bins.high)
    return float(lengths.max(initial=0.0)) / bins.widths[-1]


def _home(sample: Sample, bins: Bins) -> I64:
    return bins.home(np.clip(sample.end, bins.low, bins.high) - np.clip(sample.start, bins.low, bins.high))


def _occupancy(sample: Sample, home: I64, level: int, width: float, bins: Bins) -> tuple[I64, I64]:
    """A (key, bin) code for every bin of the home rows of a level, and of the rows copied to it from below."""
    first = ((np.clip(sample.start, bins.low, bins.high) - bins.low) / width).astype(np.int64)
    last = ((np.clip(sample.end, bins.low, bins.high) - bins.low) / width).astype(np.int64)
    return tuple(_codes(sample.key, first, last, rows) for rows in (home == level, home < level))  # type: ignore[return-value]


def _codes(key: I64, first: I64, last: I64, chosen: npt.NDArray[np.bool_]) -> I64:
    first, counts, key = first[chosen], (last - first + 1)[chosen], key[chosen]
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    bins = np.repeat(first, counts) + offsets
    codes: I64 = (
        np.repeat(key, counts) * np.int64(-7046029254386353131)
    ) ^ bins  # a price may mistake two bins for one
    return codes


def _meetings(left: I64, right: I64) -> float:
    """How many pairs share a code."""
    codes, left_counts = np.unique(left, return_counts=True)
    others, right_counts = np.unique(right, return_counts=True)
    _, at, of = np.intersect1d(codes, others, assume_unique=True, return_indices=True)
    return float(np.dot(left_counts[at].astype(np.float64), right_counts[of].astype(np.float64)))
