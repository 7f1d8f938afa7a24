"""Inputs long enough for sorted probes, wide digits and deep levels, against NumPy's binary search and plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.joins.interval.index.count import Side, count_pairs
from dovetail.joins.interval.index.overlap_index import OverlapIndex
from dovetail.joins.interval.index.top import top_overlap_pairs
from dovetail.joins.interval.relation import Relation

ROWS = 40_000


def intervals(seed, mean, rows=ROWS, domain=10**9):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, domain, rows)
    return start, start + 1 + rng.exponential(mean, rows).astype(np.int64), rng.integers(0, 5, rows)


def per_key(left, right, answer):
    """One answer a left row, made key by key with answer(left starts, left ends, right starts, right ends, rows)."""
    found = np.zeros(len(left[0]), np.int64)
    for key in np.unique(left[2]):
        mine, theirs = left[2] == key, np.flatnonzero(right[2] == key)
        found[mine] = answer(left[0][mine], left[1][mine], right[0][theirs], right[1][theirs], theirs)
    return found


def overlaps(ls, le, rs, re, rows):
    return np.searchsorted(np.sort(rs), le) - np.searchsorted(np.sort(re), ls, side="right")


def covered(ls, le, rs, re, rows):
    return np.array([np.count_nonzero((rs >= s) & (re <= e)) for s, e in zip(ls, le, strict=True)])


def first_of(ls, le, rs, re, rows):
    order = np.lexsort((rows, re, rs))
    rs, re, rows = rs[order], re[order], rows[order]
    found = []
    for s, e in zip(ls, le, strict=True):
        hits = np.flatnonzero(re[: np.searchsorted(rs, e)] > s)
        found.append(rows[hits[0]] if len(hits) else -1)
    return np.array(found)


def last_of(ls, le, rs, re, rows):
    order = np.lexsort((-rows, re, rs))
    rs, re, rows = rs[order], re[order], rows[order]
    found = []
    for s, e in zip(ls, le, strict=True):
        hits = np.flatnonzero(re[: np.searchsorted(rs, e)] > s)
        found.append(rows[hits[-1]] if len(hits) else -1)
    return np.array(found)


@pytest.mark.parametrize("mean", [2_000, 1_000_000])
def test_overlap_answers_of_many_rows(mean):
    left, right = intervals(1, mean), intervals(2, mean)
    index = OverlapIndex.build(right[2], right[0], right[1])
    probe = left[2], left[0], left[1]
    counts = per_key(left, right, overlaps)
    assert np.array_equal(index.count(*probe), counts)
    assert np.array_equal(index.exists(*probe), counts > 0)
    assert count_pairs(Side(left[2], *left[:2]), Side(right[2], *right[:2])) == counts.sum()
    few = slice(0, 4500)
    some = tuple(array[few] for array in left)
    assert np.array_equal(index.first(*(array[few] for array in probe)), per_key(some, right, first_of))
    assert np.array_equal(index.last(*(array[few] for array in probe)), per_key(some, right, last_of))


def test_containment_counts_of_many_rows():
    left, right = intervals(3, 10_000_000, rows=5_000), intervals(4, 10_000)
    covers = Relation.parse("covers").table()
    index = OverlapIndex.build(right[2], right[0], right[1])
    counts = per_key(left, right, covered)
    assert np.array_equal(index.count(left[2], left[0], left[1], covers), counts)
    assert count_pairs(Side(left[2], *left[:2]), Side(right[2], *right[:2]), covers) == counts.sum()


def test_longest_overlaps_of_many_rows():
    left, right = intervals(5, 10**6, rows=2_500), intervals(6, 10**6, rows=3_000)
    shared = np.minimum.outer(left[1], right[1]) - np.maximum.outer(left[0], right[0])
    assert np.count_nonzero(shared > 0) > 9_000
    for k in (10, 9_000):
        top = top_overlap_pairs(Side(None, *left[:2]), Side(None, *right[:2]), k)
        best = np.sort(np.partition(shared.ravel(), -k)[-k:])[::-1]
        assert np.array_equal(top.overlap, best.astype(np.uint64))
        assert np.array_equal(shared[top.left, top.right], top.overlap.astype(np.int64))


def test_a_million_ties_cost_no_more_than_k_pairs():
    rows = 100_000
    same = Side(None, np.zeros(rows, np.int64), np.full(rows, 5))
    top = top_overlap_pairs(same, same, 150_000)
    assert top.left.tolist() == [0] * rows + [1] * 50_000
    assert np.array_equal(top.right, np.r_[:rows, :50_000])
    assert set(top.overlap.tolist()) == {5}
