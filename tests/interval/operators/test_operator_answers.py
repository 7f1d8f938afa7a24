"""The interval operators against brute force: every algorithm, relation, batch size and amount of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval.operators.operator_cases import (
    ALGORITHMS,
    MORE_RELATIONS,
    RELATIONS,
    expected,
    pairs_of,
    random_side,
    run,
    side,
    tuples,
)

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.relation import Relation

# Figure 3.5 of the source: a and c lie in the first range, d in the second, b crosses; times are ours.
NAMES = "abcd"
FIGURE_3_5 = ([0, 2, 6, 12], [2, 16, 8, 15])


def _named(batch_pairs: list[tuple[int, int]]) -> set[str]:
    return {NAMES[i] + "wxyz"[j] for i, j in batch_pairs}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_worked_example_of_two_ranges_gives_each_pair_once(algorithm: Any) -> None:
    whole = side(*FIGURE_3_5, name="l"), side(*FIGURE_3_5, name="r")
    relation = Relation.parse("overlapping")
    all_pairs, _ = run(algorithm(relation=relation, emit="pairs"), *whole)
    assert _named(all_pairs) == {"aw", "bx", "by", "bz", "cx", "cy", "dx", "dz"}

    first = [batch.slice(0, 3) for batch in whole]  # a, b, c reach the range before the split point 10
    first_pairs, _ = run(algorithm(relation=relation, emit="pairs"), *first)
    assert _named(first_pairs) == {"aw", "bx", "by", "cx", "cy"}

    second = [batch.take(pa.array([1, 3])) for batch in whole]  # b, d reach the range after it
    second_pairs, metrics = run(algorithm(relation=relation, emit="rows", range_start=10), *second)
    assert _named(second_pairs) == {"bz", "dx", "dz"}
    assert metrics.value("pairs_suppressed") == 1  # (b, x) is the first range's
    assert metrics.value("pairs") == 3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relation", [*RELATIONS, *MORE_RELATIONS])
def test_random_rows_equal_brute_force(algorithm: Any, relation: str | tuple[str, ...]) -> None:
    rng = np.random.default_rng(list(map(ord, str(relation))))
    meaning = Relation.parse(relation)
    for time, longest, rows, memory in (
        (40, 9, 7, None),
        (12, 20, 50, 3),
        (60, 60, 2, 9),
        (9, 4, 1, 1),
        (30, 50, 7, 1),
    ):
        n_left, n_right = rng.integers(5, 28, 2)
        left = random_side(rng, n_left, time, longest, name="l")
        right = random_side(rng, n_right, time, longest, name="r")
        spec = algorithm(relation=meaning, frames=memory and tuples(memory), swapped=bool(memory == 9))
        found, _ = run(spec, left, right, rows)
        assert found == expected(meaning, left, right), (spec.explain(), rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relation", ["overlapping", "covers", "overlapped_by", ("starts", "overlaps")])
def test_keys_and_ranges_equal_brute_force(algorithm: Any, relation: str | tuple[str, ...]) -> None:
    rng = np.random.default_rng(7)
    meaning = Relation.parse(relation)
    for keys, rows, memory, range_start in (
        (1, 7, None, 9),
        (3, 7, 2, None),
        (3, 2, None, 14),
        (15, 1, 4, 5),
        (40, 50, 1, None),
    ):
        left = random_side(rng, 30, 25, 12, keys, "l")
        right = random_side(rng, 24, 25, 12, keys, "r")
        spec = algorithm(
            relation=meaning, keyed=True, range_start=range_start, frames=memory and tuples(memory), swapped=keys == 3
        )
        found, _ = run(spec, left, right, rows)
        assert found == expected(meaning, left, right, keyed=True, range_start=range_start), (spec.explain(), rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ranges_together_give_every_pair_once(algorithm: Any) -> None:
    rng = np.random.default_rng(11)
    left, right = random_side(rng, 50, 90, 40, name="l"), random_side(rng, 50, 90, 40, name="r")
    relation = Relation.parse("overlapping")
    found = []
    for low, high in ((None, 30), (30, 60), (60, 1000)):
        parts = []
        for batch in (left, right):
            start, end = batch.column("_start").to_numpy(), batch.column("_end").to_numpy()
            parts.append(batch.filter(pa.array((start < high) & (end > (low or 0)))))
        found += run(algorithm(relation=relation, range_start=low), *parts)[0]
    assert sorted(found) == expected(relation, left, right)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relation", ["overlapping", "covers", "overlaps", "covered_by", "equals", "meets"])
def test_closed_intervals_compare_the_bounds_as_written(algorithm: Any, relation: str) -> None:
    rng = np.random.default_rng(13)
    meaning = Relation.parse(relation, closed="both")
    start = rng.integers(0, 12, 40)
    end = start + rng.integers(0, 5, 40)  # single points too
    left, right = side(start, end + 1, name="l"), side(start[::2], end[::2] + 1, name="r")
    found, _ = run(algorithm(relation=meaning, shift=1, frames=tuples(4)), left, right, 7)
    assert found == expected(meaning, left, right, shift=1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("relation", ["overlapping", "overlaps", "overlapped_by"])
@pytest.mark.parametrize(("l_closed", "r_closed"), [("both", "left"), ("neither", "both"), ("right", "left")])
def test_inputs_closed_differently_use_half_steps(algorithm: Any, relation: str, l_closed: str, r_closed: str) -> None:
    rng = np.random.default_rng(17)
    meaning = Relation.parse(relation, closed=(l_closed, r_closed))
    sides = []
    for closed, name in ((l_closed, "l"), (r_closed, "r")):
        start = rng.integers(0, 10, 30)
        end = start + rng.integers(0 if closed == "both" else 1, 5, 30)
        opened, ended = closed not in ("left", "both"), closed in ("right", "both")
        sides.append(side(2 * start + opened, 2 * end + ended, name=name))
    found, _ = run(algorithm(relation=meaning, halves=1, frames=tuples(3)), *sides, 7)
    assert found == expected(meaning, *sides, halves=1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("keyed", [False, True])
def test_empty_sides_give_nothing(algorithm: Any, keyed: bool) -> None:
    some, none = side([1, 2], [5, 6], name="l"), side([], [], name="r")
    spec = algorithm(relation=Relation.parse("overlapping"), keyed=keyed)
    assert run(spec, some, none)[0] == []
    assert run(spec, none.rename_columns(some.schema.names), some.rename_columns(none.schema.names))[0] == []
    assert run(spec, some.slice(0, 0), none)[0] == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_touching_intervals_do_not_overlap_and_duplicates_all_count(algorithm: Any) -> None:
    left = side([0, 5, 5, 9], [5, 9, 9, 12], name="l")
    right = side([5, 5, 12], [9, 9, 20], name="r")
    found, metrics = run(algorithm(relation=Relation.parse("overlapping")), left, right, 1)
    assert found == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert metrics.value("pairs") == 4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_extreme_codes_do_not_overflow(algorithm: Any) -> None:
    low, high = -(2**63), 2**63 - 1
    left = side([low, low, 0, high - 1], [low + 1, high, 5, high], name="l")
    right = side([low, -3, high - 1], [high, 3, high], name="r")
    relation = Relation.parse("overlapping")
    found, _ = run(algorithm(relation=relation, frames=tuples(2)), left, right, 2)
    assert found == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0), (3, 2)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rows_carry_left_payload_then_right_payload(algorithm: Any) -> None:
    left, right = side([0, 4], [9, 6], name="l"), side([5], [7], name="r")
    spec = algorithm(relation=Relation.parse("overlapping"))
    with spec.open(MemoryBudget("1MB"), {"left": left.schema, "right": right.schema}) as operator:
        assert operator.schema.names == ["l", "l_text", "r", "r_text"]
        table = pa.Table.from_batches(operator.join([left], [right]), operator.schema)
    assert sorted(table.to_pylist(), key=lambda row: row["l"]) == [
        {"l": 0, "l_text": None, "r": 0, "r_text": None},
        {"l": 1, "l_text": "t", "r": 0, "r_text": None},
    ]
    assert pairs_of(iter(table.to_batches())) == [(0, 0), (1, 0)]
