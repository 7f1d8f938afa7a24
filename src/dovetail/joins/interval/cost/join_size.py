"""How many pairs a join returns: whole inputs, partitions of them, every Allen relation.

Notation: T rows, lambda arrival rate, d duration, range = instants at which rows start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.offsets import offset_ranges
from dovetail.joins.interval.cost.statistics import IntervalStatistics

Variant = Literal["corrected", "printed"]
Place = Literal["single", "first", "middle", "last"]


def join_estimate(r: IntervalStatistics, s: IntervalStatistics) -> float:
    """JE (4.1): every row of R meets the S rows that start inside it or still run when it starts."""
    return r.rows * s.arrival_rate * (r.duration + s.duration - 1)


def estimate_before(r: IntervalStatistics, s: IntervalStatistics, variant: Variant = "corrected") -> float:
    """Pairs that (4.1) assumes ahead of the range, JE_before (4.2).

    Corrected: they are S rows that would have started before the range, so their duration counts, not R's.
    """
    d = s.duration if variant == "corrected" else r.duration
    return r.arrival_rate * s.arrival_rate * d * (d - 1) / 2


def estimate_after(r: IntervalStatistics, s: IntervalStatistics, variant: Variant = "corrected") -> float:
    """Pairs that (4.1) assumes behind the range, JE_after (4.2); corrected as `estimate_before`."""
    d = r.duration if variant == "corrected" else s.duration
    return r.arrival_rate * s.arrival_rate * d * (d - 1) / 2


def join_estimate_at(
    place: Place, r: IntervalStatistics, s: IntervalStatistics, variant: Variant = "corrected"
) -> float:
    """Pairs whose R row starts in a partition that is the single, the first, a middle or the last one: (4.3), (4.4).

    `r` and `s` describe the rows that start in that partition.
    """
    before = estimate_before(r, s, variant) if place in ("single", "first") else 0.0
    after = estimate_after(r, s, variant) if place in ("single", "last") else 0.0
    return join_estimate(r, s) - before - after


def emitted_at(place: Place, r: IntervalStatistics, s: IntervalStatistics) -> float:
    """Pairs that a partition returns when each pair is emitted where its later row starts (SPLIT on both sides).

    Both corrections then fall on the first partition and none on the last; the total is that of (4.4).
    """
    if place in ("middle", "last"):
        return join_estimate(r, s)
    return join_estimate(r, s) - estimate_before(r, s) - estimate_after(r, s)


def lattice_pairs(n: float, m: float, low: float, high: float) -> float:
    """Pairs (x, y) of whole numbers, 0 <= x < n and 0 <= y < m, with low <= y - x <= high.

    A closed form; for fractional arguments a smooth continuation that treats both sides alike.
    """
    low, high = max(low, -n), min(high, m)
    if n <= 0 or m <= 0 or high < low:
        return 0.0
    forth = _at_most(n, m, high) - _at_most(n, m, low - 1)
    back = _at_most(m, n, -low) - _at_most(m, n, -high - 1)
    return max(0.0, min(n * m, (forth + back) / 2))


def _at_most(n: float, m: float, h: float) -> float:
    # the quarter plane above the diagonal is a triangle; inclusion and exclusion cut the n x m box out of it
    return _triangle(n + h) - _triangle(h) - _triangle(n + h - m) + _triangle(h - m)


def _triangle(z: float) -> float:
    return z * (z + 1) / 2 if z > 0 else 0.0


def expected_pairs(
    r: IntervalStatistics, s: IntervalStatistics, relations: Iterable[str] = ("overlapping",), *, strict: bool = False
) -> float:
    """Result rows of a join on any of `relations`, each pair once, summed over the classes of both inputs.

    Equal to JE_single (4.3) for "overlapping" over one range, and exact when the same number of rows starts at every
    instant; unlike (4.3) also right for inputs over different ranges and for durations beyond the range. Relations
    that ask for equal durations are exact only where a class has a single length.
    """
    names = tuple(relations)
    if not names:
        raise PlanError("no relation was given; name at least one.")
    return math.fsum(_class_pairs(a, b, names, strict) for a in r.subrelations() for b in s.subrelations())


def _class_pairs(r: IntervalStatistics, s: IntervalStatistics, relations: tuple[str, ...], strict: bool) -> float:
    if not r.rows or not s.rows:
        return 0.0
    shift = s.start_min - r.start_min
    ranges = offset_ranges(relations, r.duration, s.duration, strict=strict)
    pairs = sum(lattice_pairs(r.time_range, s.time_range, low - shift, high - shift) for low, high in ranges)
    return r.arrival_rate * s.arrival_rate * pairs
