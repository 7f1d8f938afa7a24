"""Compares predictions with counts: one comparison a figure, summed up by algorithm and by what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.experiment import Chart, Grid


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure that a model predicted and a run counted."""

    algorithm: str
    what: str
    setting: str
    predicted: float
    counted: float

    @property
    def error(self) -> float:
        """The difference as a share of the count, negative where the model says too little."""
        return self.predicted / self.counted - 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors of one algorithm in one figure, without their signs: median, nine tenths of them, the worst and where."""

    algorithm: str
    what: str
    settings: int
    median: float
    most: float
    worst: Compared


def spreads(compared: Sequence[Compared]) -> list[Spread]:
    """The errors by figure and algorithm, in the order in which these first came."""
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in compared:
        groups.setdefault((one.what, one.algorithm), []).append(one)
    return [_spread(algorithm, what, some) for (what, algorithm), some in sorted(groups.items(), key=lambda g: g[0][0])]


def _spread(algorithm: str, what: str, some: list[Compared]) -> Spread:
    off = np.abs([one.error for one in some])
    worst = some[int(np.argmax(off))]
    return Spread(algorithm, what, len(some), float(np.median(off)), float(np.quantile(off, 0.9)), worst)


def error_table(found: Sequence[Spread], title: str) -> Grid:
    """The spreads as a table, errors in percent."""
    heads = ("figure", "algorithm", "settings", "median error %", "9 of 10 below %", "worst %", "worst at")
    rows = [
        (s.what, s.algorithm, s.settings, 100 * s.median, 100 * s.most, 100 * s.worst.error, s.worst.setting)
        for s in found
    ]
    return Grid(title, heads, rows)


def error_chart(found: Sequence[Spread], what: str) -> Chart:
    """Median and ninth decile of the errors by algorithm."""
    some = [s for s in found if s.what == what]
    lines = {
        "median": [(s.algorithm, 100 * s.median) for s in some],
        "9 of 10 below": [(s.algorithm, 100 * s.most) for s in some],
    }
    return Chart(f"Errors of the models: {what}", "algorithm", "error, % of the count", lines, kind="bar")


def against_chart(compared: Sequence[Compared], what: str, unit: str) -> Chart:
    """Predicted over counted, by algorithm, from the smallest count to the largest."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(compared, key=lambda one: one.counted):
        if one.what == what and one.counted > 0 and one.predicted > 0:
            lines.setdefault(one.algorithm, []).append((float(one.counted), float(one.predicted)))
    return Chart(
        f"Predicted beside counted: {what}", f"counted, {unit}", f"predicted, {unit}", lines, "line", True, True
    )
