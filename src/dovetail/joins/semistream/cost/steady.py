"""Tuples that one load answers in the steady state, under each look-up policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.joins.semistream.cost.distribution import Demand

_WINDOW_EXACT = 1e-9  # of the window


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


def of_window(segments: Demand, window: float) -> Steady:
    """The steady state in which a tuple becomes the oldest after `window` further ones: the sums of F1 and F2.

    After a load the next tuple of segment i comes after 1/p_i tuples and is looked up `window` later. So one load per
    1/p_i + T tuples answers 1 + p_i T of them, whose waits add up to T (1 + p_i T / 2).
    """
    n, x = segments.count, segments.share * window
    loads = float(np.sum(n * segments.share / (1 + x)))
    waiting = float(np.sum(n * x * (1 + x / 2) / (1 + x)))
    return Steady(1 / loads if loads else 1.0, window, waiting, float(np.sum(n * x / (1 + x))))


def holes(segments: Demand, window: float) -> float:
    """Slots that are empty on average, seen at each stream tuple that is read.

    A load that answers m tuples leaves m slots that the next m tuples fill one after the other, so that it costs
    m (m - 1) / 2 slots times tuples; m is one more than a Poisson number of mean p_i T. Of no weight unless one segment
    takes a large share of the stream.
    """
    x = segments.share * window
    return float(np.sum(segments.count * segments.share / (1 + x) * (x * x + 2 * x) / 2))


def oldest_first(segments: Demand, capacity: float) -> Steady:
    """The steady state of `capacity` slots when the oldest tuple is looked up.

    Solves: waiting tuples + empty slots = capacity. F1 leaves out the empty slots: right for small segments, but 5 to
    18 % too many tuples per load when one segment has 40 % of the stream. Then a load of that segment empties almost
    half of the queue, and the queue is full only when the hole has been filled again. With the empty slots the model
    stays within 5 % of a simulation there.
    Reference: Naeem 2012, equation 5.2, replaced; docs/algorithms/semistream.md, 3.4.
    """
    found = _solved(segments, capacity, lambda t: of_window(segments, t).waiting + holes(segments, t))
    return replace(found, per_load=max(1.0, min(found.per_load, capacity)))


def _solved(segments: Demand, capacity: float, slots: Callable[[float], float]) -> Steady:
    """At least half of the window waits, so that it is at most twice the capacity."""
    low, high = 0.0, 2.0 * capacity
    while high - low > _WINDOW_EXACT * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slots(middle) < capacity else (low, middle)
    return of_window(segments, (low + high) / 2)


_STEPS = 32  # of the integral from T_c to T

_SIZES = 96  # numbers of waiting tuples at which a guard is evaluated; between, a line

_ROUNDS = 400

_EXACT_ENOUGH = 1e-4

_NO_HAZARD = 1e-9  # of being looked up in a whole window: keeps divisions defined

_DAMPING = 0.35

_LOGISTIC = 1.702  # 1 / (1 + exp(-1.702 z)) is within 0.01 of the normal distribution


@dataclass(slots=True)
class _State:
    """The three unknowns, and which groups the oldest tuple is in."""

    window: float
    young: float
    eta: float
    oldest: F64


@dataclass(frozen=True, slots=True)
class _Rates:
    """Results of one round of the iteration: per group of segments, and in all."""

    loads: F64
    by_oldest: F64
    waiting: float
    empty: float
    asked: float

    @property
    def load_rate(self) -> float:
        """Loads per stream tuple, rho."""
        return float(self.loads.sum())


def second_position(segments: Demand, capacity: float, position: float = 0.3, *, guarded: bool = False) -> Steady:
    """The steady state of `capacity` slots when every second look-up is `position` of the way from the newest tuple.

    Within 4 % of simulated counts for exponents 0 to 1, plain and guarded, with 10 to 600 waiting tuples for each of
    1,000 segments or more, and within 10 % for 300. A third too low at exponent 1.6, when one segment is nearly all.
    Reference: Naeem 2014, 4; docs/algorithms/semistream.md, 2.12 and 3.10. Guarded look-ups are ours.
    """
    start = oldest_first(segments, capacity)
    if not segments.count.size or capacity < 2:
        return start
    state = _State(start.window, position * capacity, 0.5 / start.per_load, segments.count / segments.count.sum())
    for _ in range(_ROUNDS):
        rates = _round(segments, state, guarded)
        if _moved(segments, state, rates, position * capacity, capacity) < _EXACT_ENOUGH:
            break
    return Steady(max(1.0, min(1 / rates.load_rate, capacity)), state.window, rates.waiting, rates.asked)


def _round(segments: Demand, state: _State, guarded: bool) -> _Rates:
    n, p, young = segments.count, segments.share[:, None], state.young
    edges = _geometric(young, state.window, _STEPS + 1)
    step, age = np.diff(edges), np.sqrt(edges[:-1] * edges[1:])
    met = state.eta * _passes(segments, state, age) if guarded else np.full((n.size, _STEPS), state.eta)
    hazard = np.maximum(p * met, _NO_HAZARD / state.window)
    spent = np.cumsum(hazard * step, axis=1)
    survival = np.exp(-spent)
    before = np.concatenate([np.ones_like(p), survival[:, :-1]], axis=1)
    lived = (before - survival) / hazard  # the integral of S over each step, the hazard being constant there
    gone = np.minimum(spent - hazard * step / 2, p * age)
    wait = (lived * (p * age - gone)).sum(axis=1)
    area = young**2 / 2 + (lived * age).sum(axis=1)
    p, last = segments.share, survival[:, -1]
    until = young + lived.sum(axis=1)
    loads = 1 / (until + last / p)
    held = p * young**2 / 2 + wait + np.maximum(0.0, p * state.window - spent[:, -1]) * last / p
    return _Rates(
        n * loads,
        n * loads * last * (1 - met[:, -1]),
        float(np.sum(n * loads * held)),
        float(np.sum(n * loads * p * (p * area + until))),
        float(np.sum(n * (1 - loads / p))),
    )


def _passes(segments: Demand, state: _State, age: F64) -> F64:
    """The probability that a segment has more waiting tuples at this age since its load than the oldest tuple's has."""
    own = 1 + segments.share[:, None] * age
    others = 1 + segments.share * state.window
    sizes = _geometric(1.0, float(own.max()) + 1.0, _SIZES)[:, None]
    spread = np.sqrt(np.maximum(sizes + others - 2, 0.1))
    z = np.clip((sizes - others - 0.5) / spread, -40.0, 40.0)
    beats = (state.oldest / (1 + np.exp(-_LOGISTIC * z))).sum(axis=1)
    chance: F64 = np.interp(own, sizes[:, 0], beats)
    return chance


