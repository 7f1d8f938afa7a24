"""The k pairs that overlap longest equal the head of all pairs, sorted; ties in any number cost no more than k."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.errors import PlanError
from dovetail.joins.interval.index.count import Side
from dovetail.joins.interval.index.top import top_overlap_pairs, top_overlap_threshold
from dovetail.joins.interval.relation import encode_sides

FLOATS = {np.float32: pa.float32(), np.float64: pa.float64()}


def model(left, right, touching):
    """Every matching pair as (left row, right row, overlap), longest first; numbers keep their NumPy type."""
    found = []
    for i, (lk, ls, le) in enumerate(left):
        for j, (rk, rs, re) in enumerate(right):
            start, end = max(ls, rs), min(le, re)
            if lk == rk and (end > start or (end == start and touching(ls, le, rs, re))):
                found.append((i, j, end - start))
    return sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))


def rows_of(rng, n, keys, draw, kind):
    bounds = np.sort(draw(rng, (2, n)), axis=0).astype(kind)
    key = rng.integers(0, keys, n)
    return [(int(key[i]), bounds[0, i], bounds[1, i]) for i in range(n) if bounds[0, i] < bounds[1, i]]


def sides_of(left, right, kind, closed="left"):
    arrays = [[np.array([row[at] for row in rows], kind) for at in (1, 2)] for rows in (left, right)]
    arrow = [tuple(pa.array(array) for array in pair) for pair in arrays]
    codes = encode_sides(*arrow, *((closed, closed) if isinstance(closed, str) else closed))
    keys = [np.array([row[0] for row in rows], np.int64) for rows in (left, right)]
    one, other = Side(keys[0], codes.left_start, codes.left_end), Side(keys[1], codes.right_start, codes.right_end)
    return one, other, tuple(arrays[0]), tuple(arrays[1])


def listed(top):
    return list(zip(top.left.tolist(), top.right.tolist(), top.overlap.tolist(), strict=True))


def check(left, right, kind, ks, closed="left", touching=lambda *_: False):
    expected = model(left, right, touching)
    sides = sides_of(left, right, kind, closed)
    for k in ks:
        got = top_overlap_pairs(sides[0], sides[1], k, *sides[2:])
        assert listed(got) == [(i, j, float(o) if kind in FLOATS else int(o)) for i, j, o in expected[:k]]
        threshold = top_overlap_threshold(sides[0], sides[1], k, *sides[2:])
        if len(expected) < k:
            assert threshold is None
        else:
            assert threshold.length == expected[k - 1][2]
            assert threshold.above == sum(overlap > threshold.length for *_, overlap in expected)


DRAWS = {
    "small domain, many ties": lambda rng, shape: rng.integers(0, 9, shape),
    "wide domain": lambda rng, shape: rng.integers(-(10**15), 10**15, shape),
    "one interval": lambda rng, shape: np.array([[3], [8]]) + np.zeros(shape, np.int64),
    "heavy tail": lambda rng, shape: np.exp(rng.uniform(0, 30, shape)).astype(np.int64),
}


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.float32])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("keys", [1, 3])
def test_top_pairs_equal_the_head_of_all_pairs(kind, draw, keys):
    rng = np.random.default_rng(7)
    for n, m in ((0, 3), (3, 0), (1, 1), (30, 40), (60, 20)):
        left, right = rows_of(rng, n, keys, DRAWS[draw], kind), rows_of(rng, m, keys, DRAWS[draw], kind)
        check(left, right, kind, (1, 2, 7, 50, 1000))


def test_touching_intervals_overlap_by_nothing_but_count():
    left = [(0, 0, 5), (0, 5, 5), (0, 9, 12), (0, 7, 7)]
    right = [(0, 5, 9), (0, 5, 5), (0, 20, 21), (0, 5, 7)]
    touching = lambda ls, le, rs, re: ls <= re and rs <= le  # noqa: E731  (one line says it)
    check(left, right, np.int64, range(1, 12), "both", touching)
    check(left, right, np.float64, range(1, 12), "both", touching)
    usable = [row for row in right if row[1] < row[2]]
    check(left, usable, np.int64, range(1, 12), ("both", "right"), lambda ls, le, rs, re: ls <= re and rs < le)


def test_lengths_beyond_int64_are_exact():
    low, high = -(2**63), 2**63 - 1
    left, right = Side(None, [low, low, 0], [high, high - 1, high]), Side(None, [low, low + 1, 5], [high, high, 6])
    top = top_overlap_pairs(left, right, 3)
    assert listed(top) == [(0, 0, 2**64 - 1), (0, 1, 2**64 - 2), (1, 0, 2**64 - 2)]
    threshold = top_overlap_threshold(left, right, 1)
    assert (int(threshold.length), threshold.above) == (2**64 - 1, 0)


def test_infinite_bounds_have_infinite_lengths_and_points_none():
    inf = np.inf
    left = [(0, -inf, inf), (0, 0.0, 1.0), (0, inf, inf)]
    right = [(0, -inf, 3.0), (0, -inf, inf), (0, inf, inf)]
    sides = sides_of(left, right, np.float64, "both")
    assert listed(top_overlap_pairs(sides[0], sides[1], 9, *sides[2:])) == [
        (0, 0, inf),
        (0, 1, inf),
        (1, 0, 1.0),
        (1, 1, 1.0),
        (0, 2, 0.0),
        (2, 1, 0.0),
        (2, 2, 0.0),
    ]


def test_rounded_lengths_tie_as_the_type_computes_them():
    # 1e16 + 2 is the next double after 1e16: lengths that differ by 1 round together.
    left, right = [(0, 1.0, 1e16), (0, 2.0, 1e16), (0, 0.0, 1e16)], [(0, 0.0, 1e16 + 2)]
    check(left, right, np.float64, (1, 2, 3))


def test_no_pairs_and_bad_requests():
    one = Side(None, [1], [2])
    assert listed(top_overlap_pairs(one, Side(None, [2], [3]), 5)) == []
    with pytest.raises(PlanError, match="k=0"):
        top_overlap_pairs(one, one, 0)
    floats = (np.array([1.0]), np.array([2.0]))
    with pytest.raises(PlanError, match="one type"):
        top_overlap_pairs(one, one, 1, floats, None)
