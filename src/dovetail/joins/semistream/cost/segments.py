"""How often the stream asks for each segment of the master data: the p_i of the models, in groups of like segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64
from dovetail.errors import PlanError

Share = Callable[[F64], F64]
"""The share of the stream that asks for the first so many rows, most wanted first; ranks may be fractional."""

_EXACT = 32  # segments at the wanted end that are groups of their own
_GROWTH = 1.12  # how much longer each later group is than the one before
_PER_E_FOLD = 8  # groups of segments whose shares lie within a factor e
_DRAWN = 2**16  # rows of a shuffle that are placed one by one; the rest is spread evenly


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Groups of segments: `count` of them, each asked for by `share` of the stream tuples that reach storage.

    The shares of all segments add to 1, unless nothing reaches storage; segments that nobody asks for are in
    `n_segments` only. F4 is an equation of docs/algorithms/semistream.md, 3.4.
    """

    count: F64
    share: F64
    n_segments: int

    @property
    def root_sum(self) -> float:
        """Sum of the square roots of all shares, what the best of all look-up policies depends on (F4)."""
        return float(np.sum(self.count * np.sqrt(self.share)))

    @property
    def largest(self) -> float:
        """The share of the segment asked for most."""
        return float(self.share.max(initial=0.0))

    def without_top(self, n: int) -> tuple[float, Segments]:
        """The share of the stream that asks for the n segments asked for most, and the other segments."""
        order = np.argsort(-self.share, kind="stable")
        count, share = self.count[order], self.share[order]
        taken = np.minimum(count, np.maximum(0.0, n - (np.cumsum(count) - count)))
        left = count - taken
        some = left > 0
        rest = _asked(left[some], share[some], max(0, self.n_segments - n))
        return float(np.sum(taken * share)), rest


def in_frequency_order(share: Share, rows: int, segment_rows: int, cached: int = 0, bend: int = 0) -> Segments:
    """Segments of rows that lie most wanted first, without the first `cached` ones, which never reach storage.

    Groups do not reach across `bend`, a rank at which shares fall at once.
    """
    n = _n_segments(rows - cached, segment_rows)
    edges = np.unique(np.append(_group_edges(n), np.clip(-(-(bend - cached) // segment_rows), 0, n)))
    ranks = np.minimum(cached + edges * float(segment_rows), float(rows))
    mass = np.diff(share(ranks))
    count = np.diff(edges).astype(np.float64)
    return _asked(count, mass / count, n)


@lru_cache(maxsize=256)
def shuffled(share: Share, rows: int, segment_rows: int, cached: int = 0, seed: int = 0) -> Segments:
    """Segments of rows that lie in no order; the `cached` most wanted ones, wherever they lie, are never asked of them.

    A shuffle is drawn, the same one for the same seed: the most wanted rows are dealt to the segments one by one, as
    many to each; what is rarer than these is spread evenly.
    """
    n = _n_segments(rows, segment_rows)
    drawn = min(rows - cached, max(_DRAWN, n))
    heavy = np.diff(share(cached + np.arange(drawn + 1.0)))
    tail = share(np.array([cached + drawn, rows], np.float64))
    return grouped(np.bincount(_shuffle(drawn, seed) % n, heavy, n) + (tail[1] - tail[0]) / n)


@lru_cache(maxsize=4)
def _shuffle(rows: int, seed: int) -> I64:
    """Numbers below `rows` in an order that is drawn, the same one for the same seed."""
    return np.random.default_rng(seed).permutation(rows)


def grouped(shares: F64) -> Segments:
    """The groups of segments given one by one; shares need not add to 1."""
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
    if n <= _EXACT:
        return np.arange(n + 1.0)
    steps = int(np.ceil(np.log(n / _EXACT) / np.log(_GROWTH)))
    rest = np.round(np.geomspace(_EXACT, n, steps + 1))
    return np.unique(np.concatenate([np.arange(_EXACT), rest]))


def _asked(count: F64, share: F64, n: int) -> Segments:
    used = share > 0
    whole = float(np.sum(count * share))
    return Segments(count[used], share[used] / whole if whole else share[used], n)
