"""Predicted result sizes against the source's tables and against counting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench.experiments.interval.printed import join_estimate_at
from bench.experiments.models.interval import summarise
from tests import oracle
from tests.interval.cost.reference import Table, steady
from tests.interval.cost.uniform import uniform

from dovetail.errors import PlanError
from dovetail.joins.interval.cost import IntervalStatistics, expected_pairs
from dovetail.joins.interval.cost.model import RELATIONS, lattice_pairs

SIZES = [  # range, rate, d_R, d_S: overlapping, covers, overlaps, overlapped_by, covered_by
    ((1_000, 10, 10, 10), (1_891_000, 100_000, 895_500, 895_500, 100_000)),
    ((1_000, 100, 10, 10), (189_100_000, 10_000_000, 89_550_000, 89_550_000, 10_000_000)),
    ((1_000, 10, 100, 100), (18_910_000, 100_000, 9_405_000, 9_405_000, 100_000)),
    ((10_000, 10, 10, 10), (18_991_000, 1_000_000, 8_995_500, 8_995_500, 1_000_000)),
    ((10_000, 10, 100, 100), (198_010_000, 1_000_000, 98_505_000, 98_505_000, 1_000_000)),
    ((1_000, 10, 20, 10), (2_876_500, 1_094_500, 886_500, 895_500, 0)),
    ((1_000, 100, 20, 10), (287_650_000, 109_450_000, 88_650_000, 89_550_000, 0)),
    ((1_000, 10, 200, 100), (27_415_000, 9_595_000, 8_415_000, 9_405_000, 0)),
    ((10_000, 10, 20, 10), (28_976_500, 10_994_500, 8_986_500, 8_995_500, 0)),
    ((10_000, 10, 200, 100), (296_515_000, 100_495_000, 97_515_000, 98_505_000, 0)),
]
NAMES = ("overlapping", "covers", "overlaps", "overlapped_by", "covered_by")


@pytest.mark.parametrize(("setting", "sizes"), SIZES)
def test_exact_result_sizes_of_the_datasets(setting: tuple[int, int, int, int], sizes: tuple[int, ...]) -> None:
    time_range, rate, d_r, d_s = setting
    r, s = uniform(rate, d_r, time_range, 74), uniform(rate, d_s, time_range, 74)
    assert tuple(expected_pairs(r, s, (name,)) for name in NAMES) == sizes
    assert join_estimate_at("single", r, s) == join_estimate_at("single", r, s, "printed") == sizes[0]


def overlaps_counted(r: Table, s: Table) -> int:
    """R rows times S rows, less the pairs in which one ends before the other starts."""
    ends_before = np.searchsorted(np.sort(s.ends), r.starts, side="right").sum()
    starts_after = (s.starts.size - np.searchsorted(s.starts, r.ends, side="left")).sum()
    return int(r.starts.size * s.starts.size - ends_before - starts_after)


def test_partition_counts_against_counting() -> None:
    r, s = steady(1_000, 1, 20), steady(1_000, 1, 10)
    hits = (r.starts[:, None] < s.ends[None, :]) & (s.starts[None, :] < r.ends[:, None])
    by_r = np.bincount(np.nonzero(hits)[0] // 250)
    later = np.maximum(r.starts[:, None], s.starts[None, :])[hits]
    assert by_r.tolist() == [7205, 7250, 7250, 7060]
    assert np.bincount(later // 250).tolist() == [7015, 7250, 7250, 7250]


def test_lattice_pairs_counts() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        n, m = rng.integers(0, 15, 2).tolist()
        low, high = sorted(rng.integers(-20, 21, 2).tolist())
        counted = sum(low <= y - x <= high for x in range(n) for y in range(m))
        assert lattice_pairs(n, m, low, high) == counted


def definition(name: str, strict: bool) -> object:
    if name == "overlapping":
        return lambda ls, le, rs, re: ls < re and rs < le
    if name in oracle.ALIASES:
        return oracle.ALLEN[oracle.ALIASES[name]]
    return (oracle.ALLEN if strict else oracle.TABLE)[name]


@pytest.mark.parametrize("strict", [False, True])
def test_every_relation_over_any_ranges_against_the_definitions(strict: bool) -> None:
    rng = np.random.default_rng(11)
    for name in RELATIONS:
        meets = definition(name, strict)
        assert callable(meets)
        for _ in range(25):
            n, m, rate_r, rate_s, d_r, d_s = rng.integers(1, 13, 6).tolist()
            shift = int(rng.integers(-15, 16))
            counted = sum(meets(x, x + d_r, y, y + d_s) for x in range(n) for y in range(shift, shift + m))
            r = uniform(rate_r, d_r, n, 74)
            s = IntervalStatistics(rate_s * m, shift, shift + m - 1 + d_s, d_s, d_s, 74, start_max=shift + m - 1)
            size = expected_pairs(r, s, (name,), strict=strict)
            assert size == pytest.approx(counted * rate_r * rate_s), (name, n, m, d_r, d_s, shift)


def test_a_set_of_relations_counts_each_pair_once() -> None:
    r, s = uniform(3, 12, 100, 74), uniform(2, 7, 100, 74)
    parts = ("overlaps", "overlapped_by", "covers", "covered_by")
    assert expected_pairs(r, s, parts) == expected_pairs(r, s) == expected_pairs(r, s, (*parts, "overlapping"))
    assert expected_pairs(r, s, ("overlapping", "before", "after", "meets", "met_by")) == r.rows * s.rows
    with pytest.raises(PlanError, match="unknown relation 'near'"):
        expected_pairs(r, s, ("near",))
    with pytest.raises(PlanError, match="at least one"):
        expected_pairs(r, s, ())


def test_mixed_random_inputs_are_predicted_from_a_summary() -> None:
    rng = np.random.default_rng(5)
    tables, summaries = [], []
    for n in (20_000, 30_000):
        starts = np.sort(rng.integers(0, 1_000_000, n))
        ends = starts + np.exp(rng.uniform(0, np.log(100_000), n)).astype(np.int64).clip(1)
        tables.append(Table(starts, ends))
        summaries.append(summarise(starts, ends, 74))
    actual = overlaps_counted(tables[0], tables[1])
    assert expected_pairs(summaries[0], summaries[1]) == pytest.approx(actual, rel=0.01)


def test_no_rows_no_pairs() -> None:
    some, none = uniform(3, 5, 100, 74), replace(uniform(3, 5, 100, 74), rows=0)
    assert expected_pairs(some, none) == expected_pairs(none, some) == expected_pairs(none, none) == 0
