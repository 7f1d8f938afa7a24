"""The oracle itself, checked against docs/algorithms/interval.md, 1.3 and 1.5, and against sets of points."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import nan

import pytest

from oracle import (
    ALLEN,
    CLOSED,
    TABLE,
    agrees_with_kept,
    bag,
    count_overlaps,
    equi_join,
    flat,
    interval_count,
    interval_join,
    is_empty,
    join,
    kept,
    longest_overlaps,
    online_join,
    online_multijoin,
    share_a_point,
)

INTERVALS = list(combinations(range(8), 2))
EVERY_PAIR = [(*a, *b) for a, b in product(INTERVALS, INTERVALS)]


def points(start: int, end: int, closed: str) -> set[Fraction]:
    """The whole and half points inside the bounds: enough to tell whether small intervals of a dense domain meet."""
    halves = {Fraction(n, 2) for n in range(2 * start, 2 * end + 1)}
    outside = {Fraction(start)} if closed in ("right", "neither") else set()
    return halves - outside - ({Fraction(end)} if closed in ("left", "neither") else set())


@pytest.mark.parametrize(("a", "b"), list(product(CLOSED, CLOSED)))
def test_overlapping_is_sharing_a_point(a: str, b: str) -> None:
    for ls, le, rs, re in product(range(4), repeat=4):
        assert is_empty(ls, le, a) == (not points(ls, le, a))
        if not is_empty(ls, le, a) and not is_empty(rs, re, b):
            assert share_a_point(ls, le, rs, re, (a, b)) == bool(points(ls, le, a) & points(rs, re, b))


def test_identities_of_the_printed_table() -> None:
    assert len(EVERY_PAIR) == 784
    for pair in EVERY_PAIR:
        holding = {name for name, test in TABLE.items() if test(*pair)}
        parts = ("overlaps" in holding, "overlapped_by" in holding, bool(holding & {"covers", "covered_by"}))
        assert sum(parts) == share_a_point(*pair)
        assert ({"covers", "covered_by"} <= holding) == ("equals" in holding)
        assert holding
        if "equals" in holding:
            assert holding == {"equals", "starts", "started_by", "ends", "ended_by", "covers", "covered_by"}


def test_strict_relations_exclude_each_other() -> None:
    for pair in EVERY_PAIR:
        assert sum(test(*pair) for test in ALLEN.values()) == 1


@pytest.mark.parametrize("table", [TABLE, ALLEN])
def test_inverses_exchange_the_sides(table: dict[str, object]) -> None:
    inverse = {"before": "after", "meets": "met_by", "overlaps": "overlapped_by", "starts": "started_by"}
    inverse |= {"ends": "ended_by", "covers": "covered_by", "equals": "equals"}
    for name, other in inverse.items():
        for ls, le, rs, re in EVERY_PAIR:
            assert table[name](ls, le, rs, re) == table[other](rs, re, ls, le)  # type: ignore[operator]  # a callable


def row(start: object, end: object, k: object = 1) -> dict[str, object]:
    return {"start": start, "end": end, "k": k}


def test_nulls_empties_and_keys_match_nothing() -> None:
    whole = [row(0, 9)]
    odd = [row(None, 5), row(2, None), row(3, 3), row(5, 2), row(nan, 5), row(1, nan), row(1, 2, None), row(1, 2, 7)]
    assert interval_join(whole, odd, on=[("k", "k")]) == []
    assert len(interval_join(whole, odd, on=[("k", "k")], how="full")) == 1 + len(odd)
    assert interval_count(whole, [row(3, 3)], closed="both") == 1
    assert interval_count(whole, [row(9, 12)], closed=("both", "left")) == 1
    assert interval_count(whole, [row(9, 12)]) == 0


def test_sets_aliases_and_conditions() -> None:
    left, right = [row(0, 4)], [row(0, 4), row(1, 3), row(4, 6), row(5, 6)]
    assert interval_count(left, right, relation=["covers", "equals", "meets"]) == 3
    assert interval_count(left, right, relation="contains") == 2
    assert interval_count(left, right, relation="contains", strict=True) == 1
    assert interval_count(left, right, relation="covers", condition=lambda a, b: b["start"] > 0) == 1


def test_every_how() -> None:
    left, right = [{"a": 1}, {"a": 1}, {"a": 2}, {"a": None}], [{"b": 1}, {"b": 3}, {"b": None}]
    sizes = {how: len(equi_join(left, right, [("a", "b")], how)) for how in ("inner", "left", "right", "full")}
    assert sizes == {"inner": 2, "left": 4, "right": 4, "full": 6}
    assert flat(equi_join(left, right, [("a", "b")], "left_semi"), ["a"]) == [(1,), (1,)]
    assert flat(equi_join(left, right, [("a", "b")], "left_anti"), ["a"]) == [(2,), (None,)]
    assert equi_join([{"a": nan}, {"a": -0.0}], [{"b": nan}, {"b": 0.0}], [("a", "b")]) == [
        ({"a": nan}, {"b": nan}),
        ({"a": -0.0}, {"b": 0.0}),
    ]


def test_counts_and_longest() -> None:
    left, right = [row(0, 10), row(5, 6), row(20, 21)], [row(0, 4), row(3, 9), row(9, 30)]
    assert [n for _, n in count_overlaps(left, right)] == [3, 1, 1]
    assert longest_overlaps(left, right, 3) == [6, 4, 1]


def test_kept_allows_exactly_the_right_choices() -> None:
    left, right = [row(0, 10), row(50, 51)], [row(3, 5), row(1, 9, "x"), row(1, 9, "y"), row(7, 20)]
    first = kept(left, right, "first", how="left")
    assert agrees_with_kept([(left[0], right[2]), (left[1], None)], first)
    assert not agrees_with_kept([(left[0], right[0]), (left[1], None)], first)
    assert not agrees_with_kept([(left[0], right[2])], first)
    assert agrees_with_kept([(left[0], right[3])], kept(left, right, "last"))
    assert not agrees_with_kept([(left[0], right[3]), (left[0], right[0])], kept(left, right, "any"))


def test_bands_are_not_symmetric() -> None:
    left, right = [{"a": 10}], [{"b": n} for n in (7, 8, 9, 10, 11, None)]
    assert flat(online_join(left, right, within=("a", "b", -2, 0)), (), ["b"]) == [(8,), (9,), (10,)]


def test_multijoin_is_a_chain_of_equalities() -> None:
    inputs = {
        "o": [{"id": 1}, {"id": 2}],
        "i": [{"oid": 1, "p": 5}, {"oid": 1, "p": 6}],
        "p": [{"id": 5}, {"id": None}],
    }
    assert online_multijoin(inputs, [("o.id", "i.oid"), ("i.p", "p.id")]) == [
        ({"id": 1}, {"oid": 1, "p": 5}, {"id": 5})
    ]


def test_bags_compare_by_value() -> None:
    assert bag([(nan, [1, 2]), (0.0, None)]) == bag([(-0.0, None), (float("nan"), [1, 2])])
    assert bag([(1,), (1,)]) != bag([(1,)])
    assert join([], [], lambda a, b: True, "full") == []
