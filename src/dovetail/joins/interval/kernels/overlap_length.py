"""Pairs of intervals that overlap by at least some length, counted row by row or listed, never more than asked for.

Bounds are uint64 or floating point numbers, all of one type, and `least` is a length above zero of that type. A pair
overlaps by `least` exactly if both intervals are that long and each end lies that far beyond the other's start. Lengths
are differences as the type computes them; rounding keeps their order, so this holds for floats too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.engine.kernels.arrays import I64, AnyArray, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def _reaches(end: Any, start: Any, least: Any) -> bool:
    reaches: bool = end >= start and end - start >= least
    return reaches


@kernel
def ends_short_of(
    starts: AnyArray, lengths: AnyArray, first: I64, ends: AnyArray, end_lengths: AnyArray, end_first: I64, least: Any
) -> I64:
    """For each start, how many ends of its segment fall short of it plus `least`.

    Segment g is the rows first[g] to first[g + 1], ascending. Rows whose own length is below `least` are left out: they
    get 0 and are not counted.
    """
    short = np.zeros(starts.size, np.int64)
    for segment in range(first.size - 1):
        at, count = end_first[segment], 0
        for row in range(first[segment], first[segment + 1]):
            if lengths[row] >= least:
                while at < end_first[segment + 1] and not _reaches(ends[at], starts[row], least):
                    count += end_lengths[at] >= least
                    at += 1
                short[row] = count
    return short


@kernel
def starts_within(
    ends: AnyArray,
    lengths: AnyArray,
    first: I64,
    starts: AnyArray,
    start_lengths: AnyArray,
    start_first: I64,
    least: Any,
) -> I64:
    """For each end, how many starts of its segment lie at least `least` before it; otherwise as `ends_short_of`."""
    within = np.zeros(ends.size, np.int64)
    for segment in range(first.size - 1):
        at, count = start_first[segment], 0
        for row in range(first[segment], first[segment + 1]):
            if lengths[row] >= least:
                while at < start_first[segment + 1] and _reaches(ends[row], starts[at], least):
                    count += start_lengths[at] >= least
                    at += 1
                within[row] = count
    return within


@kernel
def reaching_pairs(
    left_start: AnyArray,
    left_end: AnyArray,
    left_first: I64,
    right_start: AnyArray,
    right_end: AnyArray,
    right_first: I64,
    least: Any,
    pairs: int,
) -> I64:
    """The `pairs` pairs (left row, right row) that overlap by `least`, which is known to be their number.

    Rows are sorted by start within each segment, and every one is at least that long. A forward scan: whichever row
    starts first meets the other side's rows from there on, as far as its end reaches, and every one of them is a pair.
    """
    found = np.empty((2, pairs), np.int64)
    filled = 0
    for segment in range(left_first.size - 1):
        i, j = left_first[segment], right_first[segment]
        while i < left_first[segment + 1] and j < right_first[segment + 1]:
            if left_start[i] <= right_start[j]:
                at = j
                while at < right_first[segment + 1] and _reaches(left_end[i], right_start[at], least):
                    found[0, filled], found[1, filled] = i, at
                    filled, at = filled + 1, at + 1
                i += 1
            else:
                at = i
                while at < left_first[segment + 1] and _reaches(right_end[j], left_start[at], least):
                    found[0, filled], found[1, filled] = at, j
                    filled, at = filled + 1, at + 1
                j += 1
    return found


@register_warmup
def _warm() -> None:
    first = int64s([0, 1])
    for kind in (np.uint64, np.float64, np.float32):
        low, high, least = readonly(np.zeros(1, kind), kind), readonly(np.ones(1, kind), kind), kind(1)
        ends_short_of(low, high, first, high, high, first, least)
        starts_within(high, high, first, low, high, first, least)
        reaching_pairs(low, high, first, low, high, first, least, 1)
