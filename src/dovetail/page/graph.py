"""Draws the pipeline as a graph: boxes coloured by kind, curves from each step to its readers.

Steps are placed by the layered method of Sugiyama, Tagawa and Toda: longest paths, bends in the layers that a line
passes, barycentres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import pi
from typing import Any

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.plotting import figure

from dovetail.page import units
from dovetail.page.theme import KINDS, SANS
from dovetail.pipeline.record.watch import Node, Watch

SWEEPS = 6
"""Passes that move each step towards its neighbours; placement settles after two or three."""

Edge = tuple[str, str]
Spot = tuple[float, float]
Key = str | tuple[Edge, int]
"""A step, or the place where a long line passes a layer."""


@dataclass(frozen=True, slots=True)
class Places:
    """Column and row of every step, and the spots that every line passes, ends included.

    Rows are centred on zero; whatever stands or passes in a column is at least one row apart.
    """

    of: Mapping[str, Spot]
    lines: Mapping[Edge, tuple[Spot, ...]]
    columns: int
    rows: int


def place(names: Sequence[str], edges: Sequence[Edge]) -> Places:
    """Place every step right of its inputs, and as near to its readers as that allows."""
    layer = _layers(names, edges)
    chains = {edge: _chain(edge, layer) for edge in edges}
    grid: list[list[Key]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in names:
        grid[layer[name]].append(name)
    for (source, _), chain in chains.items():
        for depth, bend in enumerate(chain[1:-1], start=layer[source] + 1):
            grid[depth].append(bend)
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    for sweep in range(SWEEPS):
        _order(grid if sweep % 2 == 0 else grid[::-1], links)
    spots = {key: _spot(depth, row, len(column)) for depth, column in enumerate(grid) for row, key in enumerate(column)}
    lines = {edge: tuple(spots[key] for key in chain) for edge, chain in chains.items()}
    return Places({name: spots[name] for name in names}, lines, len(grid), max(map(len, grid), default=0))


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """The layer of each step by its longest path from a source; steps with readers then move next to the first."""
    layer = dict.fromkeys(names, 0)
    for _ in names:  # a path has at most as many steps as there are, so that a cycle in a bad record ends as well
        for source, target in edges:
            layer[target] = min(max(layer[target], layer[source] + 1), len(names))
    for name in sorted(names, key=layer.__getitem__, reverse=True):
        readers = [layer[target] for source, target in edges if source == name]
        layer[name] = max(layer[name], min(readers) - 1) if readers else layer[name]
    used = sorted(set(layer.values()))
    return {name: used.index(depth) for name, depth in layer.items()}


def _chain(edge: Edge, layer: Mapping[str, int]) -> list[Key]:
    source, target = edge
    return [source, *((edge, depth) for depth in range(layer[source] + 1, layer[target])), target]


def _order(grid: Sequence[list[Key]], links: Sequence[tuple[Key, Key]]) -> None:
    """Sort each layer by the mean row of its neighbours in the layers before it."""
    height = {key: _spot(0, row, len(column))[1] for column in grid for row, key in enumerate(column)}
    seen: set[Key] = set()
    for column in grid:
        mean = {key: _mean_height(key, links, height, seen) for key in column}
        column.sort(key=mean.__getitem__, reverse=True)
        height.update((key, _spot(0, row, len(column))[1]) for row, key in enumerate(column))
        seen.update(column)


def _mean_height(key: Key, links: Sequence[tuple[Key, Key]], height: Mapping[Key, float], seen: set[Key]) -> float:
    near = [a if b == key else b for a, b in links if key in (a, b)]
    heights = [height[other] for other in near if other in seen]
    return sum(heights) / len(heights) if heights else height[key]


def _spot(depth: int, row: int, rows: int) -> Spot:
    return float(depth), (rows - 1) / 2 - row


BOX_WIDTH, BOX_HEIGHT, ACROSS, DOWN, MARGIN = 164, 64, 220, 82, 8
"""Pixels: a box, the distance between columns and between rows, the empty border."""

LONGEST_NAME, LONGEST_TYPE = 19, 24
"""Characters of usual width that fit a box."""

TIP = 6
EDGE = "#8a94a3"
FLOWS: tuple[tuple[tuple[str, ...], units.Unit], ...] = (
    (("service_rows_per_s", "arrival_rows_per_s"), "rows/s"),
    (("rows_out", "rows_in"), "rows"),
)


class Graph:
    """The graph in fixed pixels, so that labels fit at any width of the window."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        places = place([node.name for node in watch.nodes], watch.edges)
        self.nodes = ColumnDataSource(_boxes(watch.nodes, places))
        self.edges = ColumnDataSource(_curves(places))
        self.tips = ColumnDataSource(_tips(places))
        self.figure = _canvas(places)
        self._draw()
        self.refresh()

    def refresh(self) -> None:
        """Show the newest rate or total of every step in its box."""
        flows = [_flow(self._watch.latest(node.name)) for node in self._watch.nodes]
        if flows != list(self.nodes.data["flow"]):
            self.nodes.patch({"flow": [(slice(len(flows)), flows)]})

    def _draw(self) -> None:
        sheet: Any = self.figure
        sheet.bezier(
            x0="x0", y0="y0", x1="x1", y1="y1", cx0="cx", cy0="y0", cx1="cx", cy1="y1",
            source=self.edges, line_color=EDGE, line_width=1.6,
        )  # fmt: skip
        sheet.scatter(
            x="x", y="y", marker="triangle", angle=-pi / 2, size=9, source=self.tips, color=EDGE, line_color=None
        )
        boxes = sheet.rect(
            x="x", y="y", width=BOX_WIDTH, height=BOX_HEIGHT, border_radius=8, fill_color="colour", line_color=None,
            source=self.nodes,
        )  # fmt: skip
        look = {"text_align": "center", "text_baseline": "middle", "text_color": "white", "text_font": value(SANS)}
        sheet.text(x="x", y="y", text="label", y_offset=-18, source=self.nodes, text_font_size="13px",
                   text_font_style="bold", **look)  # fmt: skip
        sheet.text(x="x", y="y", text="sort", y_offset=1, source=self.nodes, text_font_size="11px", **look)
        sheet.text(x="x", y="y", text="flow", y_offset=18, source=self.nodes, text_font_size="12px", **look)
        tips = [("name", "@name"), ("kind", "@kind"), ("type", "@type"), ("detail", "@detail")]
        sheet.add_tools(HoverTool(renderers=[boxes], tooltips=tips))


