"""The number of slots for the overlap interval partition join."""

from __future__ import annotations

import math
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.statistics import IntervalStatistics

COMPARE_COST: Final = 0.5
FRAME_COST: Final = 10.0
_ROUNDS: Final = 1_000  # the iteration ends in a cycle of one or two values long before


def usable_partitions(x: IntervalStatistics, k: int, time_range: float) -> float:
    """Partitions of one input that can be non-empty with `k` slots: its longest interval bounds the slots spanned."""
    m = math.ceil(k * min(1.0, x.max_duration / time_range))
    return min(x.rows, k * m + k - m * m / 2 - m / 2)


def choose_slots(
    r: IntervalStatistics,
    s: IntervalStatistics,
    tuples_per_frame: int,
    *,
    compare_cost: float = COMPARE_COST,
    frame_cost: float = FRAME_COST,
) -> int:
    """Slots k that balance comparisons that find nothing against partitions that are nearly empty.

    A fixpoint from k = 1, ended when a value repeats the previous one or the one before; at least 1 and at most one
    slot per instant.
    Reference: the algorithm that Carman 2020, 3.3.4 builds on without its formula; docs/algorithms/interval.md, 2.4.
    """
    if compare_cost <= 0 or frame_cost < 0:
        raise PlanError(f"costs of {compare_cost:g} per comparison and {frame_cost:g} per frame were given; give > 0.")
    if not r.rows or not s.rows:
        return 1
    time_range = max(r.time_range, s.time_range)
    previous, k = 0, 1
    for _ in range(_ROUNDS):
        following = _next_slots(r, s, k, time_range, compare_cost, frame_cost / tuples_per_frame, frame_cost)
        following = max(1, min(following, math.ceil(time_range)))
        if following in (k, previous):
            return following
        previous, k = k, following
    return k


def _next_slots(
    r: IntervalStatistics,
    s: IntervalStatistics,
    k: int,
    time_range: float,
    compare_cost: float,
    tuple_cost: float,
    frame_cost: float,
) -> int:
    tightening = usable_partitions(s, k, time_range) / ((k * k + k) / 2)
    scale = 3 * s.rows / (2 * (frame_cost + 2 * compare_cost) * tightening)
    benefit = tuple_cost + 4 * r.rows * compare_cost / usable_partitions(r, k, time_range)
    return math.floor(math.cbrt(scale * benefit))
