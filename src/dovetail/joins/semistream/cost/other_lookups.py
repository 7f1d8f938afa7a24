"""Tuples per load under look-up policies that can let tuples starve: one position only, or the fullest segment.

The symbols are those of `window` and `lookup`. Each model comes within 11 % of counts of running operators.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.window import Steady

_HALVINGS = 50
_FOREVER = 1e12  # stream tuples


def only_position(segments: Segments, capacity: float, position: float) -> Steady:
    """Every look-up is `position` of the way from the newest tuple; what passes it waits for another of its segment.

    A segment is loaded T_c + 1 / (eta p_i) tuples after its last load, eta being the share of tuples that are looked
    up at age T_c. T_c is the age with position h_S newer tuples, eta what fills the slots.
    """

    def overfull(eta: float) -> bool:
        _, waiting, empty = _at_position(segments, capacity * position, eta)
        return waiting + empty > capacity

    eta = _crossing(lambda x: not overfull(x), 1e-9, 1.0)
    gap, waiting, _ = _at_position(segments, capacity * position, eta)
    return _steady(segments, gap, waiting, capacity)


def _at_position(segments: Segments, newer: float, eta: float) -> tuple[F64, float, float]:
    """Gaps between loads, tuples waiting, and slots empty."""
    n, p = segments.count, segments.share
    after = 1 / (eta * p)

    def young(age: float) -> float:
        return float(np.sum(n * p * (age - age * age / (2 * (age + after)))))

    age = _crossing(lambda x: young(x) >= newer, newer / 2, 4 * newer + 1)
    gap = age + after
    square = age * age + 2 * age * after + 2 * after * after
    waiting = np.maximum(0.0, p * square / 2 - after)
    return gap, float(np.sum(n * waiting / gap)), float(np.sum(n * p * p * square / (2 * gap)))


def fullest(segments: Segments, capacity: float) -> Steady:
    """Always the segment that most tuples wait for: in the long run every list grows to the same length."""
    return _lists_steady(segments, capacity, _FOREVER)


def fullest_and_oldest(segments: Segments, capacity: float) -> Steady:
    """The fullest segment and the oldest tuple's in turn: lists grow to theta or until their first tuple is T old.

    As many loads are due to age as to length, which fixes T; the slots fix theta.
    """

    def mostly_length(age: float) -> bool:
        gap, _, aged = _lists(segments, capacity, age)
        loads = segments.count / gap
        return float(np.sum(loads[aged])) <= float(np.sum(loads)) / 2

    return _lists_steady(segments, capacity, _crossing(mostly_length, capacity / 8, capacity * 256))


def _lists_steady(segments: Segments, capacity: float, age: float) -> Steady:
    gap, waiting, _ = _lists(segments, capacity, age)
    return _steady(segments, gap, float(np.sum(segments.count * waiting)), capacity)


def _lists(segments: Segments, capacity: float, age: float) -> tuple[F64, F64, F64]:
    """Gaps between loads, tuples waiting and which segments are loaded by age, at the length that fills the slots."""
    p = segments.share

    def at(theta: float) -> tuple[F64, F64, F64]:
        by_length = np.maximum(theta, 1.0) / p
        aged = 1 / p + age < by_length
        gap = np.where(aged, 1 / p + age, by_length)
        return gap, np.where(aged, age * (1 + p * age / 2) / gap, p * gap / 2), aged

    def full(theta: float) -> bool:
        gap, waiting, _ = at(theta)
        return float(np.sum(segments.count * (waiting + p * p * gap / 2))) >= capacity

    return at(_crossing(full, 1.0, max(2.0, 2 * capacity)))


def _steady(segments: Segments, gap: F64, waiting: float, capacity: float) -> Steady:
    loads = float(np.sum(segments.count / gap))
    asked = float(np.sum(segments.count * (1 - np.minimum(1.0, 1 / (segments.share * gap)))))
    per_load = 1 / loads if loads else 1.0
    window = float(np.sum(segments.count * segments.share * gap))
    return Steady(max(1.0, min(per_load, capacity)), window, min(waiting, capacity), asked)


def _crossing(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition begins to hold, between two positive numbers, on a scale of logarithms."""
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
