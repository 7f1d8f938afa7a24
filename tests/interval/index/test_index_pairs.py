"""Counts, existence, first and last matches equal those of all pairs, whatever the relation, closedness and keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.interval.codes import encode_sides
from dovetail.interval.index import OverlapIndex
from dovetail.interval.index_count import Side, count_pairs
from dovetail.interval.relation import CLOSED, EQUAL, GREATER, LESS, RELATIONS, Relation

ALLEN = [(name, strict) for name in RELATIONS for strict in (False, True)]


def sign(a, b):
    return LESS if a < b else EQUAL if a == b else GREATER


def model(relation, left, right):
    """For each left row, the right rows that match it."""
    return [
        [
            j
            for j, (rk, rs, re) in enumerate(right)
            if lk == rk and relation.holds(sign(ls, rs), sign(ls, re), sign(le, rs), sign(le, re))
        ]
        for lk, ls, le in left
    ]


def usable(rows, closed):
    return [row for row in rows if row[1] < row[2] or (row[1] == row[2] and closed == "both")]


def random_rows(rng, n, domain, keys):
    start = rng.integers(0, domain, n)
    end = start + rng.integers(0, max(2, domain // 2), n)
    key = rng.integers(0, keys, n) if keys else np.zeros(n, np.int64)
    return list(zip(key.tolist(), start.tolist(), end.tolist(), strict=True))


def sides(left, right, relation, keyed):
    bounds = [
        (pa.array([row[1] for row in rows], pa.int64()), pa.array([row[2] for row in rows], pa.int64()))
        for rows in (left, right)
    ]
    codes = encode_sides(*bounds, relation.left_closed, relation.right_closed)
    keys = [np.array([row[0] for row in rows], np.int64) if keyed else None for rows in (left, right)]
    return (
        Side(keys[0], codes.left_start, codes.left_end),
        Side(keys[1], codes.right_start, codes.right_end),
        codes.h,
        codes.shift,
    )


def check(relation, left, right, keyed):
    left, right = usable(left, relation.left_closed), usable(right, relation.right_closed)
    expected = model(relation, left, right)
    one, other, h, shift = sides(left, right, relation, keyed)
    table, probe = relation.table(), (one.key, one.start, one.end)
    assert count_pairs(one, other, table, h, shift) == sum(map(len, expected))
    with OverlapIndex.build(other.key, other.start, other.end, h=h, shift=shift) as index:
        assert index.count(*probe, table).tolist() == [len(rows) for rows in expected]
        assert index.exists(*probe, table).tolist() == [bool(rows) for rows in expected]
        assert index.first(*probe, table).tolist() == [first(rows, right) for rows in expected]
        assert index.last(*probe, table).tolist() == [last(rows, right) for rows in expected]
        chosen = index.any(*probe, table).tolist()
        assert all(at in rows if rows else at == -1 for at, rows in zip(chosen, expected, strict=True))
        if relation.only == "overlapping":
            assert count_pairs(one, other) == sum(map(len, expected))
            assert index.count(*probe).tolist() == [len(rows) for rows in expected]
            assert index.exists(*probe).tolist() == [bool(rows) for rows in expected]
            assert index.first(*probe).tolist() == [first(rows, right) for rows in expected]
            assert index.last(*probe).tolist() == [last(rows, right) for rows in expected]


def first(rows, right):
    return min(rows, key=lambda j: (right[j][1], right[j][2], j), default=-1)


def last(rows, right):
    return max(rows, key=lambda j: (right[j][1], right[j][2], -j), default=-1)


@pytest.mark.parametrize("closed", [(one, other) for one in CLOSED for other in CLOSED])
@pytest.mark.parametrize(("name", "strict"), ALLEN)
def test_every_relation_equals_all_pairs(name, strict, closed):
    rng = np.random.default_rng(hash((strict, *(CLOSED.index(c) for c in closed))) % 1000)
    relation = Relation.parse(name, strict=strict, closed=closed)
    for n, m, domain, keys in ((0, 5, 4, 0), (5, 0, 4, 2), (1, 1, 2, 0), (30, 25, 6, 0), (40, 50, 9, 3)):
        check(relation, random_rows(rng, n, domain, keys), random_rows(rng, m, domain, keys), keyed=keys > 0)
