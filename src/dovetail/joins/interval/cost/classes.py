"""Duration classes of a mixed input, found in a sample of its lengths."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.statistics import Classes, IntervalStatistics

_Floats = NDArray[np.float64]


def length_classes(lengths: ArrayLike, arrival_rate: float, *, limit: int = 16) -> Classes:
    """(rate, duration) classes, shortest first, whose rates add to `arrival_rate`; at most `limit` of them.

    A sample of few distinct lengths gets a class per length. Otherwise classes are of equal width on the logarithm of
    the length, at least an octave wide, and carry their mean length: the active rows (L) and, edges aside, the join
    size are then those of the sample itself.
    """
    sample = np.asarray(lengths, dtype=np.float64)
    if limit < 1:
        raise PlanError(f"limit = {limit} classes were asked for; give at least 1.")
    if sample.size == 0 or arrival_rate <= 0:
        return ()
    if not np.isfinite(sample).all() or sample.min() <= 0:
        raise PlanError("lengths must be positive and finite; drop null and empty intervals from the sample first.")
    values, counts = np.unique(sample, return_counts=True)
    if values.size > limit:
        values, counts = _octaves(values, counts, limit)
    rates = counts * (arrival_rate / sample.size)
    return tuple(zip(rates.tolist(), values.tolist(), strict=True))


def _octaves(values: _Floats, counts: NDArray[np.int64], limit: int) -> tuple[_Floats, NDArray[np.int64]]:
    logs = np.log2(values / values[0])
    width = max(1.0, float(logs[-1]) / limit)
    bins = np.minimum((logs / width).astype(np.int64), limit - 1)
    sizes = np.bincount(bins, weights=counts)
    sums = np.bincount(bins, weights=counts * values)
    used = sizes > 0
    return sums[used] / sizes[used], sizes[used].astype(np.int64)


def summarise(
    starts: ArrayLike,
    ends: ArrayLike,
    tuple_bytes: float,
    *,
    rows: int | None = None,
    instants_per_unit: float = 1.0,
    limit: int = 16,
) -> IntervalStatistics:
    """Statistics of the intervals `[start, end)` given, or of `rows` such intervals of which these are a sample.

    Every interval must be valid: no nulls, start < end.
    """
    first, last = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
    if first.size == 0:
        return IntervalStatistics(0, 0, 0, 0, 0, tuple_bytes)
    lengths = last - first
    if not (lengths > 0).all():
        raise PlanError("an interval with start >= end was given; drop empty and inverted intervals first.")
    n_rows = first.size if rows is None else rows
    span = (first.max() - first.min()) * instants_per_unit + 1
    return IntervalStatistics.measured(
        n_rows,
        float(first.min()),
        float(first.max()),
        float(last.max()),
        float(lengths.mean()),
        float(lengths.max()),
        tuple_bytes,
        classes=length_classes(lengths, n_rows / span, limit=limit),
        instants_per_unit=instants_per_unit,
    )
