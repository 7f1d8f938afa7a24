"""The source's figures: exact comparisons, pairs, spills and frames of the operators on deterministic data."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interval.operators.operator_cases import ALGORITHMS, RELATIONS, run, steady

from dovetail.joins.interval.operators import (
    DisjointPartitionJoin,
    ForwardScanJoin,
    Frames,
    SortMergeJoin,
    TimeSweepJoin,
)
from dovetail.joins.interval.relation import Relation

OVERLAPPING = Relation.parse("overlapping")


def _count(
    algorithm: Any, left: Any, right: Any, relation: Relation = OVERLAPPING, frames: Frames | None = None
) -> Any:
    return run(algorithm(relation=relation, emit="count", frames=frames), left, right, 8192, "256MB")[1]


@pytest.mark.parametrize(
    ("algorithm", "comparisons", "unproductive"),
    [
        (SortMergeJoin, 1_900_900, 9_900),
        (TimeSweepJoin, 1_891_000, 0),
        (ForwardScanJoin, 1_910_800, 19_800),
        (DisjointPartitionJoin, 1_990_000, 99_000),
    ],
)
def test_comparisons_in_memory_are_those_of_the_specification(
    algorithm: Any, comparisons: int, unproductive: int
) -> None:
    rows = steady(1000, 10, 10)
    metrics = _count(algorithm, rows, rows)
    assert metrics.value("pairs") == metrics.value("comparisons_productive") == 1_891_000
    assert metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive") == comparisons
    assert metrics.value("comparisons_unproductive") == unproductive
    assert metrics.value("spills") == metrics.value("rows_written") == metrics.value("rows_read") == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_result_sizes_of_every_relation(algorithm: Any) -> None:
    left, right = steady(1000, 10, 20), steady(1000, 10, 10)
    sizes = dict(zip(RELATIONS, (2_876_500, 886_500, 895_500, 1_094_500, 0), strict=True))
    for relation, size in sizes.items():
        assert _count(algorithm, left, right, Relation.parse(relation)).value("pairs") == size


# Spills on the left input, and frames written plus read of the tuple-level simulation, all 768 tuples holding data.
SIMULATED = {
    (SortMergeJoin, 10, 50): (130, 75_947),
    (SortMergeJoin, 10, 100): (130, 119_103),
    (SortMergeJoin, 50, 10): (651, 372_133),
    (SortMergeJoin, 100, 10): (1302, 1_155_800),
    (ForwardScanJoin, 10, 50): (200, 80_470),
    (ForwardScanJoin, 10, 100): (130, 119_170),
    (TimeSweepJoin, 10, 50): (None, 120_879),
    (TimeSweepJoin, 10, 100): (None, 194_461),
}


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "rate", "duration"), SIMULATED)
def test_spills_and_frames_follow_the_simulation(algorithm: Any, rate: int, duration: int) -> None:
    spills, frames = SIMULATED[algorithm, rate, duration]
    rows = steady(10_000, rate, duration)
    metrics = _count(algorithm, rows, rows, frames=Frames(256, 8192, 2296))
    pairs = rate * rate * ((2 * duration - 1) * 10_000 - duration * (duration - 1))
    assert metrics.value("pairs") == pairs  # equation 4.3, exact on this data
    assert metrics.value("active_peak") <= 769  # a selected forward-scan tuple may stand in its input frame
    if spills is not None:
        assert metrics.value("spills", "left") == spills
        assert metrics.value("spills", "right") == 0
    moved = metrics.value("frames_written") + metrics.value("frames_read")
    assert moved == pytest.approx(frames, rel=0.003)
    assert metrics.value("rows_written", "left") <= rows.num_rows  # no tuple is written twice


def test_covers_and_overlaps_hold_fewer_tuples_than_overlapping() -> None:
    left, right = steady(1000, 10, 200), steady(1000, 10, 100)
    for algorithm in (SortMergeJoin, TimeSweepJoin, ForwardScanJoin):
        held = {
            name: _count(algorithm, left, right, Relation.parse(name)).value("active_peak")
            for name in ("overlapping", "covers", "overlaps")
        }
        assert held["covers"] < held["overlapping"]
        assert held["overlaps"] < held["overlapping"]


def test_disjoint_partitions_are_as_many_as_active_tuples_and_comparisons_do_not_depend_on_the_relation() -> None:
    rows = steady(1000, 10, 10)
    seen = set()
    for relation in RELATIONS:
        metrics = _count(DisjointPartitionJoin, rows, rows, Relation.parse(relation))
        assert metrics.value("partitions", "left") == metrics.value("partitions", "right") == 100
        seen.add(metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive"))
    assert seen == {1_990_000}


def test_disjoint_partitioning_under_memory_follows_the_model() -> None:
    rows = steady(1000, 10, 50)
    frames = Frames(256, 8192, 2296)
    found = [
        _count(DisjointPartitionJoin, rows, rows, Relation.parse(name), frames) for name in ("overlapping", "covers")
    ]
    for metrics in found:
        # Equations 4.60 to 4.64: 500 partitions of ceil(3334 / 500) = 7 frames, in ceil(3500 / 255) = 14 batches.
        assert metrics.value("partitions", "left") == 500
        assert metrics.value("overflow_passes", "left") == 1  # 255 partitions fit in a pass
        assert metrics.value("inner_batches") == 14
        assert metrics.value("frames_read", "left") == 14 * 3500
        assert metrics.value("frames_read", "right") == 3500
        assert metrics.value("rows_written", "left") == metrics.value("rows_written", "right") == 10_000
    names = ("comparisons_productive", "comparisons_unproductive")
    assert len({sum(m.value(name) for name in names) for m in found}) == 1


def test_table_3_3_of_the_source() -> None:
    sizes = {74: (28_160, 453_376), 296: (6_912, 113_152), 2296: (768, 14_592)}
    for tuple_bytes, tuples in sizes.items():
        assert tuple(Frames(256, f, tuple_bytes).tuples for f in (8192, 131_072)) == tuples
    assert Frames(256, 8192, 2296, reserved=4).tuples == 756


def test_a_spilling_forward_scan_takes_no_more_of_the_processor_than_twice_the_best_sweep() -> None:
    """Rate 10, duration 50, tuples of 2,296 bytes: pairs within memory cost as little as those of a pass over disk."""
    rows, frames = steady(600, 10, 50), Frames(256, 8192, 2296)
    least: dict[Any, float] = {}
    for _ in range(5):
        for algorithm in (SortMergeJoin, TimeSweepJoin, ForwardScanJoin):
            began = time.process_time()
            metrics = _count(algorithm, rows, rows, frames=frames)
            taken = time.process_time() - began
            assert metrics.value("spills") > 0
            least[algorithm] = min(taken, least.get(algorithm, taken))
    assert least[ForwardScanJoin] <= 2 * min(least.values()), least
