"""Comparisons of the sweeps on intervals of mixed durations: as many as the source's cost model has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval.operators.operator_cases import expected, random_side, run

from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.operators import ForwardScanJoin, Frames, SortMergeJoin
from dovetail.joins.interval.relation import Relation

OVERLAPPING = Relation.parse("overlapping")


def mixed(time: int = 300, rate: int = 3, name: str = "id") -> pa.RecordBatch:
    """At every instant `rate` intervals of one instant and as many of forty start."""
    start = np.repeat(np.arange(time), 2 * rate)
    length = np.tile(np.repeat([1, 40], rate), time)
    order = np.lexsort((start + length, start))
    columns = {"_start": start[order], "_end": (start + length)[order], "_key": np.zeros(start.size, np.int64)}
    return pa.record_batch({**columns, name: np.arange(start.size)})


def comparisons(metrics: Metrics) -> float:
    return metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive")


def test_sort_merge_makes_the_comparisons_of_the_model() -> None:
    left, right = mixed(name="l"), mixed(name="r")
    found, metrics = run(SortMergeJoin(relation=OVERLAPPING, keyed=False), left, right, 100, 50_000_000)
    end, last = left["_end"].to_numpy(), right["_start"].to_numpy()[-1]
    assert found == expected(OVERLAPPING, left, right)
    # One comparison a pair, and one for each left row whose matches end before the right input does: equation 4.19.
    assert comparisons(metrics) == len(found) + int((end <= last).sum())


@pytest.mark.parametrize("algorithm", [SortMergeJoin, ForwardScanJoin])
def test_spilling_adds_a_comparison_a_tuple_passed_not_one_a_tuple_held(algorithm: Any) -> None:
    left, right = mixed(name="l"), mixed(name="r")
    frames = Frames(5, 20, 1)
    found, metrics = run(algorithm(relation=OVERLAPPING, frames=frames), left, right, 100, 50_000_000)
    assert found == expected(OVERLAPPING, left, right)
    assert sum(metrics.value("spills", side) for side in ("left", "right")) > 10
    passed = sum(metrics.value(name, side) for name in ("rows_in", "rows_read") for side in ("left", "right"))
    held = comparisons(metrics) - len(found)
    assert held <= 2 * passed


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", ["overlapping", "covers", "covered_by", "overlaps", "overlapped_by", "starts"])
@pytest.mark.parametrize("algorithm", [SortMergeJoin, ForwardScanJoin])
@pytest.mark.parametrize("closed", ["left", "both"])
def test_the_end_of_a_scan_loses_no_pair(algorithm: Any, relation: str, closed: Any) -> None:
    meant = Relation.parse(relation, False, closed)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        left, right = random_side(rng, 150, 60, 30, 2, "l"), random_side(rng, 150, 60, 30, 2, "r")
        spec = algorithm(relation=meant, keyed=True, shift=int(closed == "both"), frames=Frames(5, 3, 2))
        found, metrics = run(spec, left, right, 7, 50_000_000)
        assert found == expected(meant, left, right, keyed=True, shift=int(closed == "both"))
        assert metrics.value("spills", "left") + metrics.value("spills", "right") > 0 or relation == "starts"
