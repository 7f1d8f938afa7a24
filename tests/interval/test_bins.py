"""Bins: cheap for what the sample shows, and never beyond reason for what it does not."""

from __future__ import annotations

import numpy as np

from dovetail.joins.interval.plan.bins import Bins, choose_bins
from dovetail.joins.interval.plan.statistics import Sample


def sample(start: np.ndarray, length: np.ndarray, rows: int = 1_000_000) -> Sample:
    return Sample(start.astype(float), (start + length).astype(float), np.zeros(len(start), np.int64), rows)


def uniform(length: np.ndarray, seed: int = 1, rows: int = 1_000_000) -> Sample:
    start = np.random.default_rng(seed).integers(0, 10**8, len(length))
    return sample(start, length, rows)


def test_equal_lengths_need_one_level() -> None:
    bins = choose_bins(uniform(np.full(4000, 1000), 1), uniform(np.full(4000, 1000), 2))
    assert bins.levels == 1
    assert 500 <= bins.widths[0] <= 64_000


def test_many_short_and_few_giant_intervals_need_levels_and_beat_any_single_width() -> None:
    lengths = np.where(np.arange(4000) % 500 == 0, 5e7, 10.0)
    left, right = uniform(lengths, 4), uniform(lengths, 5)
    bins = choose_bins(left, right)
    assert bins.levels > 1
    widths = (10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
    assert bins.seconds < min(choose_single(left, right, width).seconds for width in widths)


def choose_single(left: Sample, right: Sample, width: float) -> Bins:
    from dovetail.joins.interval.plan.bins import _priced

    return _priced(left, right, Bins(0.0, 1e8, (float(width),)))


def test_one_giant_that_the_sample_missed_gets_a_level_of_its_own() -> None:
    short = uniform(np.full(4000, 3), 6)
    bins = choose_bins(short, short, max_length=9e7)
    assert bins.levels == 2
    assert bins.widths[-1] >= 9e7


def test_open_ends_do_not_stretch_the_axis() -> None:
    start = np.arange(4000) * 100.0
    end = np.where(np.arange(4000) % 200 == 0, np.inf, start + 50)
    rows = Sample(start, end, np.zeros(4000, np.int64), 4000)
    bins = choose_bins(rows, rows, max_length=np.inf)
    assert np.isfinite(bins.widths).all()
    assert bins.high < 1e6


def test_degenerate_samples_still_give_bins() -> None:
    nothing = Sample(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), 0)
    constant = sample(np.full(10, 7), np.zeros(10))
    huge = Sample(np.full(5, 1e30), np.full(5, 1e30), np.zeros(5, np.int64), 5)
    for one in (nothing, constant, huge):
        bins = choose_bins(one, one)
        assert bins.high > bins.low
        assert all(width > 0 for width in bins.widths)


def test_home_is_the_narrowest_level_that_is_no_shorter() -> None:
    bins = Bins(0.0, 1000.0, (1.0, 10.0, 100.0))
    assert bins.home(np.array([0.0, 1.0, 1.5, 10.0, 99.0, 5000.0])).tolist() == [0, 0, 1, 1, 2, 2]
