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
from dovetail.joins.semistream.cost.prediction import Prediction, Sizes
from dovetail.joins.semistream.cost.rates import drained
from dovetail.joins.semistream.cost.setting import Setting


@dataclass(frozen=True, slots=True)
class Model:
    """One algorithm's model: `formula`, what the store must offer, and the sizes that `tune` chooses.

    `axes` are names of `Sizes` fields; an algorithm that reads single pages has none. `whole_segments`: cached rows
    come in whole segments.
    """

    name: str
    formula: Callable[[Setting, Sizes], Prediction]
    axes: tuple[str, ...]
    needs_index: bool = True
    needs_frequency_order: bool = False
    whole_segments: bool = False

    def predict(self, setting: Setting, sizes: Sizes) -> Prediction:
        """What these sizes lead to; a `NoRoomError` when they do not fit in the memory."""
        entries = setting.keyed if self.looks_up(setting) else None
        return self.formula(setting if entries is None else replace(setting, entries=entries), sizes)

    def looks_up(self, setting: Setting) -> bool:
        """Whether keys are asked of the store, so that no segment is ever read and its length does not matter."""
        whole = self.whole_segments or self.needs_frequency_order or not self.needs_index
        return setting.costs.look_up is not None and not whole


_MODELS: Final = (
    Model("inlj", predict_inlj, ()),
    Model("meshjoin", predict_meshjoin, ("segment_rows",), needs_index=False),
    Model("r_meshjoin", predict_r_meshjoin, ("segment_rows", "parts"), needs_index=False),
    Model("partitioned", predict_partitioned, ("segment_rows", "cached_rows"), whole_segments=True),
    Model("ssij", predict_ssij, ("segment_rows", "cached_rows"), whole_segments=True),
    Model("hybridjoin", predict_hybridjoin, ("segment_rows",)),
    Model("x_hybridjoin", predict_x_hybridjoin, ("segment_rows", "cached_rows"), needs_frequency_order=True),
    Model(
        "optimised_x_hybridjoin",
        predict_optimised_x_hybridjoin,
        ("segment_rows", "cached_rows"),
        needs_frequency_order=True,
    ),
    Model("cachejoin", predict_cachejoin, ("segment_rows", "cached_rows")),
    Model("sscj", predict_sscj, ("segment_rows", "cached_rows")),
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
