"""Inputs of one rate and duration, and which streaming joins the models say would spill over them."""

from __future__ import annotations

from dovetail.joins.interval.cost import (
    ForwardScanCost,
    FrameMemory,
    IntervalStatistics,
    SortMergeCost,
    TimeSweepCost,
)


def uniform(arrival_rate: float, duration: float, time_range: float, tuple_bytes: float) -> IntervalStatistics:
    """An input of one duration in which `arrival_rate` rows start at every instant of `time_range`."""
    return IntervalStatistics(
        arrival_rate * time_range,
        0,
        time_range - 1 + duration,
        duration,
        duration,
        tuple_bytes,
        start_max=time_range - 1,
    )


def spilling(r: IntervalStatistics, s: IntervalStatistics, memory: FrameMemory) -> set[str]:
    """The streaming joins that would spill; sort-merge in both orientations."""
    tests = {
        "sort_merge": SortMergeCost(r, s, memory).spills(),
        "sort_merge (swapped)": SortMergeCost(s, r, memory).spills(),
        "time_sweep": TimeSweepCost(r, s, memory).spills(),
        "forward_scan": ForwardScanCost(r, s, memory).spills(),
    }
    return {name for name, spills in tests.items() if spills}
