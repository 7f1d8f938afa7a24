"""Charts of experiments as SVG, drawn by matplotlib, the same bytes for the same figures."""

from __future__ import annotations

import io
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.experiment import Chart
from bench.machine import usable_cores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (7.2, 3.6)
_MARKS = "osD^vPX*<>ph"
_MANY = 24


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
