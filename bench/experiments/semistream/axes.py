"""Curves over one axis of a setting, and the charts and tables that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bench.experiment import Chart, Grid
from bench.experiments.semistream.counting import Point, count
from bench.experiments.semistream.judging import grid
from bench.simulation import Rate
from dovetail.joins.semistream.cost import NoRoomError

Figure = Callable[[Rate], float]
Curves = Mapping[str, Sequence[float]]


def per_second(found: Rate) -> float:
    """Rows a second."""
    return found.per_second


def curves(joins: Mapping[str, Point], axis: str, values: Sequence[float], figure: Figure = per_second) -> Curves:
    """A figure of every join at every value of one of its fields, on the simulated disk."""
    return {
        name: [figure(count(replace(point, **{axis: value}))) for value in values]  # type: ignore[arg-type]  # a field
        for name, point in joins.items()
    }


def shown(
    title: str, axis: str, y: str, values: Sequence[float], found: Curves, *, log_x: bool = False, log_y: bool = False
) -> tuple[Chart, Grid]:
    """The curves as a chart and as a table."""
    lines = {name: list(zip(values, ys, strict=True)) for name, ys in found.items()}
    rows = [(value, *(ys[at] for ys in found.values())) for at, value in enumerate(values)]
    return Chart(title, axis, y, lines, log_x=log_x, log_y=log_y), grid(f"{title}: {y}", (axis, *found), rows)


def over(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Value by value, how many times the second the first is."""
    return [a / b for a, b in zip(first, second, strict=True)]


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The power of x that y follows: the slope on logarithmic axes."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def best_by_model(points: Iterable[Point]) -> Point:
    """The point whose model promises the highest rate; points that do not fit in memory are passed over."""
    fitting: list[tuple[float, Point]] = []
    for point in points:
        try:
            fitting.append((point.predicted().mu, point))
        except NoRoomError:
            continue
    return max(fitting, key=lambda found: found[0])[1]
