"""C_IO of every model: the source's setting to the digit, and against the frames of the reference runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from bench.experiments.interval.model_errors import overflow_frames
from bench.experiments.interval.printed import OverlapPartitionEquations
from tests.interval.cost.reference import forward_scan, sort_merge, steady, time_sweep
from tests.interval.cost.reference_partitions import dip_frames, oip_frames
from tests.interval.cost.test_cost_comparisons import error, mixed
from tests.interval.cost.uniform import uniform

from dovetail.joins.interval.cost import (
    CostModel,
    DisjointPartitionCost,
    ForwardScanCost,
    FrameMemory,
    MixedCost,
    OverlapPartitionCost,
    SortMergeCost,
    TimeSweepCost,
    freed_share,
)
from dovetail.joins.interval.cost.model import Phases

MEMORY = FrameMemory(8_192, 256)  # 2 MB; three tuples of 2,296 bytes per frame, 768 in all
SETTINGS = [(10, 50), (10, 100), (50, 10), (100, 10)]
MODEL = {
    "sort_merge": (76_234, 118_907, 372_817, 1_157_334),
    "time_sweep": (130_297, 194_816, 626_090, 1_838_036),
    "forward_scan": (82_159, 119_677, 410_691, 1_200_927),
    "dip": (4_522_168, 4_656_668, 109_885_334, 438_540_668),
}
SIMULATED = {  # all 768 tuples hold data; reserved frames deducted
    "sort_merge": ((75_947, 119_103, 372_133, 1_155_800), (76_623, 120_453, 375_383, 1_168_667)),
    "time_sweep": ((120_879, 194_461, 553_429, 1_841_577), (127_991, 197_262, 571_599, 1_861_582)),
    "forward_scan": ((80_470, 119_170, 377_017, 1_157_499), (81_470, 120_596, 382_017, 1_172_623)),
}
SPILLS = {
    "sort_merge": ((130, 130, 651, 1_302), (132, 132, 661, 1_322)),
    "forward_scan": ((200, 130, 1_000, 1_304), (200, 133, 1_000, 1_330)),
}
MODELS: dict[str, Callable[..., CostModel]] = {
    "sort_merge": SortMergeCost,
    "time_sweep": TimeSweepCost,
    "forward_scan": ForwardScanCost,
    "dip": DisjointPartitionCost,
}
RUNS = {"sort_merge": sort_merge, "time_sweep": time_sweep, "forward_scan": forward_scan}
AVAILABLE = {"sort_merge": 756, "time_sweep": 753, "forward_scan": 753}
GATE = {"sort_merge": 3.1, "time_sweep": 13.2, "forward_scan": 9.0}  # percent


@pytest.mark.parametrize(("setting", "place"), [(setting, i) for i, setting in enumerate(SETTINGS)])
def test_model_values_to_the_digit(setting: tuple[int, int], place: int) -> None:
    x = uniform(*setting, 10_000, 2_296)
    for name, model in MODELS.items():
        cost = model(x, x, MEMORY)
        assert cost.spills(), name
        assert round(cost.io()) == MODEL[name][place], name
    assert SortMergeCost(x, x, MEMORY).f_r == (33_334, 33_334, 166_667, 333_334)[place]


@pytest.mark.parametrize(("setting", "place"), [(setting, i) for i, setting in enumerate(SETTINGS)])
def test_reference_runs_and_their_distance_from_the_model(setting: tuple[int, int], place: int) -> None:
    x, table = uniform(*setting, 10_000, 2_296), steady(10_000, *setting)
    for name, run in RUNS.items():
        for reading, capacity in enumerate((768, AVAILABLE[name])):
            counts = run(table, table, capacity)
            assert round(counts.frames(3)) == SIMULATED[name][reading][place], name
            assert error(counts.frames(3), MODELS[name](x, x, MEMORY).io()) <= GATE[name], name
            if name in SPILLS:
                assert (counts.spills_r, counts.spills_s) == (SPILLS[name][reading][place], 0)


def test_sort_merge_spill_counts_are_predicted() -> None:
    totals = [SortMergeCost(x, x, MEMORY).n_spills() for x in (uniform(*s, 10_000, 2_296) for s in SETTINGS)]
    assert totals == [130, 130, 651, 1_302]


DIP_PRINTED = (1.65, 1.71, 0.48, 0.49)


@pytest.mark.parametrize(("setting", "place"), [(setting, i) for i, setting in enumerate(SETTINGS)])
def test_dip_frames(setting: tuple[int, int], place: int) -> None:
    x, table = uniform(*setting, 10_000, 2_296), steady(10_000, *setting)
    model = DisjointPartitionCost(x, x, MEMORY)
    observed = dip_frames(table, table, MEMORY.frames, 3)
    # at d = 100 the overflow passes, which the equations leave out, weigh 4 %
    assert error(observed, model.io()) <= max(DIP_PRINTED[place], 4.1 if setting == (10, 100) else 0.0)
    assert error(observed, model.io() + overflow_frames(model)) < 0.03


OIP_PRINTED = (0.31, 1.00, 2.61, 28.82)


@pytest.mark.parametrize(("setting", "gate"), [((10, 50), 1.7), ((10, 100), 2.5), ((50, 10), 8.4)])
def test_oip_frames(setting: tuple[int, int], gate: float) -> None:
    x, table = uniform(*setting, 10_000, 2_296), steady(10_000, *setting)
    model = OverlapPartitionEquations(x, x, MEMORY)
    per_partition, per_block = oip_frames(table, table, model.slot_width(), MEMORY.frames, 3)
    assert error(per_partition, model.io()) <= gate <= max(OIP_PRINTED)
    assert error(per_block, OverlapPartitionCost(x, x, MEMORY).io()) < 1.2
    assert model.io() > 2 * per_block  # the equations read R once per S partition, the blocked join once per block


@pytest.mark.parametrize(
    ("setting", "gates"),
    [
        ((10, 50), {"sort_merge": 0.5, "time_sweep": 20, "forward_scan": 1.0, "dip": 0.2, "oip": 1.5}),
        ((10, 100), {"sort_merge": 1.1, "time_sweep": 26, "forward_scan": 1.1, "dip": 3.9, "oip": 1.0}),
        ((50, 10), {"sort_merge": 0.3, "time_sweep": 1.0, "forward_scan": 7.2, "dip": 0.3}),
    ],
)
def test_worst_case_frames_of_mixed_self_joins(setting: tuple[int, int], gates: dict[str, float]) -> None:
    table, x = mixed(10_000, *setting, 2_296)
    observed = {name: run(table, table, AVAILABLE[name]).frames(3) for name, run in RUNS.items()}
    observed["dip"] = dip_frames(table, table, MEMORY.frames, 3)
    if "oip" in gates:
        oip = MixedCost("oip", x, x, MEMORY)
        observed["oip"] = oip_frames(table, table, -(-10_000 // oip.slots), MEMORY.frames, 3)[1]
    for name, gate in gates.items():
        cost = MixedCost(name, x, x, MEMORY)  # type: ignore[arg-type]  # a literal
        assert cost.spills()
        assert error(observed[name], cost.io()) <= gate, name


def test_share_of_memory_freed_per_spill() -> None:
    assert freed_share(7, 7) == pytest.approx(2 / 3)
    for l_r, l_s in ((1, 1), (50, 20), (3, 400)):
        smaller = share = min(l_r, l_s) / (l_r + l_s)  # what the first spill frees
        for _ in range(200):
            share = 1 - smaller * share
        assert share == pytest.approx(freed_share(l_r, l_s))


def test_memory_beside_s_in_the_forward_scan_is_what_r_tuples_load() -> None:
    r, s = uniform(10, 60, 10_000, 2_296), uniform(10, 30, 10_000, 2_296)
    assert ForwardScanCost(r, s, MEMORY).before_c() == pytest.approx(200 - (256 - 60 * 10 / 3))
    small = uniform(1, 2, 10_000, 2_296)
    assert ForwardScanCost(small, s, MEMORY).before_c() == 0


def test_the_forward_scan_spills_the_input_that_holds_less() -> None:
    long, dense = uniform(5, 200, 3_000, 2_296), uniform(40, 10, 3_000, 2_296)
    run = forward_scan(steady(3_000, 5, 200), steady(3_000, 40, 10), 753)
    assert run.spills_r > 0 == run.spills_s  # S fills memory: 40 * 200 tuples start inside an R tuple
    assert ForwardScanCost(long, dense, MEMORY).spilled_first().r == long
    assert ForwardScanCost(dense, long, MEMORY).spilled_first().r == long


def test_phases_never_count_more_spills_than_there_are() -> None:
    dense = uniform(400, 95, 100, 2_296)
    scan, sweep = ForwardScanCost(dense, dense, MEMORY), TimeSweepCost(dense, dense, MEMORY)
    assert [math.ceil(some / scan.spill_increment()) for some in (scan.before_c(), scan.during_c())] == [50, 50]
    assert scan.phases() == Phases(50, 0, scan.n_spills() - 50)
    assert math.floor(sweep.steady_spill()[0] / sweep.spill_increment()[0]) == 97
    assert sweep.phases()[0] == Phases(0, 0, sweep.totals()[0])
    assert (scan.n_spills(), sweep.totals()[0]) == (pytest.approx(51.0859375), 78)
