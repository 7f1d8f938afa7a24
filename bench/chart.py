"""Charts as SVG, drawn by matplotlib, the same bytes for the same figures; and the picture of a case."""

from __future__ import annotations

import io
import json
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.experiment import Chart
from bench.harness import FORMAT
from bench.machine import usable_cores
from bench.report import point_text
from dovetail.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (7.2, 3.6)
_MARKS = "osD^vPX*<>ph"
_MANY = 24


def draw_file(figures: Path, directory: Path) -> list[Path]:
    """A picture for every case and every chart of an experiment in a figures file; their paths."""
    try:
        found = json.loads(figures.read_text())
        entries = (found["cases"], found["experiments"]) if found["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{figures} holds no benchmark figures: {error}. Make it with `bench run --json`.") from error
    if entries is None:
        raise DataError(f"{figures} is of format {found['format']}, this version draws {FORMAT}; run the case again.")
    charts = {case["name"]: case_chart(case) for case in entries[0]}
    for experiment in entries[1]:
        drawn = (experiment["findings"] or {"charts": []})["charts"]
        charts |= {f"{experiment['name']}-{n}": Chart(**chart) for n, chart in enumerate(drawn, 1)}
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.svg" for name in charts]
    for path, svg in zip(paths, draw_all(list(charts.values())), strict=True):
        path.write_text(svg)
    return paths


def case_chart(case: Mapping[str, Any]) -> Chart:
    """Warm seconds of every rival that finished at every point, side by side: medians, with their range as a line."""
    lines: dict[str, list[tuple[float | str, ...]]] = {}
    for point in case["points"]:
        for rival in point["rivals"]:
            if rival["status"] == "ok" and (warm := rival["warm_s"]):
                bar = (point_text(point["params"]), warm["median"], warm["low"], warm["high"])
                lines.setdefault(rival["name"], []).append(bar)
    return Chart(case["question"], "", "seconds, warm, median and range", lines, kind="bar", log_y=True)


def draw_all(charts: Sequence[Chart]) -> list[str]:
    """Each chart as one SVG element; many of them on all cores, for matplotlib takes its time."""
    if len(charts) < _MANY:
        return [draw(chart) for chart in charts]
    with ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn")) as processes:
        return list(processes.map(draw, charts, chunksize=4))


def draw(chart: Chart) -> str:
    """The chart as one SVG element, with a transparent ground and text as text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dovetail", "font.size": 9}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        {"line": _lines, "bar": _bars, "heat": _heat}[chart.kind](axes, chart)
        axes.set(xlabel=chart.x, ylabel=chart.y, title=chart.title)
        if chart.log_x:
            axes.set_xscale("log")
        if chart.log_y:
            axes.set_yscale("log")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _lines(axes: Axes, chart: Chart) -> None:
    for number, (name, points) in enumerate(chart.lines.items()):
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        axes.plot(_plain(xs), _plain(ys), marker=_MARKS[number % len(_MARKS)], markersize=4, linewidth=1.2, label=name)
    axes.grid(visible=True, alpha=0.3)
    if len(chart.lines) > 1 or "" not in chart.lines:
        axes.legend(fontsize=8)


def _bars(axes: Axes, chart: Chart) -> None:
    places = list(dict.fromkeys(p[0] for points in chart.lines.values() for p in points))
    width = 0.8 / max(1, len(chart.lines))
    for number, (name, points) in enumerate(chart.lines.items()):
        at = [places.index(p[0]) + (number - (len(chart.lines) - 1) / 2) * width for p in points]
        axes.bar(at, _plain([p[1] for p in points]), width=width, label=name)
        for x, (_, _, low, high) in ((x, p) for x, p in zip(at, points, strict=True) if len(p) == 4):
            axes.plot([x, x], _plain([low, high]), color="black", linewidth=1)
    axes.set_xticks(range(len(places)), [str(place) for place in places])
    axes.grid(visible=True, axis="y", alpha=0.3)
    if len(chart.lines) > 1:
        axes.legend(fontsize=8)


def _heat(axes: Axes, chart: Chart) -> None:
    (points,) = chart.lines.values()
    xs, ys = (sorted({p[place] for p in points}, key=lambda v: (isinstance(v, str), v)) for place in (0, 1))
    values = {(p[0], p[1]): float(p[2]) for p in points}
    cells = [[values.get((x, y), float("nan")) for x in xs] for y in ys]
    mesh = axes.imshow(cells, origin="lower", aspect="auto")
    axes.set_xticks(range(len(xs)), [f"{x:g}" if isinstance(x, float) else str(x) for x in xs])
    axes.set_yticks(range(len(ys)), [f"{y:g}" if isinstance(y, float) else str(y) for y in ys])
    axes.figure.colorbar(mesh, ax=axes)


def _plain(values: list[Any]) -> list[Any]:
    """NumPy's numbers as Python's: matplotlib draws both, JSON takes only these."""
    return [value.item() if hasattr(value, "item") else value for value in values]
