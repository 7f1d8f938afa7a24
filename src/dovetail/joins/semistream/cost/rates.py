"""Service rates and waiting times where a stream comes in micro-batches, or slower than a join could serve it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dovetail.joins.semistream.cost.collecting import phase_read_s, segments_asked
from dovetail.joins.semistream.cost.hybridjoin import inlj_delay
from dovetail.joins.semistream.cost.meshjoin import round_times
from dovetail.joins.semistream.cost.prediction import Prediction
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.sizes import Sizes

_PINNED: Final = ("x_hybridjoin", "optimised_x_hybridjoin")


@dataclass(frozen=True, slots=True)
class BatchPrice:
    """One micro-batch: iterations (loads, but for the parts of R-MESHJOIN), seconds, tuples per second."""

    rows: int
    steps: float
    seconds: float

    @property
    def mu(self) -> float:
        """Stream tuples per second."""
        return self.rows / self.seconds


def drained(prediction: Prediction, setting: Setting, rows: int) -> BatchPrice:
    """A batch of `rows` tuples for the setting of the prediction; nothing waits at its start and end.

    Caches stay filled from earlier batches, unless the setting has only one: then they answer nothing until the slots
    are full for the first time, and pinned rows are read at its start.
    Tuples that reach storage and find slots all at once are SSIJ's join phase: one load for each segment that is asked
    for. Of more tuples, those beyond the slots are answered as in the steady state and the rest at the end, one load
    for each segment that some tuple then asks for. The MESHJOIN family goes round once more.
    Reference: docs/algorithms/semistream.md, 3.10.
    """
    capacity = prediction.sizes.waiting or 1
    misses = rows - prediction.p_n * _answerable(prediction, setting, rows, capacity)
    if setting.one_pass and misses == rows and prediction.segments is not None:  # all of it is asked of storage
        prediction = replace(prediction, segments=setting.segments(prediction.segment_rows))
    running, draining = _steps(prediction, misses, capacity)
    seconds = running * prediction.step_s + draining * _drain_step_s(prediction, setting, min(misses, capacity))
    seconds += misses * prediction.miss_s + (rows - misses) * prediction.hit_s
    seconds += setting.costs.visit_s(prediction.segment_rows) * _visits(prediction, rows - misses)
    if setting.one_pass and prediction.algorithm in _PINNED:
        seconds += setting.costs.load_s(setting.read_bytes(prediction.kept_rows), sequential=True)
    return BatchPrice(rows, running + draining, seconds)


def _answerable(prediction: Prediction, setting: Setting, rows: int, capacity: int) -> float:
    """Tuples that come when a cache has something to answer them with."""
    return max(0, rows - capacity) if setting.one_pass and prediction.algorithm not in _PINNED else rows


def _visits(prediction: Prediction, hits: float) -> float:
    """Resident segments that so many tuples meet, were all of them asked for alike."""
    kept = _residents(prediction)
    return -kept * math.expm1(-hits / kept) if kept else 0.0


def _residents(prediction: Prediction) -> int:
    """Segments that stay in memory."""
    if prediction.algorithm not in ("ssij", "partitioned"):
        return 0
    return prediction.sizes.resident or 0


def _drain_step_s(prediction: Prediction, setting: Setting, together: float) -> float:
    """A load at the end of a batch: cheaper in order, where neighbours follow each other."""
    in_order = prediction.algorithm == "ssij" or setting.policy.drains_in_order
    if prediction.segments is None or not in_order:
        return prediction.step_s
    d, segments = prediction.segment_rows, prediction.segments
    usual, kept = setting.costs.load_s(setting.read_bytes(d)), _residents(prediction)
    if prediction.algorithm == "ssij":
        usual = phase_read_s(setting, d, segments, prediction.sizes.waiting or 1, kept)
    return prediction.step_s - usual + phase_read_s(setting, d, segments, together, kept)


def _steps(prediction: Prediction, misses: float, capacity: int) -> tuple[float, float]:
    """Iterations while the batch is taken in, and after."""
    if prediction.algorithm == "inlj":
        return misses, 0.0
    if prediction.segments is None:
        return misses / prediction.w, prediction.bound_steps
    if misses <= capacity:
        return 0.0, segments_asked(prediction.segments, misses)
    if prediction.algorithm == "ssij":
        phases, rest = divmod(misses, capacity)
        whole = phases * segments_asked(prediction.segments, capacity)
        return 0.0, whole + segments_asked(prediction.segments, rest)
    at_end = min(segments_asked(prediction.segments, capacity), prediction.asked)
    return (misses - capacity) / prediction.w_s, at_end


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
