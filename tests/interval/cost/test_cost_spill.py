"""Predicted spilling against runs that spill or do not, over rates and durations."""

from __future__ import annotations

import pytest
from tests.interval.cost.reference import forward_scan, sort_merge, steady, time_sweep, union
from tests.interval.cost.uniform import spilling, uniform

from dovetail.joins.interval.cost import (
    DisjointPartitionCost,
    ForwardScanCost,
    FrameMemory,
    IntervalStatistics,
    MixedCost,
    SortMergeCost,
    TimeSweepCost,
)

MEMORY = FrameMemory()
HELD = {"sort_merge": 756, "sort_merge (swapped)": 756, "time_sweep": 753, "forward_scan": 753}
RATES = (1, 5, 10, 20, 25, 30, 40, 60, 80, 100)
DURATIONS = (1, 5, 10, 15, 20, 30, 40, 60, 70, 80)


def observed(rate_r: int, d_r: int, rate_s: int, d_s: int) -> set[str]:
    time_range = 3 * (d_r + d_s) + 10
    r, s = steady(time_range, rate_r, d_r), steady(time_range, rate_s, d_s)
    runs = {
        "sort_merge": sort_merge(r, s, HELD["sort_merge"]),
        "sort_merge (swapped)": sort_merge(s, r, HELD["sort_merge"]),
        "time_sweep": time_sweep(r, s, HELD["time_sweep"]),
        "forward_scan": forward_scan(r, s, HELD["forward_scan"]),
    }
    return {name for name, counts in runs.items() if counts.spills}


@pytest.mark.parametrize("d_r", [5, 15])
def test_predicted_is_observed_over_the_grid(d_r: int) -> None:
    r = uniform(10, d_r, 10_000, 2_296)
    for rate in RATES:
        for d in DURATIONS:
            assert spilling(r, uniform(rate, d, 10_000, 2_296), MEMORY) == observed(10, d_r, rate, d), (rate, d)


def test_the_forward_scan_holds_one_instant_of_r_less_than_predicted() -> None:
    r, s = uniform(10, 15, 10_000, 2_296), uniform(50, 1, 10_000, 2_296)
    assert ForwardScanCost(r, s, MEMORY).needed_frames() * 3 == pytest.approx(760)
    assert forward_scan(steady(100, 10, 15), steady(100, 50, 1), 10_000).peak == 751
    assert "forward_scan" in spilling(r, s, MEMORY)


def test_peaks_of_the_reference_are_the_left_sides_of_the_tests() -> None:
    for rate_r, d_r, rate_s, d_s in ((10, 5, 10, 5), (10, 15, 3, 7), (4, 9, 7, 20)):
        r, s = steady(200, rate_r, d_r), steady(200, rate_s, d_s)
        a, b = uniform(rate_r, d_r, 200, 2_296), uniform(rate_s, d_s, 200, 2_296)
        assert sort_merge(r, s, 9_999).peak == pytest.approx(SortMergeCost(a, b, MEMORY).needed_frames() * 3)
        assert time_sweep(r, s, 9_999).peak == pytest.approx(TimeSweepCost(a, b, MEMORY).needed_frames() * 3)
        slack = ForwardScanCost(a, b, MEMORY).needed_frames() * 3 - forward_scan(r, s, 9_999).peak
        assert slack == pytest.approx(rate_r)


def test_the_example_of_section_4_6() -> None:
    r, s = uniform(10, 5, 10_000, 2_296), uniform(40, 40, 10_000, 2_296)
    assert SortMergeCost(s, r, MEMORY).needed_frames() == pytest.approx(440 / 3)
    assert SortMergeCost(r, s, MEMORY).needed_frames() == pytest.approx(1_760 / 3)
    assert TimeSweepCost(r, s, MEMORY).needed_frames() == pytest.approx(550)
    assert ForwardScanCost(r, s, MEMORY).needed_frames() == pytest.approx(200)
    assert spilling(r, s, MEMORY) == observed(10, 5, 40, 40) == {"sort_merge", "time_sweep"}


def test_mixed_inputs_spill_as_predicted() -> None:
    for long in (10, 60, 120, 200):
        parts = ((4, 5), (2, long))
        table = union(*(steady(800, rate, d) for rate, d in parts))
        rows, mean = 6 * 800, (20 + 2 * long) / 6
        x = IntervalStatistics(rows, 0, 799 + long, mean, long, 2_296, ((4, 5), (2, long)), 799)
        for name, run in (("sort_merge", sort_merge), ("time_sweep", time_sweep), ("forward_scan", forward_scan)):
            predicted = MixedCost(name, x, x, MEMORY).spills()  # type: ignore[arg-type]  # a literal
            assert predicted == (run(table, table, HELD[name]).spills > 0), (name, long)


def test_the_forward_scan_holds_s_for_the_longest_r() -> None:
    r = IntervalStatistics(3_000, 0, 1_099, 53, 100, 2_296, ((1.5, 6.0), (1.5, 100.0)), 999)
    needed = MixedCost("forward_scan", r, uniform(2, 10, 1_000, 2_296), MEMORY).needed_frames()
    assert needed == pytest.approx((10 * 3 + 100 * 2) / 3)


def test_partitioning_spills_by_size_alone() -> None:
    def frames(n: int) -> IntervalStatistics:
        return IntervalStatistics(3 * n, 0, 1_000, 1, 1, 2_296)

    def dip(r: int, s: int) -> bool:
        return DisjointPartitionCost(frames(r), frames(s), MEMORY).spills()

    assert [dip(n, 1) for n in (254, 255)] == [False, True]
    assert dip(1, 255)
