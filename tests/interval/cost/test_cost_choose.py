"""The choice between algorithms: spilling first, then comparisons, then frames."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.interval.cost.uniform import uniform

from dovetail.engine.profile import Cost, Profile
from dovetail.errors import PlanError
from dovetail.joins.interval.cost import (
    ALGORITHMS,
    Algorithm,
    FrameMemory,
    IntervalStatistics,
    MixedCost,
    Price,
    SortMergeCost,
    choose,
    expected_pairs,
)

MEMORY = FrameMemory()


def labels(prices: tuple[Price, ...]) -> list[str]:
    return [p.label for p in prices]


def test_in_memory_the_fewest_comparisons_win() -> None:
    x, y = uniform(10, 10, 1_000, 74), uniform(10, 12, 1_000, 74)
    choice = choose(x, y, FrameMemory(131_072))
    assert choice.best.algorithm == "time_sweep"
    assert not any(p.spills for p in choice.prices)
    assert [p.comparisons for p in choice.prices] == sorted(p.comparisons for p in choice.prices)
    assert all(p.frames == p.n_spills == 0 for p in choice.prices)
    assert all(p.rows == expected_pairs(x, y) for p in choice.prices)
    assert sorted(labels(choice.prices)) == [
        "dip", "dip (swapped)", "forward_scan", "oip", "oip (swapped)",
        "sort_merge", "sort_merge (swapped)", "time_sweep",
    ]  # fmt: skip


def test_a_spill_is_avoided_by_exchanging_the_inputs_of_sort_merge() -> None:
    r, s = uniform(10, 5, 10_000, 2_296), uniform(40, 40, 10_000, 2_296)
    choice = choose(r, s, MEMORY)
    assert choice.best.label == "sort_merge (swapped)"
    assert labels(choice.prices)[1] == "forward_scan"
    assert {p.label for p in choice.prices if p.spills} == {
        "sort_merge", "time_sweep", "oip", "oip (swapped)", "dip", "dip (swapped)"
    }  # fmt: skip
    assert choice.reason == ("sort_merge (swapped): stays in memory with the fewest comparisons; 6 of 8 would spill")


def test_when_all_spill_the_fewest_frames_win() -> None:
    x = uniform(10, 100, 10_000, 2_296)
    choice = choose(x, x, MEMORY)
    assert all(p.spills for p in choice.prices)
    assert choice.best.algorithm == "sort_merge"
    assert [p.frames for p in choice.prices] == sorted(p.frames for p in choice.prices)
    assert round(choice.best.frames) == 118_907
    assert choice.best.n_spills == 130
    assert len(choice.prices) == 5  # a self-join has no other orientation
    assert "all candidates spill" in choice.reason


def test_the_table_names_winner_losers_and_prices() -> None:
    x = uniform(10, 50, 10_000, 2_296)
    text = choose(x, x, MEMORY, algorithms=("time_sweep", "sort_merge")).explain().splitlines()
    assert text == [
        "sort_merge: all candidates spill, this one moves the fewest frames",
        "predicted rows: 98,755,000",
        "algorithm   spills   need   of  comparisons  spill count   frames  seconds",
        "sort_merge  yes     330.0  252   98,854,510          130   76,234        -",
        "time_sweep  yes     333.3  251  100,741,560          390  130,297        -",
    ]


def test_unit_costs_give_seconds_and_keep_the_rules() -> None:
    kept = {"insert": Cost(7e-9, 7e-9, 7e-9, 3), "evict": Cost(3e-9, 3e-9, 3e-9, 3)}
    profile = replace(Profile(), compare=Cost(2e-9, 2e-9, 2e-9, 3), emit=Cost(5e-9, 5e-9, 5e-9, 3), **kept)
    x = uniform(10, 100, 10_000, 2_296)
    prices = {p.algorithm: p for p in choose(x, x, MEMORY, unit_costs=profile).prices}
    sort_merge = prices["sort_merge"]
    for name, (rows, pairs) in {
        "sort_merge": (1.5, 14), "forward_scan": (1.6, 0), "time_sweep": (3.4, 4), "dip": (4, 0)
    }.items():  # fmt: skip
        price = prices[name]  # type: ignore[index]  # one of the five
        beside = 7e-9 * rows * x.rows + 2e-9 * pairs * price.rows
        assert price.cpu_seconds == pytest.approx(2e-9 * price.comparisons + 5e-9 * price.rows + beside)
    assert sort_merge.io_seconds == pytest.approx(
        sort_merge.frames_written * profile.page_write_s(8_192)
        + sort_merge.frames_read * profile.page_read_s(8_192, sequential=True)
    )
    assert sort_merge.seconds == pytest.approx((sort_merge.cpu_seconds or 0) + (sort_merge.io_seconds or 0))
    dip = prices["dip"]
    assert dip.io_seconds == pytest.approx(
        dip.frames_written * profile.page_write_s(8_192) + dip.frames_read * profile.page_read_s(8_192)
    )
    assert choose(x, x, MEMORY, unit_costs=profile).best.algorithm == "sort_merge"
    assert "-" not in choose(x, x, MEMORY, unit_costs=profile).explain().splitlines()[3].split()


def test_sizes_decide_between_sort_merge_and_forward_scan() -> None:
    """Sort-merge pays for the rows of its outer input, forward scan for those of both."""
    few, many = uniform(0.01, 10, 50_000, 74), uniform(1, 2, 50_000, 74)
    ample = FrameMemory(131_072)
    assert choose(few, few, ample).best.algorithm == "time_sweep"
    priced = choose(few, many, ample, unit_costs=Profile())
    assert priced.best.algorithm == "sort_merge"
    assert priced.reason == "sort_merge: stays in memory and takes the least time"
    for alike in (uniform(0.1, 10, 100_000, 74), uniform(1, 60, 20_000, 74)):
        assert choose(alike, alike, ample, unit_costs=Profile()).best.algorithm == "forward_scan"


def test_the_input_with_fewer_rows_is_outer() -> None:
    dense, sparse = uniform(2, 2, 10_000, 74), uniform(0.02, 50, 10_000, 74)
    for left, right, label in ((dense, sparse, "sort_merge (swapped)"), (sparse, dense, "sort_merge")):
        assert choose(left, right, FrameMemory(131_072), unit_costs=Profile()).best.label == label


def test_the_rows_are_those_of_the_relation_asked_for() -> None:
    r, s = uniform(10, 20, 1_000, 74), uniform(10, 10, 1_000, 74)
    assert choose(r, s, MEMORY, relations=("covers",)).best.rows == 1_094_500
    assert choose(r, s, MEMORY, relations=("covers",), strict=True).best.rows < 1_094_500


def test_empty_inputs_cost_nothing() -> None:
    x, empty = uniform(10, 10, 1_000, 74), IntervalStatistics(0, 0, 0, 0, 0, 74)
    for left, right in ((x, empty), (empty, x), (empty, empty)):
        for p in choose(left, right, MEMORY, unit_costs=Profile()).prices:
            assert (p.rows, p.comparisons, p.frames, p.spills, p.seconds) == (0, 0, 0, False, 0)
    with pytest.raises(PlanError, match="without rows"):
        SortMergeCost(x, empty, MEMORY)


def test_bad_requests() -> None:
    x = uniform(10, 10, 1_000, 74)
    with pytest.raises(PlanError, match="choose among time_sweep"):
        choose(x, x, MEMORY, algorithms=("hash",))  # type: ignore[arg-type]  # the error under test
    with pytest.raises(PlanError, match="choose among"):
        choose(x, x, MEMORY, algorithms=())
    with pytest.raises(PlanError, match="unknown algorithm"):
        MixedCost("hash", x, x, MEMORY)  # type: ignore[arg-type]  # the error under test


def test_every_algorithm_is_priced() -> None:
    assert set(ALGORITHMS) == set(get_args(Algorithm))
    x, y = uniform(10, 100, 10_000, 2_296), uniform(5, 40, 10_000, 2_296)
    prices = {p.label: p for p in choose(x, y, MEMORY).prices}
    assert {p.algorithm for p in prices.values()} == set(ALGORITHMS)
    assert prices["oip"].available_frames == 254


statistics = st.builds(
    lambda rate, d, span, width, long: IntervalStatistics(
        rate * span, 0, span - 1 + d * long, d, d * long, width, start_max=span - 1
    ),
    st.floats(0.001, 500), st.floats(1, 10_000), st.integers(1, 100_000), st.integers(1, 5_000), st.floats(1, 100),
)  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=80)
@given(statistics, statistics, st.integers(6, 400))
def test_prices_are_finite_ranked_and_never_below_the_pairs(
    left: IntervalStatistics, right: IntervalStatistics, frames: int
) -> None:
    choice = choose(left, right, FrameMemory(8_192, frames), unit_costs=Profile())
    ranks = [(p.spills, p.io_seconds if p.spills else p.cpu_seconds) for p in choice.prices]
    assert ranks == sorted(ranks)
    for p in choice.prices:
        assert p.comparisons >= p.rows * (1 - 1e-9) >= 0
        assert p.spills == (p.needed_frames > p.available_frames)
        assert (p.frames_written > 0) == p.spills
        assert 0 <= p.frames_read <= (p.frames if p.spills else 0)
        assert p.seconds is not None
        assert 0 < p.seconds < float("inf")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_mixture_of_one_class_is_the_simple_model(algorithm: Algorithm) -> None:
    plain = uniform(10, 100, 10_000, 2_296)
    single = replace(plain, classes=((10.0, 100.0),))
    a, b = (MixedCost(algorithm, x, x, MEMORY) for x in (plain, single))
    assert a.spills()
    assert b.spills()
    assert b.io() == pytest.approx(a.io())
    assert b.needed_frames() == pytest.approx(a.needed_frames())
    assert b.cpu() == pytest.approx(a.cpu())
