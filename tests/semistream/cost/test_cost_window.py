"""Tuples per load: the fixed point, the empty slots, other look-up positions, longest lists; against counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.semistream.cost.simulation import (
    best_gain,
    best_possible,
    fixed_point,
    longest_lists_per_load,
    stream,
    tuples_per_load,
)

from dovetail.joins.semistream.cost.distribution import Zipf, grouped
from dovetail.joins.semistream.cost.scans import LOW_WATER, longest_first
from dovetail.joins.semistream.cost.steady import Steady, holes, of_window, oldest_first, second_position

SLOTS = 304_470  # 50 MB at 172 bytes, beside a segment of 500 rows of 120 bytes


def segments(rows: int, exponent: float, *, ordered: bool = True, segment_rows: int = 500):  # type: ignore[no-untyped-def]  # the type is what is tested
    return Zipf(rows, exponent).segments(segment_rows, ordered=ordered)


# Counted at full scale. Reference: docs/algorithms/semistream.md, 8.2, 8.3 and 8.4.
@pytest.mark.parametrize(("exponent", "counted"), [(0.0, 152), (0.25, 152), (0.5, 152), (0.75, 151.5), (0.8614, 151)])
def test_both_models_are_within_4_percent_of_counts_at_moderate_skew(exponent: float, counted: float) -> None:
    found = segments(2_000_000, exponent)
    assert fixed_point(found, SLOTS).per_load == pytest.approx(counted, rel=0.04)
    assert oldest_first(found, SLOTS).per_load == pytest.approx(counted, rel=0.04)


@pytest.mark.parametrize(("rows", "low", "high"), [(500_000, 500, 532), (2_000_000, 135, 147), (8_000_000, 40.5, 42)])
def test_at_exponent_1_empty_slots_bring_the_model_to_the_counts(rows: int, low: float, high: float) -> None:
    found = segments(rows, 1.0)
    assert fixed_point(found, SLOTS).per_load == pytest.approx((low + high) / 2, rel=0.20)
    assert fixed_point(found, SLOTS).per_load > high * 1.05
    assert low * 0.96 <= oldest_first(found, SLOTS).per_load <= high * 1.02


def test_without_skew_a_load_answers_twice_what_a_round_would() -> None:
    steady = oldest_first(segments(2_000_000, 0.0), SLOTS)
    assert steady.per_load * 4000 / SLOTS == pytest.approx(2, rel=0.01)
    assert steady.window == pytest.approx(2 * SLOTS, rel=0.01)
    assert steady.waiting == pytest.approx(SLOTS, rel=0.001)


def test_a_segment_with_most_of_the_stream_is_loaded_when_it_fills_the_queue() -> None:
    found = grouped(np.array([0.9, *[0.1 / 1000] * 1000]))
    window = oldest_first(found, 1_000_000).window
    assert window == pytest.approx(2 * 1_000_000 / (1 + 0.9**2), rel=0.01)


def test_all_slots_are_waiting_or_empty() -> None:
    for exponent in (0.0, 0.5, 1.0, 1.3):
        found = segments(400_000, exponent)
        steady = oldest_first(found, 30_000)
        assert steady.waiting + holes(found, steady.window) == pytest.approx(30_000, rel=1e-6)


def test_few_slots_and_many_segments_mean_one_load_per_tuple() -> None:
    assert oldest_first(segments(10_000_000, 0.0), 10).per_load == pytest.approx(1, abs=0.01)
    assert second_position(segments(10_000_000, 0.0), 10).per_load == pytest.approx(1, abs=0.02)
    assert oldest_first(segments(500, 0.0), 1).per_load == 1


def test_one_segment_is_answered_all_at_once() -> None:
    assert oldest_first(segments(400, 0.0), 100).per_load == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.8614, 1.0])
def test_more_slots_never_mean_more_loads(exponent: float) -> None:
    found = segments(2_000_000, exponent)
    for policy in (oldest_first, second_position, lambda s, c: second_position(s, c, guarded=True)):
        loads = [1 / policy(found, slots).per_load for slots in (100, 1000, 10_000, 100_000, 1_000_000)]
        assert all(a >= b for a, b in itertools.pairwise(loads)), loads


def test_what_is_asked_for_is_within_what_there_is() -> None:
    found = segments(2_000_000, 1.0)
    for steady in (oldest_first(found, SLOTS), second_position(found, SLOTS), longest_first(found, SLOTS)):
        assert 0 < steady.asked <= found.n_segments
        assert isinstance(steady, Steady)


# Reference: equation F4 of docs/algorithms/semistream.md, 3.4.
@pytest.mark.parametrize(
    ("rows", "exponent", "gain"),
    [
        (2_000_000, 0.5, 1.12),
        (2_000_000, 0.75, 1.52),
        (2_000_000, 0.8614, 2.02),
        (2_000_000, 1.0, 3.60),
        (500_000, 1.0, 3.23),
        (8_000_000, 1.0, 3.96),
    ],
)
def test_the_best_gain_of_any_policy_on_ordered_rows(rows: int, exponent: float, gain: float) -> None:
    assert best_gain(segments(rows, exponent)) == pytest.approx(gain, abs=0.01)
    assert best_possible(segments(rows, exponent), 1000) == pytest.approx(2000 / (rows / 500) * gain, rel=0.01)


@pytest.mark.parametrize(("exponent", "gain"), [(0.5, 1.00), (0.86, 1.10), (1.0, 1.36)])
def test_the_best_gain_on_shuffled_rows(exponent: float, gain: float) -> None:
    assert best_gain(segments(2_000_000, exponent, ordered=False)) == pytest.approx(gain, abs=0.02)


# Alternate at full scale; guarded and alternate in a small run, 10 tuples per segment.
# Reference: docs/algorithms/semistream.md, 2.12 and 8.2.
@pytest.mark.parametrize(
    ("exponent", "factor"), [(0.0, 0.87), (0.25, 0.88), (0.5, 0.95), (0.75, 1.26), (0.8614, 1.63), (1.0, 2.75)]
)
def test_alternate_lookups_gain_as_counted(exponent: float, factor: float) -> None:
    found = segments(2_000_000, exponent)
    gain = second_position(found, SLOTS).per_load / oldest_first(found, SLOTS).per_load
    assert gain == pytest.approx(factor, rel=0.06)


@pytest.mark.parametrize(
    ("exponent", "plain", "guarded"),
    [(0.0, 0.89, 1.00), (0.5, 0.96, 1.05), (0.75, 1.20, 1.29), (0.86, 1.48, 1.58), (1.0, 2.11, 2.23)],
)
def test_guarded_lookups_gain_as_counted_in_the_small_run(exponent: float, plain: float, guarded: float) -> None:
    found = segments(400_000, exponent, segment_rows=100)
    base = oldest_first(found, 40_000).per_load
    assert second_position(found, 40_000).per_load / base == pytest.approx(plain, rel=0.08)
    assert second_position(found, 40_000, guarded=True).per_load / base == pytest.approx(guarded, rel=0.08)


def test_the_second_position_is_worse_without_skew_and_guarding_it_is_not() -> None:
    found = segments(2_000_000, 0.0)
    base = oldest_first(found, SLOTS).per_load
    assert 0.84 <= second_position(found, SLOTS).per_load / base <= 0.92
    assert second_position(found, SLOTS, guarded=True).per_load / base >= 0.99


def test_on_shuffled_rows_alternating_gains_little() -> None:
    found = segments(2_000_000, 1.0, ordered=False)
    gain = second_position(found, SLOTS).per_load / oldest_first(found, SLOTS).per_load
    assert gain == pytest.approx(1.16, rel=0.03)


def test_the_best_position_is_between_a_tenth_and_four_tenths() -> None:
    found = segments(2_000_000, 1.0)
    rates = {c / 20: second_position(found, SLOTS, c / 20).per_load for c in range(1, 20)}
    assert 0.1 <= max(rates, key=lambda c: rates[c]) <= 0.4


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("lookup", ["oldest", "alternate", "guarded"])
def test_the_models_agree_with_a_queue_that_is_really_run(lookup: str, exponent: float) -> None:
    slots, rows = 3000, 30_000
    counted = tuples_per_load(stream(rows, exponent, 35 * slots, 100, seed=5), slots, lookup)
    found = segments(rows, exponent, segment_rows=100)
    if lookup == "oldest":
        assert oldest_first(found, slots).per_load == pytest.approx(counted, rel=0.06)
    else:
        predicted = second_position(found, slots, guarded=lookup == "guarded").per_load
        assert predicted == pytest.approx(counted, rel=0.10)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("max_age", [None, 9000])
def test_the_model_of_longest_lists_agrees_with_lists_that_are_really_kept(
    exponent: float, max_age: int | None
) -> None:
    slots, rows = 3000, 20_000
    asked = stream(rows, exponent, 60 * slots, 100, seed=6)
    counted = longest_lists_per_load(asked, slots, LOW_WATER, max_age)
    found = segments(rows, exponent, segment_rows=100)
    assert longest_first(found, slots, max_age).per_load == pytest.approx(counted, rel=0.10)


def test_a_window_of_nothing_holds_nothing() -> None:
    steady = of_window(segments(1000, 0.0), 0.0)
    assert (steady.per_load, steady.waiting, steady.asked) == (1, 0, 0)
