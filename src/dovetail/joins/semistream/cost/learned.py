"""What share of the stream a cache answers that found its rows by counting matches."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.joins.semistream.cost.distribution import Distribution, cached_share

_EXACT_RANKS = 200
_GROUPS = 400
_ROUNDS = 500
_SUMMED = 60  # up to this threshold, terms are added one by one
_LOGISTIC = 1.702  # 1 / (1 + exp(-1.702 z)) is within 0.01 of the normal distribution


def learned_share(distribution: Distribution, cached: int, capacity: float, threshold: int | None = None) -> float:
    """p_N of a cache of `cached` rows filled by frequency detection beside `capacity` waiting tuples.

    A row enters when a load finds at least `threshold` tuples waiting for it: a Poisson number of mean p T, T growing
    from the first filling of the queue to 2 h_S / (1 - p_N) as the cache takes tuples away. The first rows to pass fill
    it, so that a low threshold lets in rows that are not wanted much. What replaces rows later barely changes this
    under the printed rule, whose threshold only rises, and keeps it up under the adaptive one.
    None as threshold takes `suitable_threshold`.
    Reference: Naeem 2012, 8.2.3; docs/algorithms/semistream.md, 3.8.
    """
    count, wanted = rank_groups(distribution)
    if threshold is None:
        threshold = suitable_threshold(distribution, cached, capacity)
    inside = np.zeros_like(wanted)
    window = capacity
    for number in range(_ROUNDS):
        entering = (1 - inside) * at_least(wanted * window, threshold)
        room, arriving = cached - float(np.sum(count * inside)), float(np.sum(count * entering))
        inside = inside + entering * min(1.0, room / max(arriving, 1e-300))
        p_n = float(np.sum(count * wanted * inside))
        if arriving >= room or (number and arriving < 1e-3 * cached):
            break
        window = 2 * capacity / max(1 - p_n, 1e-6)
    return min(p_n, cached_share(distribution, cached))


def suitable_threshold(
    distribution: Distribution, cached: int, capacity: float, least: int = 2, most: float = float("inf")
) -> int:
    """The smallest start value that no more rows pass than the cache holds, and no less than `least`.

    `most`: stream tuples among which those that wait are, where they come in micro-batches.
    """
    if cached >= distribution.rows:
        return least
    window = min(most, 2 * capacity / max(1 - cached_share(distribution, cached), 1e-6))
    ranks = np.array([cached, cached + 1.0])
    marginal = float(np.diff(distribution.share(ranks))[0])
    return max(least, int(np.ceil(marginal * window)))


def at_least(mean: F64, threshold: int) -> F64:
    """The probability that a Poisson number is at least `threshold`; a large one is taken as normally distributed."""
    if threshold > _SUMMED:
        z = (mean - threshold + 0.5) / np.sqrt(np.maximum(mean, 1e-300))
        return 1 / (1 + np.exp(-_LOGISTIC * np.clip(z, -40.0, 40.0)))
    term = np.exp(-mean)
    below = term.copy()
    for k in range(1, threshold):
        term = term * mean / k
        below += term
    chance: F64 = np.clip(1 - below, 0.0, 1.0)
    return chance


def rank_groups(distribution: Distribution) -> tuple[F64, F64]:
    """Groups of ranks, most wanted first: how many, and which share of the stream asks for each of them."""
    edges, count = _rank_edges(distribution.rows)
    wanted: F64 = np.diff(distribution.share(edges)) / count
    return count, wanted


@lru_cache(maxsize=64)
def _rank_edges(rows: int) -> tuple[F64, F64]:
    """Where the groups begin and end, the first ranks one by one, and how many ranks are in each."""
    near = np.arange(0.0, min(_EXACT_RANKS, rows) + 1)
    far = np.round(np.geomspace(near[-1], rows, _GROUPS)) if rows > near[-1] else near
    edges = np.unique(np.concatenate([near, far]))
    return edges, np.diff(edges)
