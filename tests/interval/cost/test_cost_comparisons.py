"""C_CPU of every model against the comparisons that the reference runs count."""

from __future__ import annotations

import pytest
from bench.experiments.interval.printed import MixedEquations, OverlapPartitionEquations, PrintedOverlapPartitionCost
from tests.interval.cost.reference import Table, forward_scan, sort_merge, steady, time_sweep, union
from tests.interval.cost.reference_partitions import dip, oip_comparisons
from tests.interval.cost.uniform import uniform

from dovetail.joins.interval.cost import (
    CostModel,
    DisjointPartitionCost,
    ForwardScanCost,
    FrameMemory,
    IntervalStatistics,
    MixedCost,
    OverlapPartitionCost,
    SortMergeCost,
    TimeSweepCost,
    expected_pairs,
)

AMPLE = FrameMemory(2**30)
ENOUGH = 10**6

MODELS: dict[str, type[CostModel]] = {
    "sort_merge": SortMergeCost,
    "time_sweep": TimeSweepCost,
    "forward_scan": ForwardScanCost,
    "dip": DisjointPartitionCost,
}


def counted(x: Table, y: Table) -> dict[str, int]:
    return {
        "sort_merge": sort_merge(x, y, ENOUGH).compared,
        "time_sweep": time_sweep(x, y, ENOUGH).compared,
        "forward_scan": forward_scan(x, y, ENOUGH).compared,
        "dip": dip(x, y)[1],
    }


def error(observed: float, predicted: float) -> float:
    """Percent of the observed value, as in the source's tables."""
    return abs(observed - predicted) / observed * 100


@pytest.mark.slow
def test_the_base_dataset_to_the_comparison() -> None:
    x = uniform(10, 10, 1_000, 74)
    table = steady(1_000, 10, 10)
    assert counted(table, table) == {
        "sort_merge": 1_900_900,
        "time_sweep": 1_891_000,
        "forward_scan": 1_910_800,
        "dip": 1_990_000,
    }
    assert {name: model(x, x, AMPLE).cpu() for name, model in MODELS.items()} == {
        "sort_merge": 1_900_910,
        "time_sweep": 1_891_000,
        "forward_scan": 1_910_820,
        "dip": 1_991_000,
    }
    assert dip(table, table)[2] == DisjointPartitionCost(x, x, AMPLE).n_partitions(x) == 100


ERRORS = {  # percent, for (lambda, d) in the order of SIMPLE
    "time_sweep": (0.000, 0.000, 0.000, 0.000, 0.000, 0.000),
    "sort_merge": (0.009, 0.001, 0.001, 0.001, 0.005, 0.000),
    "forward_scan": (0.017, 0.002, 0.001, 0.002, 0.010, 0.000),
    "dip": (0.050, 0.050, 0.050, 0.050, 0.050, 0.051),
}
SIMPLE = ((10, 1), (10, 5), (10, 10), (5, 10), (1, 10), (10, 50))


@pytest.mark.parametrize(("setting", "place"), [(setting, i) for i, setting in enumerate(SIMPLE)])
def test_error_on_simple_self_joins(setting: tuple[int, int], place: int) -> None:
    rate, d = setting
    x, table = uniform(rate, d, 1_000, 74), steady(1_000, rate, d)
    for name, observed in counted(table, table).items():
        assert error(observed, MODELS[name](x, x, AMPLE).cpu()) == pytest.approx(ERRORS[name][place], abs=0.0006)


@pytest.mark.parametrize(("rate", "d"), [(1, 10), (2, 5), (3, 10)])
def test_dip_edge_error_shrinks_with_the_range(rate: int, d: int) -> None:
    x, table = uniform(rate, d, 10_000, 74), steady(10_000, rate, d)
    assert error(dip(table, table)[1], DisjointPartitionCost(x, x, AMPLE).cpu()) == pytest.approx(0.005, abs=0.0003)


