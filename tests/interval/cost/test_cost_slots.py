"""OIP's slots: partition pairs, partition sizes, and how many slots to take."""

from __future__ import annotations

import pytest
from tests.interval.cost.reference import steady
from tests.interval.cost.reference_partitions import oip_comparisons, slotted
from tests.interval.cost.uniform import uniform

from dovetail.errors import PlanError
from dovetail.joins.interval.cost import FrameMemory, IntervalStatistics, OverlapPartitionCost, choose_slots
from dovetail.joins.interval.cost.partitions import usable_partitions

MEMORY = FrameMemory()


def model(d: int, k: int, time_range: int) -> OverlapPartitionCost:
    x = uniform(1, d, time_range, 74)
    return OverlapPartitionCost(x, x, MEMORY, k)


def test_partition_sizes_against_counting() -> None:
    for width in range(1, 21):
        for d in range(1, 61):
            k = 8
            cost = model(d, k, width * k)
            spans = [(start + d - 1) // width + 1 for start in range(width)]
            smaller = -(-d // width)
            assert cost.slot_width() == width
            assert cost.starts_within(cost.r) == spans.count(smaller)
            assert dict(cost.groups(cost.r)) == {i: spans.count(i) for i in set(spans)}


def test_example_of_five_slots() -> None:
    cost = model(13, 5, 25)
    assert cost.slot_width() == 5
    assert dict(cost.groups(cost.r)) == {3: 3, 4: 2}
    assert cost.starts_within(cost.r) == 3


def test_an_input_spills_if_it_has_more_frames_than_two_less_than_memory() -> None:
    def spills(frames: int) -> bool:
        x = IntervalStatistics(3 * frames, 0, 100, 1, 1, 2_296)
        return OverlapPartitionCost(x, x, MEMORY).spills()

    assert [spills(n) for n in (254, 255)] == [False, True]


def test_usable_partitions_bound_the_ones_in_use() -> None:
    for d in (1, 7, 40, 300):
        x, table = uniform(2, d, 1_000, 74), steady(1_000, 2, d)
        for k in (1, 3, 10, 50):
            inside = slotted(table, -(-1_000 // k))
            used = int((inside.last < k).sum())
            assert used <= usable_partitions(x, k, x.time_range)


@pytest.mark.parametrize("setting", [(10, 10), (10, 100), (100, 10), (1, 300), (3, 1)])
def test_the_slots_are_a_fixpoint(setting: tuple[int, int]) -> None:
    x = uniform(*setting, 1_000, 74)
    k = choose_slots(x, x, 110)
    assert 1 <= k <= 1_000
    tau = usable_partitions(x, k, 1_000) / ((k * k + k) / 2)
    benefit = 10 / 110 + 4 * x.rows * 0.5 / usable_partitions(x, k, 1_000)
    following = min(1_000, int((3 * x.rows / (2 * 11 * tau) * benefit) ** (1 / 3)))
    assert abs(following - k) <= max(2, 0.02 * k)  # the iteration may end in a cycle of two neighbours


def test_chosen_slots_are_better_than_few() -> None:
    x, table = uniform(10, 10, 1_000, 74), steady(1_000, 10, 10)
    chosen = OverlapPartitionCost(x, x, MEMORY)
    assert chosen.k == choose_slots(x, x, 110)
    few, many = (oip_comparisons(table, table, -(-1_000 // k)) for k in (5, chosen.k))
    assert many < few / 2


def test_slots_of_degenerate_inputs() -> None:
    x, empty = uniform(10, 10, 1_000, 74), IntervalStatistics(0, 0, 0, 0, 0, 74)
    assert choose_slots(x, empty, 110) == choose_slots(empty, x, 110) == 1
    one = IntervalStatistics(1, 5, 6, 1, 1, 74)
    assert choose_slots(one, one, 110) == 1
    beyond = uniform(10, 5_000, 1_000, 74)
    assert OverlapPartitionCost(beyond, beyond, MEMORY).cpu() >= 10_000 * 10_000
    with pytest.raises(PlanError, match="give at least 1"):
        OverlapPartitionCost(x, x, MEMORY, slots=-1)
    with pytest.raises(PlanError, match="give > 0"):
        choose_slots(x, x, 110, compare_cost=0)
