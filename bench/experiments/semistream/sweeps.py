"""Joins over master rows, memory, skew, or sizes of their buffers: most figures of chapters 5 to 8 and Naeem 2014."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.experiment import Chart, Grid
from bench.experiments.semistream.media import Runner
from bench.experiments.semistream.points import Point, X, at, best_by_model, master_rows, memories
from bench.judge import Figures

Values = Sequence[float] | Mapping[str, Sequence[float]]
"""Values of an axis; or by the scale, or as `few`, where there are others."""


def _chosen(runner: Runner, values: Values) -> Sequence[float]:
    if not isinstance(values, Mapping):
        return values
    return values["few"] if runner.few and "few" in values else values.get(runner.bench.scale, values["small"])


def swept(
    runner: Runner,
    joins: Sequence[str],
    over: Mapping[str, str],
    values: Values = (),
    log: str = "",
    ends: bool = False,
) -> list[Figures]:
    """Rates of some joins over one or more axes, each with the title of its chart.

    `ends`: only the first and the last value where points take longest. Axes of master rows are logarithmic.
    """
    found, some = [], _chosen(runner, values)
    for axis, title in over.items():
        one = runner.swept(joins, axis, some[:: len(some) - 1] if ends and runner.fewest else some)
        drawn = "xy" if axis == "rows" and not log else log
        found.append(one.figures(runner, title, log_x="x" in drawn, log_y="y" in drawn))
    return found


def proportions(
    runner: Runner, join: str, over: Mapping[str, Mapping[str, Any]], cached: Sequence[int] = ()
) -> Figures:
    """Rows per iteration through the segment (`cold`), through rows that are kept (`hot`) and all (`w`), by axis.

    `cached` is the number of cached rows, and that where points take long.
    """
    usual: dict[str, Sequence[float]] = {"rows": master_rows(runner.bench), "memory_mb": memories(runner.bench)}
    if runner.few:
        usual = {"rows": usual["rows"][:-1], "memory_mb": usual["memory_mb"][::2]}
    kept = {"cached": cached[runner.few]} if cached else {}
    values, cold, hot = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for axis, told in over.items():
        values[axis] = np.array(_chosen(runner, told.get("values", usual.get(axis, ()))))
        fields = {name: value for name, value in told.items() if name != "values"}
        found = runner.swept([join], axis, values[axis].tolist(), **kept, **fields).figures(runner).named
        hot[axis] = found["load"](join) * found["share"](join)
        cold[axis] = found["load"](join) - hot[axis]
    w = {axis: hot[axis] + cold[axis] for axis in over}
    return Figures({"at": values, "cold": cold, "hot": hot, "w": w, "note": runner.note})


SWAPPED, PINNED = (250, 500, 1000, 2000, 4000, 8000), (0, 1, 2, 4, 8, 16)  # pinned: of 500 rows
SEGMENTS, CACHES = (250, 500, 1000, 2000, 4000, 8000, 16_000), (4000, 8000, 16_000, 32_000, 64_000, 128_000)


def rate_map(runner: Runner, join: str, axes: tuple[str, str]) -> Figures:
    """Rates over two sizes: of the segment, and of what X-HYBRIDJOIN pins or Optimised X-HYBRIDJOIN caches."""
    plain, few = runner.point(join), runner.few
    if join == X:
        segments, pinned = (SWAPPED[1:4], PINNED[::2]) if few else (SWAPPED, PINNED)
        sizes = {(d, -(-500 * p // d) * d) for d in segments for p in pinned} | {(d, max(500, d)) for d in segments}
        found = {size: runner.rate(replace(plain, segment=size[0], pinned=size[1])) for size in sorted(sizes)}
        curves = {
            "over the pinned rows with 500 swapped": [found[500, 500 * p] for p in pinned],
            "over the swapped rows": [found[d, max(500, d)] for d in segments],
        }
    else:
        caches, segments = (CACHES[3:], SEGMENTS[1:4]) if few else (CACHES, SEGMENTS[1:])
        room = caches[-1] if few else 64_000
        whole = [(d, n) for n in caches for d in segments if n // plain.divide >= d]  # the table holds whole segments
        found = {(d, n): runner.rate(replace(plain, segment=d, cached=n)) for d, n in whole}
        curves = {
            "over h_R at 500 rows a segment": [found[500, n] for n in caches],
            f"over d with {room:,} rows in the table": [found[d, room] for d in segments if (d, room) in found],
        }
    points = [(*sizes, rate) for sizes, rate in sorted(found.items())]
    chart = Chart("Rows a second", axes[0], axes[1], {"rate": points}, kind="heat")
    return Figures({"curves": curves, "best": max(found, key=found.__getitem__), "note": runner.note}, [chart])


def by_size(join: str, runner: Runner) -> tuple[list[Point], list[Point]]:
    """Points over sizes of the segment, and over sizes of what is kept in memory."""
    plain = runner.point(join)
    if join == X:
        segments = [replace(plain, segment=d, pinned=max(500, d)) for d in SWAPPED]
        return segments, [replace(plain, pinned=500 * p) for p in PINNED[1:]]
    return [replace(plain, segment=d, cached=64_000) for d in SEGMENTS], [replace(plain, cached=n) for n in CACHES]


def x_tuned(runner: Runner) -> Figures:
    """X-HYBRIDJOIN with the sizes that our model chooses, and without, over master rows and over memory."""
    plain, gains, shown = runner.point(X), list[float](), list[Chart | Grid]()
    axes = {"master rows": ("rows", master_rows(runner.bench)), "memory, MB": ("memory_mb", memories(runner.bench))}
    for name, (axis, values) in axes.items():
        rows = []
        for value in values:
            untuned = at(plain, **{axis: value})
            choices = [replace(untuned, segment=d, pinned=d * n) for d in (500, 2000, 4000, 8000) for n in (1, 2, 4)]
            tuned = best_by_model(choices)
            rows.append((value, runner.rate(untuned), runner.rate(tuned), tuned.segment, tuned.pinned or 0))
        gains += [row[2] / row[1] for row in rows]
        grid = Grid(f"By {name}", (name, "untuned, rows/s", "tuned", "d_S", "d_N"), rows)
        shown += [grid.chart("rows a second", {"untuned": 1, "tuned": 2}, log_x=axis == "rows"), grid]
    return Figures({"gains": gains, "note": runner.note}, shown)
