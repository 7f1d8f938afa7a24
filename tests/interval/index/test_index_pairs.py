"""Counts, existence, first and last matches equal those of all pairs, whatever the relation, closedness and keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.joins.interval.index.count import Side, count_pairs
from dovetail.joins.interval.index.overlap_index import OverlapIndex
from dovetail.joins.interval.relation import EQUAL, GREATER, LESS, RELATIONS, Relation, encode_sides
from dovetail.request import CLOSED

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
    rng = np.random.default_rng([strict, *(CLOSED.index(side) for side in closed)])
    relation = Relation.parse(name, strict=strict, closed=closed)
    for n, m, domain, keys in ((1, 1, 2, 0), (20, 30, 6, 0), (30, 25, 9, 3)):
        check(relation, random_rows(rng, n, domain, keys), random_rows(rng, m, domain, keys), keyed=keys > 0)


intervals = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(0, 5)), max_size=12)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    names=st.sets(st.sampled_from(RELATIONS), min_size=1, max_size=5),
    strict=st.booleans(),
    closed=st.tuples(st.sampled_from(CLOSED), st.sampled_from(CLOSED)),
    left=intervals,
    right=intervals,
    keyed=st.booleans(),
)
def test_sets_of_relations_equal_all_pairs(names, strict, closed, left, right, keyed):
    one, other = (
        [(key if keyed else 0, start, start + length) for key, start, length in rows] for rows in (left, right)
    )
    check(Relation.parse(names, strict=strict, closed=closed), one, other, keyed)


@pytest.mark.parametrize("name", RELATIONS)
def test_a_side_without_rows_matches_nothing(name):
    rows = [(1, 0, 4), (0, 2, 3)]
    for keyed in (False, True):
        check(Relation.parse(name, closed="both"), [], rows, keyed)
        check(Relation.parse(name, closed="both"), rows, [], keyed)


EDGE = 2**63 - 1


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("name", RELATIONS)
def test_bounds_and_keys_at_the_ends_of_int64(name, closed):
    numbers = [-EDGE - 1, -EDGE, -1, 0, 1, EDGE - 1, EDGE]
    keys = [-EDGE - 1, EDGE]
    rows = [(key, start, end) for key in keys for start in numbers for end in numbers if start <= end]
    rng = np.random.default_rng(3)
    left, right = ([rows[at] for at in rng.permutation(len(rows))] for _ in range(2))
    relation = Relation.parse(name, closed=closed)
    check(relation, left, right, keyed=True)
    check(relation, [(0, *row[1:]) for row in left], [(0, *row[1:]) for row in right], keyed=False)


def test_an_index_without_rows_or_probes_answers():
    none = np.empty(0, np.int64)
    index = OverlapIndex.build(none, none, none)
    one = np.array([1])
    assert index.count(one, one, one + 1).tolist() == [0]
    assert index.last(one, one, one + 1).tolist() == [-1]
    assert OverlapIndex.build(one, one, one + 1).first(none, none, none).tolist() == []


def test_keys_on_one_side_only_are_refused():
    one = np.array([1])
    index = OverlapIndex.build(None, one, one + 1)
    with pytest.raises(ValueError, match="both or neither"):
        index.count(one, one, one + 1)
