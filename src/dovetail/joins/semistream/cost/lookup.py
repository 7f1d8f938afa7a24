"""How many waiting tuples one load answers when every second look-up is at a position among the newer ones.

The model. T is the age, in stream tuples, at which a tuple is the oldest; T_c the age at the second position, where
c h_S tuples are newer. A tuple that still waits at age T_c is looked up there with probability eta: there are rho / 2
such look-ups per stream tuple, and a share phi of the tuples gets to that age waiting, so eta = rho / (2 phi). Guarded
look-ups count only if the segment then has more waiting tuples than the oldest one's. Let G be the tuples between two
loads of segment i.

* While G < T_c neither position can meet the segment.
* From T_c on, the tuples that came after the load reach the second position at the rate p_i, so that the segment is
  loaded at the rate eta p_i.
* The first tuple after the load is the oldest T after it came: then the segment is loaded in any case. Beyond T,
  whatever the second position does, the segment survives only while that tuple has not come: at the rate p_i.

That gives the survival S_i of G, the load rates r_i = 1 / E[G], the tuples waiting, and the empty slots as in `window`.
Three conditions fix T, T_c and eta: all slots are in use, c h_S tuples are younger than T_c, and eta phi = rho / 2.
Solved by damped iteration over groups of segments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.window import Steady, oldest_first

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
    """What one round of the iteration gives: per group of segments, and in all."""

    loads: F64
    by_oldest: F64
    waiting: float
    empty: float
    asked: float

    @property
    def load_rate(self) -> float:
        """Loads per stream tuple, rho."""
        return float(self.loads.sum())


def second_position(segments: Segments, capacity: float, position: float = 0.3, *, guarded: bool = False) -> Steady:
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


def _round(segments: Segments, state: _State, guarded: bool) -> _Rates:
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


def _passes(segments: Segments, state: _State, age: F64) -> F64:
    """The probability that a segment has more waiting tuples at this age since its load than the oldest tuple's has."""
    own = 1 + segments.share[:, None] * age
    others = 1 + segments.share * state.window
    sizes = _geometric(1.0, float(own.max()) + 1.0, _SIZES)[:, None]
    spread = np.sqrt(np.maximum(sizes + others - 2, 0.1))
    z = np.clip((sizes - others - 0.5) / spread, -40.0, 40.0)
    beats = (state.oldest / (1 + np.exp(-_LOGISTIC * z))).sum(axis=1)
    chance: F64 = np.interp(own, sizes[:, 0], beats)
    return chance


def _moved(segments: Segments, state: _State, rates: _Rates, newer: float, capacity: float) -> float:
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