def _moved(segments: Demand, state: _State, rates: _Rates, newer: float, capacity: float) -> float:
    """Move the unknowns towards what the round implies; how far they were from it, as a share."""
    p = segments.share
    ratio = capacity / (rates.waiting + rates.empty)
    turnover = float(np.sum(rates.loads * p)) / 2
    young = 2 * newer / (1 + math.sqrt(max(0.0, 1 - 4 * turnover * newer)))
    state.window *= ratio**_DAMPING
    young = min(young, 0.95 * state.window)
    waiting_there = float(np.sum(segments.count * p - rates.loads * p * state.young))
    eta = min(1.0, rates.load_rate / (2 * max(waiting_there, 1e-9)))
    off = abs(ratio - 1) + abs(young / state.young - 1) + abs(eta / state.eta - 1)
    state.young += _DAMPING * (young - state.young)
    state.eta += _DAMPING * (eta - state.eta)
    state.oldest = (state.oldest + rates.by_oldest / max(rates.by_oldest.sum(), 1e-300)) / 2
    return off


def _geometric(first: float, last: float, n: int) -> F64:
    """n numbers from first to last, each the same multiple of the one before."""
    numbers: F64 = first * np.exp(np.arange(n) * (math.log(last / first) / (n - 1)))
    return numbers


_HALVINGS = 50

_FOREVER = 1e12  # stream tuples


def only_position(segments: Demand, capacity: float, position: float) -> Steady:
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


def _at_position(segments: Demand, newer: float, eta: float) -> tuple[F64, float, float]:
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


def fullest(segments: Demand, capacity: float) -> Steady:
    """Always the segment that most tuples wait for: in the long run every list grows to the same length."""
    return _lists_steady(segments, capacity, _FOREVER)


def fullest_and_oldest(segments: Demand, capacity: float) -> Steady:
    """The fullest segment and the oldest tuple's in turn: lists grow to theta or until their first tuple is T old.

    As many loads are due to age as to length, which fixes T; the slots fix theta.
    """

    def mostly_length(age: float) -> bool:
        gap, _, aged = _lists(segments, capacity, age)
        loads = segments.count / gap
        return float(np.sum(loads[aged])) <= float(np.sum(loads)) / 2

    return _lists_steady(segments, capacity, _crossing(mostly_length, capacity / 8, capacity * 256))


def _lists_steady(segments: Demand, capacity: float, age: float) -> Steady:
    gap, waiting, _ = _lists(segments, capacity, age)
    return _steady(segments, gap, float(np.sum(segments.count * waiting)), capacity)


def _lists(segments: Demand, capacity: float, age: float) -> tuple[F64, F64, F64]:
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


def _steady(segments: Demand, gap: F64, waiting: float, capacity: float) -> Steady:
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
