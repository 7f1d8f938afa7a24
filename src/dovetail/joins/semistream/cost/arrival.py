"""How long tuples wait when the stream is slower than the join could serve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dovetail.joins.semistream.cost.inlj import inlj_delay
from dovetail.joins.semistream.cost.meshjoin import round_times
from dovetail.joins.semistream.cost.prediction import Prediction, Sizes
from dovetail.joins.semistream.cost.setting import Setting

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
    if queue.sizes.waiting_rows == 1:
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
        return model(setting, replace(prediction.sizes, waiting_rows=n))

    alone = with_slots(1)
    if alone.mu >= arrival:
        return alone
    low, high = 1, max(1, prediction.sizes.waiting_rows or 1)
    while high - low > max(1, low // 1000):
        middle = round((low * high) ** 0.5)
        low, high = (low, middle) if with_slots(middle).mu >= arrival else (middle, high)
    return with_slots(high)


def page_reads_suffice(setting: Setting, arrival: float) -> bool:
    """Whether single page reads keep up with so slow a stream, so that nothing need wait for others.

    Reference: docs/algorithms/semistream.md, 6.10.
    """
    return arrival * setting.costs.load_s(setting.read_bytes(setting.page_rows)) < _PAGE_READS_BELOW
