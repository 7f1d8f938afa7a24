"""The models of all algorithms by name, with what each needs of the store and which sizes it has to be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.collecting import predict_partitioned, predict_ssij
from dovetail.joins.semistream.cost.hybridjoin import (
    predict_cachejoin,
    predict_hybridjoin,
    predict_inlj,
    predict_optimised_x_hybridjoin,
    predict_sscj,
    predict_x_hybridjoin,
)
from dovetail.joins.semistream.cost.meshjoin import predict_meshjoin, predict_r_meshjoin
from dovetail.joins.semistream.cost.prediction import Prediction
from dovetail.joins.semistream.cost.rates import drained
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Model:
    """One algorithm's model: `formula`, what the store must offer, and the sizes that `tune` chooses.

    `axes` are the names of these sizes; an algorithm that reads single pages has none.
    """

    name: str
    formula: Callable[[Setting, Sizes], Prediction]
    axes: tuple[str, ...]
    needs_index: bool = True
    needs_frequency_order: bool = False

    def predict(self, setting: Setting, sizes: Sizes) -> Prediction:
        """What these sizes lead to; a `NoRoomError` when they do not fit in the memory."""
        entries = setting.keyed if self.looks_up(setting) else None
        return self.formula(setting if entries is None else replace(setting, entries=entries), sizes)

    def looks_up(self, setting: Setting) -> bool:
        """Whether keys are asked of the store, so that no segment is ever read and its length does not matter."""
        whole = "resident" in self.axes or self.needs_frequency_order or not self.needs_index
        return setting.costs.look_up is not None and not whole

    @property
    def kept(self) -> str | None:
        """The size of what stays in memory: cached rows, pinned pages or resident segments."""
        return next((axis for axis in self.axes if axis in ("cached", "pinned", "resident")), None)

    def keeping(self, sizes: Sizes, rows: int, setting: Setting) -> Sizes:
        """The sizes with about so many master rows kept in memory, in whole pages or segments if need be."""
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
    """What the model of `algorithm` says for these sizes; a `NoRoomError` when they do not fit in the memory."""
    return model_of(algorithm).predict(setting, sizes)


def service_rate(prediction: Prediction, setting: Setting) -> float:
    """Tuples per second that can be served: in the steady state, or in micro-batches if the setting has them."""
    if setting.batch_rows is None:
        return prediction.mu
    return drained(prediction, setting, setting.batch_rows).mu
