"""The semi-stream models beside the joins: rows a load and rows a second, on simulated devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.context import BenchContext
from bench.experiment import Findings, Opinion, reported
from bench.experiments.models.errors import (
    Compared,
    Spread,
    against_chart,
    error_chart,
    error_table,
    spreads,
    verdict_on,
)
from bench.experiments.models.semistream_runs import LOADS, Scene, counted, decided, scenes, typical_costs
from dovetail.joins.semistream.decision import Decision

PER_LOAD, RATE = "rows a load", "rows a second"
MOST_ERROR: Final = {PER_LOAD: 0.15, RATE: 0.15}
"""Median errors up to which a model counts as right: what our tests ask of every single case."""
EVERY: Final = 3
"""Of the scenes of the choice every third one is run again here, whole."""


def predicted(found: Decision) -> tuple[float, float] | None:
    """Rows a load and rows a second as the model has them; None where no model found room."""
    price = found.price
    if price is None or price.prediction is None:
        return None
    loads = price.batch.steps / price.batch.rows if price.batch else price.prediction.loads_per_tuple
    return 1 / max(loads, 1e-9), price.rate


def compare(some: Sequence[Scene], loads: int) -> tuple[list[Compared], int]:
    """Every algorithm that can run in every scene, and the rows that were answered."""
    compared, rows = [], 0
    for scene in some:
        setting = scene.setting()
        for algorithm, found in decided(scene, setting).items():
            told = predicted(found)
            if told is None:
                continue
            did = counted(scene, found, setting, loads)
            rows += did.rows
            if did.loads:
                compared.append(Compared(algorithm, PER_LOAD, str(scene), told[0], did.per_load))
            compared.append(Compared(algorithm, RATE, str(scene), told[1], did.rate))
    return compared, rows


def verdict(found: Sequence[Spread]) -> tuple[Opinion, str]:
    """Holds if all median errors are within their bounds; in part if most are."""
    note = "The model is told the skew that was estimated from a sample of 4,000 keys, so that its error counts."
    return verdict_on(found, MOST_ERROR, note)


def errors(bench: BenchContext) -> Findings:
    """Predictions and counts of every third scene."""
    with typical_costs(bench.scratch):
        compared, rows = compare(scenes()[::EVERY], LOADS[bench.scale])
    found = spreads(compared)
    opinion, why = verdict(found)
    charts = against_chart(compared, RATE, RATE), error_chart(found, PER_LOAD), error_chart(found, RATE)
    return reported(opinion, why, *charts, error_table(found, "Predicted against counted"), rows=rows)
