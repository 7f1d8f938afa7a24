"""The equations of the interval joins as printed: their values, and where the library's models differ from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.experiments.interval.printed import (
    OverlapPartitionEquations,
    PrintedDisjointPartitionCost,
    PrintedForwardScanCost,
    PrintedMixedCost,
    PrintedOverlapPartitionCost,
    PrintedSortMergeCost,
    PrintedTimeSweepCost,
    estimate_after,
    estimate_before,
    join_estimate,
    join_estimate_at,
)
from tests.interval.cost.reference import steady
from tests.interval.cost.test_cost_comparisons import counted, error, mixed
from tests.interval.cost.test_cost_frames import MEMORY, MODEL, SETTINGS
from tests.interval.cost.test_cost_join_size import overlaps_counted
from tests.interval.cost.uniform import uniform

from dovetail.joins.interval.cost import (
    ALGORITHMS,
    Algorithm,
    CostModel,
    FrameMemory,
    IntervalStatistics,
    MixedCost,
    TimeSweepCost,
)

AMPLE = FrameMemory(2**30)
PRINTED: dict[str, type[CostModel]] = {
    "sort_merge": PrintedSortMergeCost,
    "time_sweep": PrintedTimeSweepCost,
    "forward_scan": PrintedForwardScanCost,
    "dip": PrintedDisjointPartitionCost,
}


@pytest.mark.parametrize("rate", [1, 5, 10, 50, 100])
@pytest.mark.parametrize(("d", "printed"), [(1, 0.00), (5, 0.02), (10, 0.05), (50, 0.25), (100, 0.50)])
def test_error_of_the_uncorrected_estimate_is_that_of_tables_4_2_and_4_3(rate: int, d: int, printed: float) -> None:
    x = uniform(rate, d, 10_000, 74)
    actual = overlaps_counted(steady(10_000, rate, d), steady(10_000, rate, d))
    error = abs(actual - join_estimate(x, x)) / join_estimate(x, x) * 100
    assert f"{error:.2f}" == f"{printed:.2f}"
    assert join_estimate_at("single", x, x) == actual


def test_partitions_by_r_start_and_as_emitted() -> None:
    r, s = uniform(1, 20, 250, 74), uniform(1, 10, 250, 74)
    places = ("first", "middle", "middle", "last")
    assert [join_estimate_at(p, r, s) for p in places] == [7205, 7250, 7250, 7060]  # type: ignore[arg-type]  # literals
    assert [join_estimate_at(p, r, s, "printed") for p in ("first", "last")] == [7060, 7205]


def test_before_and_after_are_exchanged_as_printed() -> None:
    r, s = uniform(2, 20, 250, 74), uniform(3, 10, 250, 74)
    assert (estimate_before(r, s), estimate_after(r, s)) == (6 * 45, 6 * 190)
    assert estimate_before(r, s, "printed") == estimate_after(r, s)
    assert estimate_after(r, s, "printed") == estimate_before(r, s)


@pytest.mark.parametrize(("setting", "place"), [(setting, i) for i, setting in enumerate(SETTINGS)])
def test_model_values_to_the_digit(setting: tuple[int, int], place: int) -> None:
    x = uniform(*setting, 10_000, 2_296)
    for name, model in PRINTED.items():
        cost = model(x, x, MEMORY)
        assert cost.spills(), name
        assert round(cost.io()) == MODEL[name][place], name


def test_the_forward_scan_holds_what_starts_during_an_s_tuple() -> None:
    r, s = uniform(10, 60, 10_000, 2_296), uniform(10, 30, 10_000, 2_296)
    assert PrintedForwardScanCost(r, s, MEMORY).before_c() == pytest.approx(200 - (256 - 30 * 10 / 3))
    assert PrintedForwardScanCost(uniform(1, 2, 10_000, 2_296), s, MEMORY).before_c() < 0


def test_phases_may_count_more_spills_than_there_are() -> None:
    dense = uniform(400, 95, 100, 2_296)
    assert PrintedForwardScanCost(dense, dense, MEMORY).phases().steady < 0
    assert PrintedTimeSweepCost(dense, dense, MEMORY).phases()[0].steady < 0


def test_single_instants_are_a_special_case_of_sort_merge() -> None:
    x = uniform(10, 1, 1_000, 74)
    assert PrintedSortMergeCost(x, x, AMPLE).cpu() == 100_000


@pytest.mark.parametrize("name", ["sort_merge", "forward_scan"])
def test_the_sum_counts_the_end_of_a_scan_once_per_class(name: Algorithm) -> None:
    table, x = mixed(1_000, 10, 1, 74)
    printed, corrected = PrintedMixedCost(name, x, x, AMPLE).cpu(), MixedCost(name, x, x, AMPLE).cpu()
    observed = counted(table, table)[name]
    assert error(observed, printed) > 0.5 > 100 * error(observed, corrected)


def test_a_spilling_sweep_counts_its_pairs_twice() -> None:
    _, x = mixed(2_000, 10, 100, 2_296)
    corrected, printed = (kind("time_sweep", x, x, MEMORY).cpu() for kind in (MixedCost, PrintedMixedCost))
    assert printed - corrected == pytest.approx(TimeSweepCost(x.worst_case(), x.worst_case(), MEMORY).join_size())


def slotted(d: int, k: int, time_range: int = 1_000) -> tuple[OverlapPartitionEquations, PrintedOverlapPartitionCost]:
    """OIP by its equations without their slips, and with them."""
    x = uniform(1, d, time_range, 74)
    return OverlapPartitionEquations(x, x, MEMORY, k), PrintedOverlapPartitionCost(x, x, MEMORY, k)


def test_partition_joins_of_the_example() -> None:
    corrected, printed = slotted(10, 6)
    assert corrected.group_partitions(3) == 4
    assert corrected.partition_joins(3, 2) == printed.partition_joins(3, 2) == 14


def test_partition_joins_against_counting_and_where_the_closed_form_ends() -> None:
    for k in range(1, 11):
        corrected, printed = slotted(10, k)
        for i in range(1, k + 1):
            for j in range(1, k + 1):
                pairs = sum(x <= a + i - 1 and a <= x + j - 1 for a in range(k - i + 1) for x in range(k - j + 1))
                assert corrected.partition_joins(i, j) == pairs
                assert (printed.partition_joins(i, j) == pairs) == (k - i + 1 >= j - 1)


def test_partition_sizes_are_two_starts_too_small() -> None:
    for width in range(1, 21):
        for d in range(1, 61):
            corrected, printed = slotted(d, 8, width * 8)
            assert corrected.starts_within(corrected.r) == printed.starts_within(printed.r) + 2
    assert slotted(13, 5, 25)[1].starts_within(uniform(1, 13, 25, 74)) == 1


def test_partitioned_joins_add_the_reserved_frames() -> None:
    def frames(n: int) -> IntervalStatistics:
        return IntervalStatistics(3 * n, 0, 1_000, 1, 1, 2_296)

    def dip(r: int, s: int) -> bool:
        return PrintedDisjointPartitionCost(frames(r), frames(s), MEMORY).spills()

    oip = [PrintedOverlapPartitionCost(frames(n), frames(n), MEMORY).spills() for n in (258, 259)]
    assert oip == [dip(n, 1) for n in (258, 259)] == [False, True]
    assert not dip(1, 259)  # only R is looked at
    x, y = uniform(10, 100, 10_000, 2_296), uniform(5, 40, 10_000, 2_296)
    assert PrintedMixedCost("oip", x, y, MEMORY).available_frames() == 258


def test_the_longest_r_is_looked_for_among_as_many_classes_as_s_has() -> None:
    r = IntervalStatistics(3_000, 0, 1_099, 53, 100, 2_296, ((1.5, 6.0), (1.5, 100.0)), 999)
    needed = PrintedMixedCost("forward_scan", r, uniform(2, 10, 1_000, 2_296), MEMORY).needed_frames()
    assert needed == pytest.approx((10 * 3 + 6 * 2) / 3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_mixture_of_one_class_is_the_simple_model(algorithm: Algorithm) -> None:
    plain = uniform(10, 100, 10_000, 2_296)
    a, b = (PrintedMixedCost(algorithm, x, x, MEMORY) for x in (plain, replace(plain, classes=((10.0, 100.0),))))
    assert a.spills()
    assert b.spills()
    assert b.io() == pytest.approx(a.io())
    assert b.needed_frames() == pytest.approx(a.needed_frames())
