"""Lengths of intervals that the union of sorted intervals covers, and the number of those that overlap each.

Bounds are searched as half-open int64 codes, and measured as numbers, int64 or float64. A row adds a stretch to the
union of the rows before it. Whole numbers have running totals of the stretches, modulo 2^64: a length below 2^63 is
exact. Floats have a tree of their sums: only lengths inside of a probe are added up, so that one long stretch elsewhere
does not round the others away.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64, Bool, inlined, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.search import first_from


@kernel
def union_totals(starts: I64, ends: I64, offsets: I64, reached: I64) -> tuple[I64, I64]:
    """For each row the largest end up to it, and the length of the union of the rows up to it, within its segment.

    Segment g is the rows offsets[g] to offsets[g + 1], in order of start. What lies before reached[g] does not count;
    afterwards that is the largest end of the segment. Rows of length zero change nothing.
    """
    reach, total = np.empty_like(ends), np.empty_like(ends)
    for segment in range(offsets.size - 1):
        here, covered = reached[segment], 0
        for row in range(offsets[segment], offsets[segment + 1]):
            start, end = starts[row], ends[row]
            if end > start and end > here:
                covered += end - (start if start > here else here)
                here = end
            reach[row], total[row] = here, covered
        reached[segment] = here
    return reach, total


@kernel
def union_stretches(starts: F64, ends: F64, offsets: I64, reached: F64) -> tuple[F64, F64, F64]:
    """For each row the largest end up to it, where its stretch begins, and a tree of the lengths of stretches.

    Segments and `reached` are those of `union_totals`. Of n rows the length of row r is node n + r of the tree; node i
    is the sum of nodes 2 i and 2 i + 1.
    """
    n = starts.size
    reach, opened, tree = np.empty_like(ends), np.empty_like(ends), np.zeros(2 * n, np.float64)
    for segment in range(offsets.size - 1):
        here = reached[segment]
        for row in range(offsets[segment], offsets[segment + 1]):
            start, end = starts[row], ends[row]
            opened[row] = max(start, here)
            if end > start and end > here:
                tree[n + row] = end - opened[row]
                here = end
            reach[row] = here
        reached[segment] = here
    for node in range(n - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    return reach, opened, tree


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


@inlined
def _between(tree: F64, low: int, stop: int) -> float:
    """The sum of the lengths of the rows in [low, stop)."""
    found, n = 0.0, tree.size // 2
    low, stop = low + n, stop + n
    while low < stop:
        if low % 2:
            found += tree[low]
            low += 1
        if stop % 2:
            stop -= 1
            found += tree[stop]
        low, stop = low // 2, stop // 2
    return found


@inlined
def _count(ends: I64, first: int, below: int, above: int, start: int, began: bool, earlier: int) -> int:
    """How many rows overlap a probe: `below` ones of its segment start before it, `above` ones before its end."""
    return above - _downwards(ends, first, below, start) if began else max(0, above - first - earlier)


@kernel
def coverage_of(
    starts: I64,
    ends: I64,
    reach: I64,
    total: I64,
    offsets: I64,
    earlier: I64,
    base: I64,
    segments: I64,
    codes: tuple[I64, I64],
    bounds: tuple[I64, I64],
    began: Bool,
) -> tuple[I64, I64]:
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
        first = offsets[segment]
        below = first_from(starts, first, offsets[segment + 1], codes[0][row])
        above = _upwards(starts, below, offsets[segment + 1], codes[1][row])
        counts[row] = _count(ends, first, below, above, codes[0][row], began[row], earlier[segment])
        low, high = max(bounds[0][row], base[segment]), max(bounds[1][row], base[segment])
        if above == first or low >= high:
            continue
        covered[row] = total[above - 1] - (reach[above - 1] - high if reach[above - 1] > high else 0)
        if below > first:
            covered[row] -= total[below - 1] - (reach[below - 1] - low if reach[below - 1] > low else 0)
    return counts, covered


@kernel
def float_coverage_of(
    starts: I64,
    ends: I64,
    reach: F64,
    opened: F64,
    tree: F64,
    offsets: I64,
    earlier: I64,
    base: F64,
    segments: I64,
    codes: tuple[I64, I64],
    bounds: tuple[F64, F64],
    began: Bool,
) -> tuple[I64, F64]:
    """The same of floats, of which `opened` and `tree` are those of `union_stretches`; nothing is subtracted from sums.

    What the rows that start before a probe cover of it is one stretch. Those that start in it add their stretches, in
    ascending order, up to the first that reaches its end, of which it has a part.
    """
    counts, covered = np.zeros(segments.size, np.int64), np.zeros_like(bounds[0])
    for row in range(segments.size):
        segment = segments[row]
        if segment < 0 or codes[0][row] >= codes[1][row]:
            continue
        first = offsets[segment]
        below = first_from(starts, first, offsets[segment + 1], codes[0][row])
        above = _upwards(starts, below, offsets[segment + 1], codes[1][row])
        counts[row] = _count(ends, first, below, above, codes[0][row], began[row], earlier[segment])
        low, high = max(bounds[0][row], base[segment]), max(bounds[1][row], base[segment])
        if low >= high:
            continue
        if below > first and reach[below - 1] > low:
            covered[row] = min(reach[below - 1], high) - low
            if reach[below - 1] >= high:
                continue
        last = first_from(reach, below, above, high)
        covered[row] += _between(tree, below, last)
        if last < above and opened[last] < high:  # not where both are infinite
            covered[row] += high - opened[last]
    return counts, covered


@register_warmup
def _warm() -> None:
    first, codes, began = int64s([0, 1]), (int64s([0]), int64s([1])), readonly(np.ones(1, np.bool_), np.bool_)
    reach, total = map(int64s, union_totals(*codes, first, np.zeros(1, np.int64)))
    coverage_of(*codes, reach, total, first, int64s([0]), int64s([0]), int64s([0]), codes, codes, began)
    bounds = readonly([0.0], np.float64), readonly([1.0], np.float64)
    reaches, opened, tree = (readonly(array, np.float64) for array in union_stretches(*bounds, first, np.zeros(1)))
    float_coverage_of(*codes, reaches, opened, tree, first, int64s([0]), bounds[0], int64s([0]), codes, bounds, began)
