"""How long rows wait in a join whose stream is slower than it could serve: the models of the sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dovetail.joins.semistream.cost.setting import Prediction, Setting
from dovetail.joins.semistream.sizes import Sizes

Model = Callable[[Setting, Sizes], Prediction]

_PAGE_READS_BELOW = 0.7  # of the time: how busy single page reads may be before segments are better


@dataclass(frozen=True, slots=True)
class Residence:
    """Seconds from admission to answer, on average and at most, and the tuples that wait meanwhile.

    `sustained` is False when more tuples arrive than are answered; then the times are those inside the join and what
    waits before it grows without end.
    """

    sustained: bool
    mean_s: float
    longest_s: float
    waiting: float


def at_rate(model: Model, setting: Setting, prediction: Prediction, arrival: float) -> Residence:
    """The waiting times of a predicted join under `arrival` tuples per second.

    HYBRIDJOIN and its kin never rest while a tuple waits, so that the queue grows until one load answers as many tuples
    as arrive meanwhile: the queue is the capacity at which the service rate is the arrival rate. The others collect.
    Reference: docs/algorithms/semistream.md, 3.10.
    """
    if prediction.algorithm == "inlj":
        mean = inlj_delay(prediction, arrival)
        return Residence(arrival < prediction.mu, mean, mean, arrival * mean)
    if prediction.segments is None:
        times = round_times(prediction, arrival)
        waiting = min(prediction.waiting, arrival * times.residence_s)
        return Residence(arrival <= prediction.mu, times.to_match_s, times.residence_s, waiting)
    if prediction.algorithm in ("ssij", "partitioned"):
        return _collecting(prediction, arrival)
    if arrival >= prediction.mu:
        longest = min(prediction.residence_bound_s, prediction.window / prediction.mu)
        return Residence(False, prediction.mean_residence_s, longest, prediction.waiting)
    queue = _queue(model, setting, prediction, arrival)
    if queue.sizes.waiting == 1:
        return Residence(True, queue.c_loop, queue.c_loop, arrival * queue.c_loop)
    longest = min(queue.residence_bound_s, queue.window / arrival)
    return Residence(True, queue.waiting / arrival, longest, queue.waiting)


def _collecting(prediction: Prediction, arrival: float) -> Residence:
    """Joins that load only when memory is full, a list long or a tuple old: a slow stream waits until then."""
    served = min(arrival, prediction.mu)
    reaching = served * (1 - prediction.p_n)
    longest = prediction.waiting * 2 / reaching
    if prediction.algorithm == "partitioned":
        longest = prediction.bound_steps * prediction.w / served
    return Residence(arrival < prediction.mu, prediction.waiting / served, longest, prediction.waiting)


def _queue(model: Model, setting: Setting, prediction: Prediction, arrival: float) -> Prediction:
    """The join with as few slots as serve the arrival rate."""

    def with_slots(n: int) -> Prediction:
        return model(setting, replace(prediction.sizes, waiting=n))

    alone = with_slots(1)
    if alone.mu >= arrival:
        return alone
    low, high = 1, max(1, prediction.sizes.waiting or 1)
    while high - low > max(1, low // 1000):
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if with_slots(middle).mu >= arrival else (middle, high)
    return with_slots(high)


def page_reads_suffice(setting: Setting, arrival: float) -> bool:
    """Whether single page reads keep up with so slow a stream, so that nothing need wait for others.

    Reference: docs/algorithms/semistream.md, 6.10.
    """
    return arrival * setting.costs.load_s(setting.read_bytes(setting.page_rows)) < _PAGE_READS_BELOW


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds of one step, to the match, and until a tuple leaves, at a given arrival rate."""

    step_s: float
    to_match_s: float
    residence_s: float


def round_times(prediction: Prediction, arrival: float | None = None) -> RoundTimes:
    """How long tuples of the MESHJOIN family take: half a round to the match, a whole one until they leave.

    A slow stream stretches every step to the time in which its w tuples arrive, where the source counts one such
    wait only.
    Reference: Naeem 2012, 5.1.1 and 5.1.2, corrected; docs/algorithms/semistream.md, 3.1.
    """
    fill = prediction.w / arrival if arrival else 0.0
    step = max(prediction.c_loop, fill)
    return RoundTimes(step, prediction.bound_steps / 2 * step, prediction.bound_steps * step)


def inlj_delay(prediction: Prediction, arrival: float) -> float:
    """Mean seconds from arrival to answer for tuples that come at random: (1/mu)(1 + rho / (2 (1 - rho))).

    Infinite when more tuples arrive than can be answered.
    """
    load = arrival / prediction.mu
    return (1 + load / (2 * (1 - load))) / prediction.mu if load < 1 else float("inf")