def _canvas(places: Places) -> figure:
    width = max(1, places.columns) * ACROSS - (ACROSS - BOX_WIDTH) + 2 * MARGIN
    height = max(1, places.rows) * DOWN - (DOWN - BOX_HEIGHT) + 2 * MARGIN
    sheet = figure(
        width=width,
        height=height,
        min_border=0,
        toolbar_location=None,
        tools="",
        x_range=Range1d(start=-BOX_WIDTH / 2 - MARGIN, end=width - BOX_WIDTH / 2 - MARGIN),
        y_range=Range1d(start=-height / 2, end=height / 2),
        name="graph",
    )
    sheet.axis.visible = False
    sheet.grid.visible = False
    sheet.outline_line_color = None
    sheet.background_fill_color = sheet.border_fill_color = None
    return sheet


def _boxes(nodes: tuple[Node, ...], places: Places) -> dict[str, list[Any]]:
    spots = [places.of[node.name] for node in nodes]
    return {
        "x": [column * ACROSS for column, _ in spots],
        "y": [row * DOWN for _, row in spots],
        "name": [node.name for node in nodes],
        "label": [elide(node.name, LONGEST_NAME) for node in nodes],
        "kind": [node.kind for node in nodes],
        "type": [node.type for node in nodes],
        "detail": [node.detail or units.NOTHING for node in nodes],
        "colour": [KINDS[node.kind] for node in nodes],
        "sort": [elide(node.type, LONGEST_TYPE) for node in nodes],
        "flow": ["" for _ in nodes],
    }


def _curves(places: Places) -> dict[str, list[float]]:
    """One curve between neighbouring columns; a long line bends where it passes a column of boxes."""
    found: dict[str, list[float]] = {"x0": [], "x1": [], "cx": [], "y0": [], "y1": []}
    for line in places.lines.values():
        last = len(line) - 2
        for piece, (left, right) in enumerate(pairwise(line)):
            x0 = left[0] * ACROSS + BOX_WIDTH / 2
            x1 = right[0] * ACROSS - BOX_WIDTH / 2 - (TIP if piece == last else 0)
            _append(found, x0, left[1] * DOWN, x1, right[1] * DOWN)
            if piece != last:  # straight past the boxes of the column between
                _append(found, x1, right[1] * DOWN, x1 + BOX_WIDTH, right[1] * DOWN)
    return found


def _append(found: dict[str, list[float]], x0: float, y0: float, x1: float, y1: float) -> None:
    for name, number in (("x0", x0), ("y0", y0), ("x1", x1), ("y1", y1), ("cx", (x0 + x1) / 2)):
        found[name].append(number)


def _tips(places: Places) -> dict[str, list[float]]:
    ends = [line[-1] for line in places.lines.values()]
    return {
        "x": [column * ACROSS - BOX_WIDTH / 2 - TIP + 1 for column, _ in ends],
        "y": [row * DOWN for _, row in ends],
    }


def _flow(latest: dict[str, float]) -> str:
    """The rate of a step if it is known, else its total, else nothing."""
    for names, unit in FLOWS:
        for name in names:
            if name in latest:
                return units.quantity(latest[name], unit)
    return ""


def elide(text: str, longest: int) -> str:
    """The text on one line, cut with an ellipsis where it is too long.

    >>> elide("orders", 8), elide("orders_of_today", 8)
    ('orders', 'orders_…')
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
