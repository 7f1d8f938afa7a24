"""A relation as counts of right rows below a few boundaries, seen from one left interval.

The left bounds cut the number line into five zones (below the start, at it, between, at the end, above it), or three if
the two bounds are one point. A right interval is a cell: the zone of its start and the zone of its end. With p[a] right
starts below boundary a, q[b] right ends below boundary b, and D[a, b] rows below both, the rows in any set of cells are
a sum of those with fixed weights; since no interval ends before it starts, D[a, b] = q[b] wherever b <= a. Most
relations need no D at all, or one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.joins.interval.relation import EQUAL, GREATER, LESS

# How the left start and the left end compare with a number in each zone, lowest zone first.
_SIGNS = ((GREATER, GREATER), (EQUAL, GREATER), (LESS, GREATER), (LESS, EQUAL), (LESS, LESS))
_POINT_SIGNS = ((GREATER, GREATER), (EQUAL, EQUAL), (LESS, LESS))


@dataclass(frozen=True, slots=True)
class Boundary:
    """A number that splits right bounds into those below it and the rest: a left bound, itself below or not."""

    of_end: bool
    inclusive: bool


BOUNDARIES = {
    1: Boundary(of_end=False, inclusive=False),
    2: Boundary(of_end=False, inclusive=True),
    3: Boundary(of_end=True, inclusive=False),
    4: Boundary(of_end=True, inclusive=True),
}
"""Boundaries between zones, from 1; a point has the first two. Boundary 0 is below everything, the last one above."""


def cells(table: npt.NDArray[np.bool_], point: bool = False) -> npt.NDArray[np.bool_]:
    """Which cells (zone of the right start, zone of the right end) the relation accepts; impossible ones are False."""
    signs = _POINT_SIGNS if point else _SIGNS
    accepted = np.zeros((len(signs), len(signs)), np.bool_)
    for i, (ss, es) in enumerate(signs):
        for j, (se, ee) in enumerate(signs[i:], start=i):
            accepted[i, j] = table[27 * ss + 9 * se + 3 * es + ee]
    return accepted


@dataclass(frozen=True, slots=True)
class Weights:
    """Rows accepted = rows * all + sum starts[a] * p[a] + sum ends[b] * q[b] + sum both[a, b] * D[a, b].

    Only weights other than zero are kept.
    """

    rows: int
    starts: dict[int, int]
    ends: dict[int, int]
    both: dict[tuple[int, int], int]

    @property
    def separable(self) -> bool:
        """Whether starts and ends can be counted apart, without knowing which belong together."""
        return not self.both


def weights(accepted: npt.NDArray[np.bool_], right_points: bool) -> Weights:
    """The weights of a set of cells; fewer are needed when no right interval is a point."""
    zones = len(accepted)
    padded = np.zeros((zones + 1, zones + 1), np.int64)
    padded[:zones, :zones] = accepted
    corner = padded[:-1, :-1] - padded[1:, :-1] - padded[:-1, 1:] + padded[1:, 1:]
    rows, starts, ends = 0, dict[int, int](), dict[int, int]()
    both: dict[tuple[int, int], int] = {}
    for a, b, weight in _nonzero(corner):
        if a == b == zones:
            rows += weight
        elif b == zones:
            starts[a] = starts.get(a, 0) + weight
        elif b <= a or (not right_points and b == a + 1 and BOUNDARIES[b].inclusive):
            # Every right row that ends below b starts below a.
            ends[b] = ends.get(b, 0) + weight
        else:
            both[a, b] = weight
    return Weights(rows, _kept(starts), _kept(ends), both)


def _nonzero(corner: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    return ((int(a) + 1, int(b) + 1, int(corner[a, b])) for a, b in np.argwhere(corner))


def _kept(found: dict[int, int]) -> dict[int, int]:
    return {boundary: weight for boundary, weight in found.items() if weight}


def rectangles(accepted: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The cells as few rectangles, rising by start: lower and upper boundary of the starts, then of the ends.

    Rectangles either share their starts or have none in common.
    """
    zones = len(accepted)
    runs = [_runs(accepted[zone], zone) for zone in range(zones)]
    found, first = [], 0
    for zone in range(1, zones + 1):
        if zone == zones or runs[zone] != runs[first]:
            found += [(first, zone, low, high) for low, high in runs[first]]
            first = zone
    return np.array(found, np.int64).reshape(-1, 4)


def _runs(accepted: npt.NDArray[np.bool_], start_zone: int) -> list[tuple[int, int]]:
    """Runs of accepted end zones; one that begins in the start's own zone is extended to begin below everything."""
    edges = np.flatnonzero(np.diff(accepted.astype(np.int8), prepend=0, append=0)).tolist()
    return [(0 if low == start_zone else low, high) for low, high in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True, slots=True)
class Touching:
    """The relation `overlapping`: whether intervals that touch at a left start or a left end match."""

    at_start: bool
    at_end: bool

    @property
    def start_boundary(self) -> int:
        """A right row must start below this one."""
        return 4 if self.at_end else 3

    @property
    def end_boundary(self) -> int:
        """A right row must not end below this one."""
        return 1 if self.at_start else 2


def as_overlapping(table: npt.NDArray[np.bool_]) -> Touching | None:
    """The kind of `overlapping` that the table is; None if it is none."""
    signs = np.arange(81)
    se, es = signs // 9 % 3, signs // 3 % 3
    for touching in (Touching(s, e) for s in (False, True) for e in (False, True)):
        in_time = (se == LESS) | ((se == EQUAL) & touching.at_start)
        if np.array_equal(table, in_time & ((es == GREATER) | ((es == EQUAL) & touching.at_end))):
            return touching
    return None
