"""Counts of ranges of the number line add up to the count of the whole."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from dovetail.joins.interval.index.count import PointCounts, Side, count_pairs


def side(rng, rows, domain):
    start = rng.integers(0, domain, rows)
    return Side(None, start, start + rng.integers(1, domain // 3, rows))


def in_range(points, low, high):
    return points[(points >= low) & (points < high)]


@pytest.mark.parametrize("cuts", [[], [5], [3, 3, 9], [0, 1, 7, 20, 33]])
def test_ranges_add_up_in_any_grouping(cuts):
    rng = np.random.default_rng(len(cuts))
    left, right = side(rng, 200, 30), side(rng, 150, 30)
    edges = [-1, *cuts, 1000]
    parts = [
        PointCounts.of(*(in_range(points, low, high) for points in (left.start, left.end, right.start, right.end)))
        for low, high in pairwise(edges)
    ]
    from_left = reduce(PointCounts.then, parts, PointCounts())
    from_right = reduce(lambda later, earlier: earlier.then(later), reversed(parts), PointCounts())
    assert from_left == from_right
    expected = sum(ls < re and rs < le for ls, le in rows(left) for rs, re in rows(right))
    assert from_left.pairs == expected == count_pairs(left, right)


def rows(side):
    return list(zip(side.start.tolist(), side.end.tolist(), strict=True))


def test_half_of_the_line_is_no_answer():
    with pytest.raises(ValueError, match="lacks ranges"):
        PointCounts.of([1], [], [], []).pairs  # noqa: B018  (reading it is what fails)


def test_counts_beyond_64_bits_are_exact():
    many = 2**40
    early = PointCounts(left_starts=many, right_starts=many)
    assert early.then(PointCounts(left_ends=many, right_ends=many)).pairs == many * many
