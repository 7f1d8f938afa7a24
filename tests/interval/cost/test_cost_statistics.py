"""Frames, statistics and duration classes: the numbers that every model starts from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.interval.cost.uniform import uniform

from dovetail.errors import PlanError
from dovetail.joins.interval.cost import FrameMemory, IntervalStatistics


@pytest.mark.parametrize(
    ("frame_bytes", "tuples"),
    [(8_192, {74: 28_160, 296: 6_912, 2_296: 768}), (131_072, {74: 453_376, 296: 113_152, 2_296: 14_592})],
)
def test_tuples_that_fill_memory_as_in_table_3_3(frame_bytes: int, tuples: dict[int, int]) -> None:
    memory = FrameMemory(frame_bytes)
    assert memory.frames == 256
    assert {b: memory.tuples(b) for b in tuples} == tuples
    assert {b: memory.tuples_per_frame(b) * 256 for b in tuples} == tuples


def test_frames_of_an_input_are_rounded_up() -> None:
    memory = FrameMemory(8_192)
    assert [memory.frames_of(n, 2_296) for n in (0, 1, 3, 4, 100_000)] == [0, 1, 1, 2, 33_334]


def test_a_budget_is_cut_into_256_frames_or_into_fewer_that_hold_a_tuple() -> None:
    assert FrameMemory.fitting(2 * 2**20, 74, 296) == FrameMemory(8_192, 256)
    assert FrameMemory.fitting(10_000, 74, 1_000) == FrameMemory(1_000, 10)
    assert FrameMemory.fitting(10_000, 999.5).tuples_per_frame(999.5) == 1


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: FrameMemory(0), "frame_bytes >= 1"),
        (lambda: FrameMemory(8_192, 5), "at least 6"),
        (lambda: FrameMemory.fitting(1_000, 500), "at least 3000 bytes"),
        (lambda: FrameMemory(100).tuples(101), "does not fit a frame"),
        (lambda: IntervalStatistics(-1, 0, 9, 1, 1, 8), "rows must be >= 0"),
        (lambda: IntervalStatistics(1, 0, 9, 1, 1, 0), "tuple_bytes must be positive"),
        (lambda: IntervalStatistics(1, 9, 9, 1, 1, 8), "is empty"),
        (lambda: IntervalStatistics(1, 0, 9, 0.5, 1, 8), "measured"),
        (lambda: IntervalStatistics(1, 0, 9, 3, 2, 8), "1 <= mean <= maximum"),
        (lambda: IntervalStatistics(1, 0, math.inf, 1, 1, 8), "finite"),
        (lambda: IntervalStatistics(1, 0, 9, 1, 1, 8, start_max=10), "start_max 10 lies outside"),
        (lambda: IntervalStatistics(10, 0, 10, 1, 1, 8, ((0.4, 1.0),)), "scale the rates"),
        (lambda: IntervalStatistics(10, 0, 10, 1, 1, 8, ((1.0, 2.0),)), "max_duration = 1"),
        (lambda: IntervalStatistics(10, 0, 10, 1, 1, 8).split_into(0), "at least 1"),
        (lambda: IntervalStatistics.measured(1, 0, 1, 2, 1, 1, 8, instants_per_unit=0), "must be positive"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_do(build: object, says: str) -> None:
    assert callable(build)
    with pytest.raises(PlanError, match=says.replace("(", r"\(")):
        build()


def test_derived_statistics_of_the_base_dataset() -> None:
    base = IntervalStatistics(10_000, 0, 1_009, 10, 10, 74)
    assert (base.time_range, base.arrival_rate, base.duration, base.active) == (1_000, 10, 10, 100)
    assert base == IntervalStatistics(10_000, 0, 1_009, 10, 10, 74, start_max=None)
    assert uniform(10, 10, 1_000, 74).arrival_rate == 10


def test_a_mixture_adds_rates_and_active_rows() -> None:
    mixed = IntervalStatistics(15_000, 0, 1_099, 205 / 3, 100, 74, ((5, 5), (10, 100)), 999)
    assert mixed.arrival_rate == 15
    assert mixed.active == 5 * 5 + 10 * 100
    assert [(x.rows, x.duration, x.arrival_rate) for x in mixed.subrelations()] == [(5_000, 5, 5), (10_000, 100, 10)]
    worst = mixed.worst_case()
    assert (worst.arrival_rate, worst.duration, worst.classes) == (15, 100, ())


def test_an_input_without_rows_is_allowed_and_has_no_rates() -> None:
    empty = IntervalStatistics(0, 0, 0, 0, 0, 74)
    assert (empty.arrival_rate, empty.active) == (0, 0)
    assert empty.subrelations() == (empty,)
    assert empty.worst_case() == empty.split_into(4) == empty


def test_bounds_without_grain_become_instants() -> None:
    fine = IntervalStatistics.measured(
        1_000, 0.0, 0.99, 1.0, 0.01, 0.02, 74, classes=((500.0, 0.005), (500.0, 0.015)), instants_per_unit=1e6
    )
    assert fine.duration == pytest.approx(10_000)
    assert fine.max_duration == pytest.approx(20_000)
    assert fine.active == pytest.approx(1_000 * 0.01 / 0.99, rel=1e-5)
    assert [round(d) for _, d in fine.classes] == [5_000, 15_000]


def test_a_split_partition_holds_what_starts_in_it_and_what_reaches_in() -> None:
    whole = uniform(10, 20, 1_000, 74)
    part = whole.split_into(4)
    starts = np.repeat(np.arange(1_000), 10)
    assert part.rows == int(((starts < 500) & (starts + 20 > 250)).sum())
    assert part.arrival_rate == pytest.approx(10)
    assert whole.split_into(1) == whole
    assert uniform(10, 5_000, 1_000, 74).split_into(4).rows == 10_000  # no more than all
