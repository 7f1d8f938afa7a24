"""The number of matching pairs of two inputs, from sorted bounds; no pair is formed.

Inputs are codes as `codes.py` makes them: half-open and not empty (start < end), so that `overlapping`
is start_l < end_r and start_r < end_l. Every other relation is looked up on the bounds as written: start >> h and
(end - shift) >> h.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import sorted_copy
from dovetail.joins.interval.index.overlap_index import OverlapIndex
from dovetail.joins.interval.index.sorted import Segments
from dovetail.joins.interval.index.zones import BOUNDARIES, Weights, cells, weights
from dovetail.joins.interval.kernels.search import sum_below

_FEW = 1 << 14


@dataclass(frozen=True, slots=True)
class Side:
    """One input: equality key codes (or None), starts and ends, row by row."""

    key: I64 | None
    start: I64
    end: I64

    def __post_init__(self) -> None:
        for name in ("key", "start", "end"):
            if (array := getattr(self, name)) is not None:
                object.__setattr__(self, name, int64s(array))
        if not len(self.start) == len(self.end) == (len(self.start) if self.key is None else len(self.key)):
            raise ValueError(f"{len(self.start)} starts and {len(self.end)} ends (or keys) are not one input.")

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.start)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Side:
        """The rows at these positions, or under this mask."""
        return Side(None if self.key is None else self.key[rows], self.start[rows], self.end[rows])


def count_pairs(left: Side, right: Side, table: npt.NDArray[np.bool_] | None = None, h: int = 0, shift: int = 0) -> int:
    """The number of pairs of equal key that match the relation's table; None means overlapping half-open codes.

    Overlapping, before, after, meets and met_by need four sorts and two merges; the others count row by row in an
    `OverlapIndex`. Exact at any size.
    """
    if not left.rows or not right.rows:
        return 0
    if table is None:
        return _count_overlapping(left, right)
    points = (left.start >> h) == ((left.end - shift) >> h)
    right_points = bool(np.any((right.start >> h) == ((right.end - shift) >> h)))
    total = 0
    for is_point, mask in ((False, ~points), (True, points)):
        if mask.any():
            part = left if mask.all() else left.take(mask)
            found = weights(cells(table, is_point), right_points)
            total += (
                _count_weighted(part, right, found, h, shift)
                if found.separable
                else _count_by_row(part, right, table, h, shift)
            )
    return total


def _count_by_row(left: Side, right: Side, table: npt.NDArray[np.bool_], h: int, shift: int) -> int:
    with OverlapIndex.build(right.key, right.start, right.end, h=h, shift=shift) as index:
        return int(index.count(left.key, left.start, left.end, table).sum(dtype=object))


def _count_overlapping(left: Side, right: Side) -> int:
    line = _Line.of(left, right)
    ls, le, rs, re = (_ascending(codes) for codes in line.codes)
    disjoint = _pairs_below(ls, re, inclusive=True) + _pairs_below(rs, le, inclusive=True)
    return line.candidates - (disjoint - line.lower_right - line.lower_left)


def _count_weighted(left: Side, right: Side, found: Weights, h: int, shift: int) -> int:
    raw = [Side(side.key, side.start >> h, (side.end - shift) >> h) for side in (left, right)]
    line = _Line.of(*raw)
    ls, le, rs, re = (_ascending(codes) for codes in line.codes)
    total = found.rows * line.candidates
    for wanted, values in ((found.starts, rs), (found.ends, re)):
        for number, weight in wanted.items():
            boundary = BOUNDARIES[number]
            below = _pairs_below(le if boundary.of_end else ls, values, boundary.inclusive)
            total += weight * (below - line.lower_right)
    return total


# NumPy counts few rows at once; loading kernels first would take a good part of a second.
def _ascending(codes: I64) -> I64:
    return sorted_copy(codes) if len(codes) > _FEW else np.sort(codes)


def _pairs_below(probes: I64, values: I64, inclusive: bool) -> int:
    if max(len(probes), len(values)) > _FEW:
        return sum_below(probes, values, inclusive)
    return int(np.searchsorted(values, probes, "right" if inclusive else "left").sum())


@dataclass(frozen=True, slots=True)
class _Line:
    """All bounds on one number line, a stretch of it for each key, lower keys first.

    candidates: pairs of equal key. lower_right: pairs whose right key is the lower one; lower_left: the left key is.
    """

    codes: tuple[I64, I64, I64, I64]
    candidates: int
    lower_right: int
    lower_left: int

    @classmethod
    def of(cls, left: Side, right: Side) -> _Line:
        bounds = (left.start, left.end, right.start, right.end)
        if left.key is None and right.key is None:
            return cls(bounds, left.rows * right.rows, 0, 0)
        segments = Segments.of(right.key)
        number = segments.numbers(left.key, left.rows)
        if (number < 0).any():
            shared = number >= 0
            left, number = left.take(shared), number[shared]
        right_number = segments.numbers(right.key, right.rows)
        codes = _joined(number, right_number, (left.start, left.end, right.start, right.end), segments.count)
        exact = np.int64 if left.rows * right.rows < 2**63 else object
        nl, nr = (np.bincount(each, minlength=segments.count).astype(exact) for each in (number, right_number))
        lower_right = int(nl @ (np.cumsum(nr) - nr))
        candidates = int(nl @ nr)
        return cls(codes, candidates, lower_right, left.rows * right.rows - candidates - lower_right)


def _joined(left: I64, right: I64, bounds: tuple[I64, I64, I64, I64], segments: int) -> tuple[I64, I64, I64, I64]:
    """segment * span + (bound - least), or the same over ranks of the bounds where that would pass 2^63."""
    filled = [bound for bound in bounds if len(bound)]
    least, most = min(int(b.min()) for b in filled), max(int(b.max()) for b in filled)
    if segments * (most - least + 1) >= 2**63:
        ranks = np.unique(np.concatenate(bounds), return_inverse=True)[1].astype(np.int64)
        cuts = np.cumsum([len(bound) for bound in bounds])[:-1]
        bounds = tuple(np.split(ranks, cuts))  # type: ignore[assignment]  # four pieces, as there were
        least, most = 0, int(ranks.max())
    span = most - least + 1
    ls, le, rs, re = (
        number * span + (bound - least) for number, bound in zip((left, left, right, right), bounds, strict=True)
    )
    return ls, le, rs, re
