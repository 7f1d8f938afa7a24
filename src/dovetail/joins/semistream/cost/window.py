"""How many waiting tuples one load answers when it is always the oldest one that is looked up.

F1, F2 and F4 are equations of docs/algorithms/semistream.md, 3.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dovetail.joins.semistream.cost.segments import Segments

_EXACT_ENOUGH = 1e-9  # of the window


@dataclass(frozen=True, slots=True)
class Steady:
    """Waiting tuples in the steady state of a stream that never ends.

    `per_load`: tuples that one load answers, w_S. `window`: stream tuples between the oldest waiting one and the newest
    read, T_w. `waiting`: tuples that wait on average. `asked`: segments that some waiting tuple asks for.
    """

    per_load: float
    window: float
    waiting: float
    asked: float


def of_window(segments: Segments, window: float) -> Steady:
    """The steady state in which a tuple becomes the oldest after `window` further ones: the sums of F1 and F2.

    After a load the next tuple of segment i comes after 1/p_i tuples and is looked up `window` later. So one load per
    1/p_i + T tuples answers 1 + p_i T of them, whose waits add up to T (1 + p_i T / 2).
    """
    n, x = segments.count, segments.share * window
    loads = float(np.sum(n * segments.share / (1 + x)))
    waiting = float(np.sum(n * x * (1 + x / 2) / (1 + x)))
    return Steady(1 / loads if loads else 1.0, window, waiting, float(np.sum(n * x / (1 + x))))


def holes(segments: Segments, window: float) -> float:
    """Slots that are empty on average, seen at each stream tuple that is read.

    A load that answers m tuples leaves m slots that the next m tuples fill one after the other, so that it costs
    m (m - 1) / 2 slots times tuples; m is one more than a Poisson number of mean p_i T. Of no weight unless one segment
    takes a large share of the stream.
    """
    x = segments.share * window
    return float(np.sum(segments.count * segments.share / (1 + x) * (x * x + 2 * x) / 2))


def oldest_first(segments: Segments, capacity: float) -> Steady:
    """The steady state of `capacity` slots when the oldest tuple is looked up.

    Solves: waiting tuples + empty slots = capacity. F1 leaves out the empty slots: right for small segments, but 5 to
    18 % too many tuples per load when one segment has 40 % of the stream. Then a load of that segment empties almost
    half of the queue, and the queue is full only when the hole has been filled again. With the empty slots the model
    stays within 5 % of a simulation there.
    Reference: Naeem 2012, equation 5.2, replaced; docs/algorithms/semistream.md, 3.4.
    """
    found = _solved(segments, capacity, lambda t: of_window(segments, t).waiting + holes(segments, t))
    return replace(found, per_load=max(1.0, min(found.per_load, capacity)))


def fixed_point(segments: Segments, capacity: float) -> Steady:
    """F1 and F2 as first derived, without the slots that wait to be filled."""
    return _solved(segments, capacity, lambda t: of_window(segments, t).waiting)


def _solved(segments: Segments, capacity: float, slots: Callable[[float], float]) -> Steady:
    """At least half of the window waits, so that it is at most twice the capacity."""
    low, high = 0.0, 2.0 * capacity
    while high - low > _EXACT_ENOUGH * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slots(middle) < capacity else (low, middle)
    return of_window(segments, (low + high) / 2)


def best_possible(segments: Segments, capacity: float) -> float:
    """Tuples per load that no look-up policy can pass while segments wait for several tuples each (F4).

    Load rates r_i that add up to the fewest loads under sum p_i / (2 r_i) = capacity are in proportion to sqrt(p_i).
    """
    root = segments.root_sum
    return 2 * capacity / root**2 if root else 1.0


def best_gain(segments: Segments) -> float:
    """How much fewer loads the best look-up policy needs than looking up the oldest tuple, at most (F4)."""
    root = segments.root_sum
    return float(np.sum(segments.count)) / root**2 if root else 1.0
