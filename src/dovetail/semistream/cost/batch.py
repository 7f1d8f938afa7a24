"""What a micro-batch costs that is answered to its end before the next one begins."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.semistream.cost.prediction import Prediction
from dovetail.semistream.cost.ssij import segments_asked


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


def drained(prediction: Prediction, rows: int) -> BatchPrice:
    """A batch of `rows` tuples with nothing waiting at its start and end; caches stay filled from earlier batches.

    Tuples that reach storage and find slots all at once are SSIJ's join phase: one load for each segment that is asked
    for. Of more tuples, those beyond the slots are answered as in the steady state and the rest at the end, one load
    for each segment that some tuple then asks for. The MESHJOIN family goes round once more.
    """
    misses = rows * (1 - prediction.p_n)
    steps = _steps(prediction, misses, prediction.sizes.waiting_rows or 1)
    seconds = steps * prediction.step_s + misses * prediction.miss_s + (rows - misses) * prediction.hit_s
    return BatchPrice(rows, steps, seconds)


def _steps(prediction: Prediction, misses: float, capacity: int) -> float:
    if prediction.algorithm == "inlj":
        return misses
    if prediction.segments is None:
        return misses / prediction.w + prediction.bound_steps
    if misses <= capacity:
        return segments_asked(prediction.segments, misses)
    if prediction.algorithm == "ssij":
        return misses / prediction.w_s
    at_end = min(segments_asked(prediction.segments, capacity), prediction.asked)
    return (misses - capacity) / prediction.w_s + at_end
