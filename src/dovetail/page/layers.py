"""Where the steps of a pipeline stand: layers from left to right, few crossings, no line behind a box.

Reference: the layered method of Sugiyama, Tagawa and Toda: longest paths, bends in the layers that a line passes,
barycentres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 6
"""Passes over the layers that pull a step towards its neighbours; drawings settle after two or three."""

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
    """Every step right of all that it reads from, and as near to its readers as that allows."""
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
    """Longest path from a start; then what has readers moves right, next to the first of them."""
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
    """Sort each layer by the mean place of its neighbours in the layers before it."""
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
