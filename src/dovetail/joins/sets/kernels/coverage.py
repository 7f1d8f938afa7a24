"""How much of each interval the union of sorted intervals covers, and how many of them overlap it.

Bounds are searched as half-open int64 codes, and measured as numbers, int64 or float64. Sums of whole numbers are taken
modulo 2^64: a length below 2^63 is exact. An infinite bound counts as 0 in a running total: only differences of totals
matter, and between finite bounds these are right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool, inlined, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.search import first_from


@inlined
def _finite(bound: Any) -> Any:
    """The bound itself; 0 for an infinite one."""
    return bound if np.isfinite(bound) else 0


@kernel
def union_totals(starts: AnyArray, ends: AnyArray, offsets: I64, reached: AnyArray) -> tuple[AnyArray, AnyArray]:
    """For each row the largest end up to it, and the length of the union of the rows up to it, within its segment.

    Segment g is the rows offsets[g] to offsets[g + 1], in order of start. What lies before reached[g] does not count;
    afterwards that is the largest end of the segment. Rows of length zero change nothing.
    """
    reach, total = np.empty_like(ends), np.empty_like(ends)
    for segment in range(offsets.size - 1):
        here, covered = reached[segment], reached[segment] * 0 if np.isfinite(reached[segment]) else 0
        for row in range(offsets[segment], offsets[segment + 1]):
            start, end = starts[row], ends[row]
            if end > start and end > here:
                covered += _finite(end) - _finite(start if start > here else here)
                here = end
            reach[row], total[row] = here, covered
        reached[segment] = here
    return reach, total


@inlined
def _upwards(codes: I64, low: int, stop: int, sought: int) -> int:
    """The first place in [low, stop) whose code is not below `sought`, which is near `low`."""
    step = 1
    while low + step <= stop and codes[low + step - 1] < sought:
        low += step
        step *= 2
    return first_from(codes, low, min(stop, low + step - 1), sought)


@inlined
def _downwards(codes: I64, low: int, stop: int, sought: int) -> int:
    """The first place in [low, stop) whose code is above `sought`, which is near `stop`."""
    step = 1
    while stop - step >= low and codes[stop - step] > sought:
        stop -= step
        step *= 2
    return first_from(codes, max(low, stop - step + 1), stop, sought + 1)


@kernel
def coverage_of(
    starts: I64,
    ends: I64,
    reach: AnyArray,
    total: AnyArray,
    offsets: I64,
    earlier: I64,
    base: AnyArray,
    segments: I64,
    codes: tuple[I64, I64],
    bounds: tuple[AnyArray, AnyArray],
    began: Bool,
) -> tuple[I64, AnyArray]:
    """The number of rows that overlap each probe, and how much of it they cover together.

    `starts` and `ends` are the codes of each segment, both ascending; `reach` and `total` go with `starts`. A probe has
    a segment, or -1 for none, start and end as codes and as numbers. If it did not begin here, rows count that did:
    all but the first earlier[g] of the segment. Only what lies beyond base[g] is covered here. What the rows that start
    before a point cover beyond it is one stretch, from the point to the largest of their ends.
    """
    counts, covered = np.zeros(segments.size, np.int64), np.zeros_like(bounds[0])
    for row in range(segments.size):
        segment = segments[row]
        if segment < 0 or codes[0][row] >= codes[1][row]:
            continue
        first, low, high = offsets[segment], bounds[0][row], bounds[1][row]
        below = first_from(starts, first, offsets[segment + 1], codes[0][row])
        above = _upwards(starts, below, offsets[segment + 1], codes[1][row])
        if began[row]:
            counts[row] = above - _downwards(ends, first, below, codes[0][row])
        else:
            counts[row] = max(0, above - first - earlier[segment])
        low, high = max(low, base[segment]), max(high, base[segment])
        if above == first or low >= high:
            continue
        if reach[above - 1] > high:
            covered[row] = total[above - 1] - (_finite(reach[above - 1]) - high)
        else:
            covered[row] = total[above - 1]
        if below > first:
            beyond = _finite(reach[below - 1]) - low if reach[below - 1] > low else 0
            covered[row] -= total[below - 1] - beyond
        elif not np.isfinite(low):
            place = _upwards(starts, first, above, codes[0][row] + 1)
            if place > first and reach[place - 1] > low:
                covered[row] = -low
        if not np.isfinite(high) and reach[above - 1] == high:
            covered[row] = high
    return counts, covered


@register_warmup
def _warm() -> None:
    first = int64s([0, 1])
    for kind in (np.int64, np.float64):
        low, high = readonly(np.zeros(1, kind), kind), readonly(np.ones(1, kind), kind)
        reach, total = (readonly(found, kind) for found in union_totals(low, high, first, np.zeros(1, kind)))
        codes = int64s([0]), int64s([1])
        began = readonly(np.ones(1, np.bool_), np.bool_)
        coverage_of(*codes, reach, total, first, int64s([0]), low, int64s([0]), codes, (low, high), began)
