"""The semi-stream models beside the joins: rows a load and rows a second, on simulated devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.context import BenchContext
from bench.experiments.models.errors import Compared, against_chart, error_chart, error_table, spreads
from bench.experiments.models.semistream_runs import LOADS, Scene, counted, decided, scenes, typical_costs
from bench.judge import Figures
from dovetail.joins.semistream.decision import Decision

PER_LOAD, RATE = "rows a load", "rows a second"
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


def errors(bench: BenchContext) -> Figures:
    """Predictions and counts of every third scene."""
    with typical_costs(bench.scratch):
        compared, rows = compare(scenes()[::EVERY], LOADS[bench.scale])
    found = spreads(compared)
    charts = [against_chart(compared, RATE, RATE), error_chart(found, PER_LOAD), error_chart(found, RATE)]
    return Figures({"found": found}, [*charts, error_table(found, "Predicted against counted")], rows)
