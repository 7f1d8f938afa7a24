"""Joins reduced to their queues: which segment each waiting tuple asks for, in order of arrival. Plain and slow."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.semistream.cost.distribution import Demand
from dovetail.joins.semistream.cost.steady import Steady, _solved, of_window


def stream(rows: int, exponent: float, n: int, segment_rows: int, seed: int) -> I64:
    """Segments that n tuples ask for, most frequent rows first, by inversion of the integral power law."""
    u, top = np.random.default_rng(seed).random(n), np.log(rows + 1.0)
    g = 1.0 - exponent
    x = np.exp(u * top) if abs(g) < 1e-9 else np.exp(np.log1p(u * np.expm1(g * top)) / g)
    return (np.minimum(x, rows).astype(np.int64) - 1) // segment_rows


def tuples_per_load(asked: I64, slots: int, lookup: str, position: float = 0.3, warm: float = 0.5) -> float:
    """Tuples answered per load of a full queue, counted after the first `warm` of the stream."""
    queue, read, loads, answered = asked[:0], 0, 0, 0
    while True:
        free = slots - queue.size
        if read + free > asked.size:
            return answered / loads
        queue, read = np.concatenate([queue, asked[read : read + free]]), read + free
        segment = _looked_up(queue, lookup, position, odd=loads % 2 == 1)
        kept = queue[queue != segment]
        loads += 1
        if read > warm * asked.size:
            answered += queue.size - kept.size
        else:
            answered = loads = 0
        queue = kept


def _looked_up(queue: I64, lookup: str, position: float, *, odd: bool) -> int:
    oldest = int(queue[0])
    if lookup == "oldest" or not odd:
        return oldest
    other = int(queue[queue.size - 1 - int(position * queue.size)])
    if lookup == "guarded" and np.count_nonzero(queue == other) <= np.count_nonzero(queue == oldest):
        return oldest
    return other


def longest_lists_per_load(asked: I64, slots: int, low_water: float, max_age: int | None, warm: float = 0.5) -> float:
    """Tuples answered per load when full memory makes the longest lists, and those grown old, be answered."""
    n = int(asked.max()) + 1
    waiting, first = np.zeros(n, np.int64), np.zeros(n, np.int64)
    loads = answered = total = 0
    for t, segment in enumerate(asked.tolist()):
        if not waiting[segment]:
            first[segment] = t
        waiting[segment] += 1
        total += 1
        if total < slots:
            continue
        old = np.flatnonzero((waiting > 0) & (t - first > max_age)) if max_age is not None else []
        for s in [*old, *np.argsort(-waiting, kind="stable")]:
            if s in old or total > low_water * slots:
                counted = t > warm * asked.size and waiting[s] > 0
                loads, answered = loads + counted, answered + counted * waiting[s]
                total -= waiting[s]
                waiting[s] = 0
    return float(answered / loads)


def fixed_point(segments: Demand, capacity: float) -> Steady:
    """F1 and F2 as first derived, without the slots that wait to be filled."""
    return _solved(segments, capacity, lambda t: of_window(segments, t).waiting)


def best_possible(segments: Demand, capacity: float) -> float:
    """Tuples per load that no look-up policy can pass while segments wait for several tuples each (F4).

    Load rates r_i that add up to the fewest loads under sum p_i / (2 r_i) = capacity are in proportion to sqrt(p_i).
    """
    root = float(np.sum(segments.count * np.sqrt(segments.share)))
    return 2 * capacity / root**2 if root else 1.0


def best_gain(segments: Demand) -> float:
    """How much fewer loads the best look-up policy needs than looking up the oldest tuple, at most (F4)."""
    root = float(np.sum(segments.count * np.sqrt(segments.share)))
    return float(np.sum(segments.count)) / root**2 if root else 1.0
