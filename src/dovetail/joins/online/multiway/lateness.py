"""How long rows of a multiway join must be kept under watermarks: bands of times along all edges of the join tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from dovetail.joins.online.lateness import Lateness, band_us
from dovetail.joins.online.multiway.graph import JoinGraph


def multi_lateness(graph: JoinGraph, delays_ms: Sequence[Mapping[str, int]]) -> Lateness | None:
    """What watermarks say, given by input and column; None unless every edge has a band of times on such columns.

    Each input has one column of times. Rows of inputs that are no neighbours are as far apart as the bands between.
    """
    columns: dict[int, str] = {}
    later: dict[int, dict[int, int]] = {r: {} for r in range(len(graph.names))}
    for edge in graph.edges:
        band, (r, q) = edge.any_band, (end.relation for end in edge.ends)
        if band is None or not isinstance(band.lo, timedelta):
            return None
        for relation, column in ((r, band.left), (q, band.right)):
            if column not in delays_ms[relation] or columns.setdefault(relation, column) != column:
                return None
        lo, hi = band_us(band)
        later[r][q], later[q][r] = hi, -lo
    used = tuple(columns[r] for r in range(len(graph.names)))
    delays = tuple(1000 * delays_ms[r][column] for r, column in enumerate(used))
    return Lateness(used, delays, tuple(max(_reaches(later, r, None)) for r in range(len(graph.names))))


def _reaches(later: Mapping[int, Mapping[int, int]], r: int, before: int | None) -> list[int]:
    """How much later than a row of one input those of each other input may be."""
    found = []
    for near, by in later[r].items():
        if near != before:
            found += [by, *(by + more for more in _reaches(later, near, r))]
    return found
