"""The k pairs that overlap longest equal the head of all pairs, sorted; ties in any number cost no more than k."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.errors import PlanError
from dovetail.interval.codes import encode_sides
from dovetail.interval.index_count import Side
from dovetail.interval.index_top import top_overlap_pairs, top_overlap_threshold

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
