"""Models of all algorithms by name: their requirements on the store, their tuned sizes, and micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import seen_share
from dovetail.joins.semistream.cost.hybridjoin import (
    predict_cachejoin,
    predict_hybridjoin,
    predict_inlj,
    predict_optimised_x_hybridjoin,
    predict_sscj,
    predict_x_hybridjoin,
)
from dovetail.joins.semistream.cost.scans import (
    phase_read_s,
    predict_meshjoin,
    predict_partitioned,
    predict_r_meshjoin,
    predict_ssij,
    segments_asked,
)
from dovetail.joins.semistream.cost.setting import Prediction, Setting
from dovetail.joins.semistream.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Model:
    """One algorithm's model: its `formula`, its requirements on the store, and the sizes that `tune` chooses.

    `axes` are the names of these sizes; an algorithm that reads single pages has none.
    """

    name: str
    formula: Callable[[Setting, Sizes], Prediction]
    axes: tuple[str, ...]
    needs_index: bool = True
    needs_frequency_order: bool = False

    def predict(self, setting: Setting, sizes: Sizes) -> Prediction:
        """The prediction for these sizes; `NoRoomError` if they do not fit in memory."""
        entries = setting.keyed if self.looks_up(setting) else None
        return self.formula(setting if entries is None else replace(setting, entries=entries), sizes)

    def looks_up(self, setting: Setting) -> bool:
        """Whether the store is asked for single keys, so that no segment is read and its length does not matter."""
        whole = "resident" in self.axes or self.needs_frequency_order or not self.needs_index
        return setting.costs.look_up is not None and not whole

    @property
    def kept(self) -> str | None:
        """The name of the size of the part that stays in memory: cached rows, pinned pages or resident segments."""
        return next((axis for axis in self.axes if axis in ("cached", "pinned", "resident")), None)

    def keeping(self, sizes: Sizes, rows: int, setting: Setting) -> Sizes:
        """The sizes with about `rows` master rows kept in memory, rounded to whole pages or segments."""
        if self.kept is None:
            return sizes
        each = {"cached": 1, "pinned": setting.page_rows, "resident": setting.segment_rows(sizes)}[self.kept]
        return replace(sizes, **{self.kept: rows // each})


_MODELS: Final = (
    Model("inlj", predict_inlj, ()),
    Model("meshjoin", predict_meshjoin, ("per_segment",), needs_index=False),
    Model("r_meshjoin", predict_r_meshjoin, ("per_segment", "parts"), needs_index=False),
    Model("partitioned", predict_partitioned, ("per_segment", "resident")),
    Model("ssij", predict_ssij, ("per_segment", "resident")),
    Model("hybridjoin", predict_hybridjoin, ("per_segment",)),
    Model("x_hybridjoin", predict_x_hybridjoin, ("per_segment", "pinned"), needs_frequency_order=True),
    Model(
        "optimised_x_hybridjoin",
        predict_optimised_x_hybridjoin,
        ("per_segment", "pinned"),
        needs_frequency_order=True,
    ),
    Model("cachejoin", predict_cachejoin, ("per_segment", "cached")),
    Model("sscj", predict_sscj, ("per_segment", "cached")),
)

MODELS: Final[dict[str, Model]] = {model.name: model for model in _MODELS}


def model_of(algorithm: str) -> Model:
    """The model by the algorithm's name."""
    if algorithm not in MODELS:
        raise PlanError(f"algorithm {algorithm!r} was given; choose among {', '.join(MODELS)}.")
    return MODELS[algorithm]


def predict(algorithm: str, setting: Setting, sizes: Sizes) -> Prediction:
    """The prediction of `algorithm`'s model for these sizes; `NoRoomError` if they do not fit in memory."""
    return model_of(algorithm).predict(setting, sizes)


def service_rate(prediction: Prediction, setting: Setting) -> float:
    """Tuples per second that can be served: in the steady state, or in micro-batches if the setting has them."""
    if setting.batch_rows is None:
        return prediction.mu
    return drained(prediction, setting, setting.batch_rows).mu


_PINNED: Final = ("x_hybridjoin", "optimised_x_hybridjoin")

_LEARNING: Final = ("cachejoin", "sscj")


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

    Caches stay filled from earlier batches: a cache that learns has at most the rows that those asked for. If the
    setting has one batch only, caches answer nothing until the slots are full for the first time, and pinned rows are
    read at its start.
    Tuples that reach storage and find slots all at once are SSIJ's join phase: one load for each segment that is asked
    for. Of more tuples, those beyond the slots are answered as in the steady state and the rest at the end, one load
    for each segment that some tuple then asks for. The MESHJOIN family goes round once more.
    Reference: docs/algorithms/semistream.md, 3.10.
    """
    capacity = prediction.sizes.waiting or 1
    p_n = _learned_share(prediction, setting)
    misses = rows - p_n * _answerable(prediction, setting, rows, capacity)
    asked = prediction.segments
    all_asked = setting.one_pass and misses == rows
    if asked is not None and (all_asked or (misses and not asked.count.size)):  # rows to be cached are asked for, too
        prediction = replace(prediction, segments=setting.segments(prediction.segment_rows))
    running, draining = _steps(prediction, misses, capacity)
    seconds = running * prediction.step_s + draining * _drain_step_s(prediction, setting, min(misses, capacity))
    seconds += misses * prediction.miss_s + (rows - misses) * prediction.hit_s
    seconds += setting.costs.visit_s(prediction.segment_rows) * _visits(prediction, rows - misses)
    if setting.one_pass and prediction.algorithm in _PINNED:
        seconds += setting.costs.load_s(setting.read_bytes(prediction.kept_rows), sequential=True)
    return BatchPrice(rows, running + draining, seconds + setting.costs.micro_batch)


def _learned_share(prediction: Prediction, setting: Setting) -> float:
    """p_N; for a cache that is still filling, at most the share of rows that were requested before."""
    if setting.seen_rows is None or prediction.algorithm not in _LEARNING:
        return prediction.p_n
    return min(prediction.p_n, seen_share(setting.distribution, setting.seen_rows))


def _answerable(prediction: Prediction, setting: Setting, rows: int, capacity: int) -> float:
    """Tuples that arrive after the cache has been filled."""
    return max(0, rows - capacity) if setting.one_pass and prediction.algorithm not in _PINNED else rows


def _visits(prediction: Prediction, hits: float) -> float:
    """Resident segments that `hits` tuples probe, if all are requested equally often."""
    kept = _residents(prediction)
    return -kept * math.expm1(-hits / kept) if kept else 0.0


def _residents(prediction: Prediction) -> int:
    """Segments that stay in memory."""
    if prediction.algorithm not in ("ssij", "partitioned"):
        return 0
    return prediction.sizes.resident or 0


def _drain_step_s(prediction: Prediction, setting: Setting, together: float) -> float:
    """A load at the end of a batch: cheaper in SSIJ, which loads in order, where neighbours follow each other."""
    if prediction.segments is None or prediction.algorithm != "ssij":
        return prediction.step_s
    d, segments = prediction.segment_rows, prediction.segments
    kept = _residents(prediction)
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
