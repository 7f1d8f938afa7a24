"""The union of sorted intervals as running totals, and how much of it lies between two bounds.

Numbers are int64 or float64. Sums of whole numbers are taken modulo 2^64: a length below 2^63 is exact. An infinite
bound counts as 0 in a running total: only differences of totals matter, and between finite bounds these are right.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, AnyArray, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def _finite(bound: float) -> float:
    """The bound itself; 0 for an infinite one."""
    return bound if np.isfinite(bound) else 0


@kernel
def union_totals(starts: AnyArray, ends: AnyArray, offsets: I64) -> tuple[AnyArray, AnyArray]:
    """For each row the largest end up to it, and the length of the union of the rows up to it, within its segment.

    Segment g is the rows offsets[g] to offsets[g + 1], in order of start.
    """
    reach, total = np.empty_like(ends), np.empty_like(ends)
    for segment in range(offsets.size - 1):
        for row in range(offsets[segment], offsets[segment + 1]):
            end = _finite(ends[row])
            if row == offsets[segment] or starts[row] > reach[row - 1]:
                reach[row] = ends[row]
                total[row] = end - _finite(starts[row]) + (total[row - 1] if row > offsets[segment] else 0)
            elif ends[row] > reach[row - 1]:
                reach[row] = ends[row]
                total[row] = total[row - 1] + (end - reach[row - 1])
            else:
                reach[row], total[row] = reach[row - 1], total[row - 1]
    return reach, total


@kernel
def covered_between(
    reach: AnyArray, total: AnyArray, first: I64, low: I64, high: I64, start: AnyArray, end: AnyArray
) -> AnyArray:
    """How much of each probe, from `start` to `end`, the union covers.

    `low` and `high` are the first rows of the segment, which begins at `first`, that do not start before these bounds.
    What the rows before a bound cover beyond it is one stretch: from the bound to the largest of their ends.
    """
    covered = np.zeros_like(start)
    for row in range(start.size):
        below, above = low[row], high[row]
        if above > first[row]:
            beyond = _finite(reach[above - 1]) - end[row] if reach[above - 1] > end[row] else 0
            covered[row] = total[above - 1] - beyond
        if below > first[row]:
            beyond = _finite(reach[below - 1]) - start[row] if reach[below - 1] > start[row] else 0
            covered[row] -= total[below - 1] - beyond
    return covered


@register_warmup
def _warm() -> None:
    first = int64s([0, 1])
    for kind in (np.int64, np.float64):
        low, high = readonly(np.zeros(1, kind), kind), readonly(np.ones(1, kind), kind)
        reach, total = union_totals(low, high, first)
        one = int64s([1])
        covered_between(readonly(reach, kind), readonly(total, kind), int64s([0]), int64s([0]), one, low, high)
