"""What a micro-batch costs that is answered to its end before the next one begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from dovetail.joins.semistream.cost.prediction import Prediction
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.cost.ssij import phase_read_s, segments_asked

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
    capacity = prediction.sizes.waiting_rows or 1
    misses = rows - prediction.p_n * _answerable(prediction, setting, rows, capacity)
    if setting.one_pass and misses == rows and prediction.segments is not None:  # all of it is asked of storage
        prediction = replace(prediction, segments=setting.segments(prediction.sizes.segment_rows))
    running, draining = _steps(prediction, misses, capacity)
    seconds = running * prediction.step_s + draining * _drain_step_s(prediction, setting, min(misses, capacity))
    seconds += misses * prediction.miss_s + (rows - misses) * prediction.hit_s
    seconds += setting.costs.visit_s(prediction.sizes.segment_rows) * _visits(prediction, rows - misses)
    if setting.one_pass and prediction.algorithm in _PINNED:
        seconds += setting.costs.load_s(setting.read_bytes(prediction.sizes.cached_rows), sequential=True)
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
    return prediction.sizes.cached_rows // prediction.sizes.segment_rows


def _drain_step_s(prediction: Prediction, setting: Setting, together: float) -> float:
    """A load at the end of a batch: cheaper in order, where neighbours follow each other."""
    in_order = prediction.algorithm == "ssij" or setting.policy.drains_in_order
    if prediction.segments is None or not in_order:
        return prediction.step_s
    d, segments = prediction.sizes.segment_rows, prediction.segments
    usual, kept = setting.costs.load_s(setting.read_bytes(d)), _residents(prediction)
    if prediction.algorithm == "ssij":
        usual = phase_read_s(setting, d, segments, prediction.sizes.waiting_rows or 1, kept)
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
