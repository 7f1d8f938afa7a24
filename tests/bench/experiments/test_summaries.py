"""Summaries of given intervals, which the experiments on models start from."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from bench.experiments.models.interval import length_classes, summarise
from hypothesis import given, settings

from dovetail.errors import PlanError
from dovetail.joins.interval.cost import IntervalStatistics


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: length_classes([1.0, 0.0], 1.0), "positive and finite"),
        (lambda: length_classes([1.0], 1.0, limit=0), "at least 1"),
        (lambda: summarise([1, 5], [2, 5], 8), "start >= end"),
    ],
)
def test_intervals_without_a_length_are_refused(build: Callable[[], object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        build()


def test_no_intervals_are_an_input_without_rows() -> None:
    assert summarise([], [], 74) == IntervalStatistics(0, 0, 0, 0, 0, 74)


def test_few_lengths_are_classes_of_their_own() -> None:
    assert length_classes([5, 7, 5, 5], 8.0) == ((6.0, 5.0), (2.0, 7.0))
    assert length_classes([], 8.0) == ()


@settings(deadline=None, derandomize=True)
@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=300), st.floats(0.01, 1e4), st.integers(1, 20))
def test_classes_keep_the_rate_and_the_active_rows(lengths: list[float], rate: float, limit: int) -> None:
    classes = length_classes(lengths, rate, limit=limit)
    assert 1 <= len(classes) <= limit
    assert sum(r for r, _ in classes) == pytest.approx(rate)
    assert sum(r * d for r, d in classes) == pytest.approx(rate * float(np.mean(lengths)))
    durations = [d for _, d in classes]
    assert durations == sorted(durations)


def test_classes_are_at_least_an_octave_wide() -> None:
    lengths = 2.0 ** np.linspace(0, 20, 20_000)
    durations = np.array([d for _, d in length_classes(lengths, 1.0, limit=10)])
    assert durations.size == 10
    assert np.allclose(np.log2(durations[1:] / durations[:-1]), 2.0, atol=0.01)


def test_a_summary_of_a_sample_stands_for_all_rows() -> None:
    rng = np.random.default_rng(7)
    starts = rng.integers(0, 100_000, 5_000)
    ends = starts + rng.integers(1, 1_000, 5_000)
    sample = summarise(starts, ends, 40, rows=50_000)
    assert sample.rows == 50_000
    assert sample.active == pytest.approx(50_000 / sample.time_range * float((ends - starts).mean()))
    assert sample.max_duration == (ends - starts).max()
    assert (sample.start_min, sample.start_max, sample.end_max) == (starts.min(), starts.max(), ends.max())