@pytest.mark.parametrize("r", [(3, 20), (10, 4), (1, 1)])
@pytest.mark.parametrize("s", [(2, 6), (7, 30), (1, 1)])
def test_inputs_of_different_rates_and_durations(r: tuple[int, int], s: tuple[int, int]) -> None:
    observed = counted(steady(1_000, *r), steady(1_000, *s))
    a, b = uniform(*r, 1_000, 74), uniform(*s, 1_000, 40)
    for name in ("sort_merge", "time_sweep", "forward_scan"):
        assert error(observed[name], MODELS[name](a, b, AMPLE).cpu()) < 0.07
    assert error(observed["dip"], DisjointPartitionCost(a, b, AMPLE).cpu()) < 2.0  # ends of R and S no longer coincide


def test_single_instants_are_no_special_case_of_sort_merge() -> None:
    x = uniform(10, 1, 1_000, 74)
    assert SortMergeCost(x, x, AMPLE).cpu() == 110_000  # the reference run counts 109,990


OIP = [  # d, k, error with the corrected and with the printed partition size
    (10, 20, 1.46, 3.84),
    (10, 50, 1.17, 8.92),
    (10, 30, 1.23, 8.60),
    (13, 40, 1.54, 6.21),
    (50, 33, 2.73, 0.01),
    (100, 20, 10.55, 9.35),
    (100, 10, 10.64, 9.63),
]


@pytest.mark.parametrize(("d", "k", "corrected", "printed"), OIP)
def test_oip_errors(d: int, k: int, corrected: float, printed: float) -> None:
    x, table = uniform(1, d, 1_000, 74), steady(1_000, 1, d)
    model = OverlapPartitionEquations(x, x, AMPLE, k)
    observed = oip_comparisons(table, table, model.slot_width())
    assert error(observed, model.cpu()) == pytest.approx(corrected, abs=0.005)
    assert error(observed, PrintedOverlapPartitionCost(x, x, AMPLE, k).cpu()) == pytest.approx(printed, abs=0.005)
    assert error(observed, OverlapPartitionCost(x, x, AMPLE, k).cpu()) < 0.6


MIXED = [(10, 1), (10, 5), (10, 10), (10, 50), (10, 100), (1, 10), (5, 10), (50, 10)]


def mixed(time_range: int, rate: int, d: int, tuple_bytes: int) -> tuple[Table, IntervalStatistics]:
    """The source's complex dataset: five rows of duration 5 per instant, and `rate` of duration `d`."""
    classes = ((5.0, 5.0), (float(rate), float(d)))
    longest, mean = max(5, d), (25 + rate * d) / (5 + rate)
    rows = (5 + rate) * time_range
    statistics = IntervalStatistics(
        rows, 0, time_range - 1 + longest, mean, longest, tuple_bytes, classes, time_range - 1
    )
    return union(steady(time_range, 5, 5), steady(time_range, rate, d)), statistics


@pytest.mark.parametrize(("rate", "d"), MIXED)
def test_error_on_mixed_self_joins(rate: int, d: int) -> None:
    table, x = mixed(1_000, rate, d, 74)
    observed = counted(table, table)
    assert expected_pairs(x, x) == time_sweep(table, table, ENOUGH).pairs
    for name in ("sort_merge", "time_sweep", "forward_scan"):
        assert error(observed[name], MixedCost(name, x, x, AMPLE).cpu()) < 0.005
    assert error(observed["dip"], MixedCost("dip", x, x, AMPLE).cpu()) < 1.5
    slots = oip_comparisons(table, table, 25)
    assert error(slots, MixedEquations("oip", x, x, AMPLE, 40).cpu()) < 9.4
    assert error(slots, MixedCost("oip", x, x, AMPLE, 40).cpu()) < 0.001


def test_a_spilling_sweep_adds_unproductive_comparisons_once() -> None:
    table, x = mixed(2_000, 10, 100, 2_296)
    memory = FrameMemory()
    worst = TimeSweepCost(x.worst_case(), x.worst_case(), memory)
    assert MixedCost("time_sweep", x, x, memory).cpu() == expected_pairs(x, x) + worst.unproductive()
    run = time_sweep(table, table, 753)
    assert run.pairs == expected_pairs(x, x)
    assert 0 < run.dropped <= worst.unproductive()  # the model charges every drop lambda times
