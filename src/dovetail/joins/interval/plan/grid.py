"""Joins by two inequalities: rows in the cells of a grid over the compared columns.

Each column is cut at quantiles. A row of one side is placed in its own cell, a row of the other side is copied to every
cell that may hold a match of it. So where columns rise together, and two inequalities in opposite directions leave few
pairs, few other pairs are tested. Which cells hold rows is known from a sample; rows elsewhere have cells that all rows
of the other side are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.arrays import F64, I64
from dovetail.joins.interval.plan.bins import ROW_COST, Span, explode_bins, points_reached
from dovetail.joins.interval.plan.cells import CELL_COLUMNS
from dovetail.joins.interval.plan.sides import Side
from dovetail.spark.hosts.batch import copied_to_tasks
from dovetail.spark.hosts.sample import SEED

SAMPLED = 1 << 15  # rows of a side
CUTS = (4, 8, 16, 32, 64, 128, 256, 512)  # numbers of cells along a column
MOST_TARGETS = 1 << 19  # copies of one row in every sampled cell, as a table that Spark sends to all tasks
_UNSEEN_PLACED, _UNSEEN_COPIED = -1, -2  # cells of placed and of copied rows in cells without a sampled row


@dataclass(frozen=True, slots=True)
class Axis:
    """One inequality: the SQL of the numbers that left and right rows compare, and whether the left one is smaller."""

    left: str
    right: str
    left_first: bool


@dataclass(frozen=True, slots=True, eq=False)
class GridCells:
    """Cells of two inequalities: the rows of `copied` are in every cell that may match, the others in one.

    Reference: docs/algorithms/interval.md, 8.8.
    """

    axes: tuple[Axis, Axis]
    points: tuple[tuple[float, ...], tuple[float, ...]]
    copied: str
    sources: I64 = field(repr=False)  # cells with sampled rows of the side that is copied
    targets: I64 = field(repr=False)  # cells with sampled rows of the other side
    copies: float  # predicted
    candidates: float  # predicted
    seconds: float

    def explain(self) -> str:
        """The grid in one line."""
        across, up = (len(points) + 1 for points in self.points)
        return (
            f"{across} x {up} cells, {self.copied} rows copied to those that may match; {self.copies:,.0f} copies, "
            f"{self.candidates:,.0f} candidate pairs predicted"
        )

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = CELL_COLUMNS) -> DataFrame:
        """The frame with a row for every cell, and of our columns those to keep."""
        ok = side.usable if side.kept else "true"
        places = [axis.left if side.name == "left" else axis.right for axis in self.axes]
        across, up = (points_reached(place, points) for place, points in zip(places, self.points, strict=True))
        first, cells = side.own("first"), side.own("cells")
        placed = frame.selectExpr("*", f"{across} * {len(self.points[1]) + 1}L + {up} as {first}")
        table = frame.sparkSession.createDataFrame(self._table(side.name, first, cells))
        found = placed.join(copied_to_tasks(table), first, "left")
        unseen = (_UNSEEN_COPIED,) if side.name == self.copied else (_UNSEEN_PLACED, _UNSEEN_COPIED)
        bins = f"if({ok}, coalesce({cells}, array({', '.join(f'{cell}L' for cell in unseen)})), array(0L))"
        span = Span(ok, first, first, f"cast(size({bins}) as bigint)", bins)
        return explode_bins(side, found, frame.columns, keep, span)

    def _table(self, side: str, cell: str, cells: str) -> pa.Table:
        """Of each sampled cell of a side, the cells that a row in it is placed in."""
        if side == self.copied:
            up = len(self.points[1]) + 1
            meets = _meets(self.sources, self.targets, up, self.axes, self.copied)
            rows, found = self.sources, np.append(self.targets, _UNSEEN_PLACED)
            listed = np.column_stack([meets, np.ones(len(rows), np.bool_)])
        else:
            rows, found = self.targets, np.append(self.targets, _UNSEEN_COPIED)
            listed = np.column_stack([np.eye(len(rows), dtype=np.bool_), np.ones(len(rows), np.bool_)])
        row, target = np.nonzero(listed)
        ends = np.searchsorted(row, np.arange(len(rows) + 1)).astype(np.int32)
        return pa.table({cell: pa.array(rows), cells: pa.ListArray.from_arrays(ends, pa.array(found[target]))})


def _meets(rows: I64, others: I64, up: int, axes: tuple[Axis, Axis], copied: str) -> npt.NDArray[np.bool_]:
    """For every pair of cells whether copied rows of the first may match rows of the second."""
    places = (rows[:, None] // up, others[None, :] // up), (rows[:, None] % up, others[None, :] % up)
    parts = [
        a <= b if axis.left_first == (copied == "left") else a >= b for (a, b), axis in zip(places, axes, strict=True)
    ]
    return np.asarray(parts[0] & parts[1])


@dataclass(frozen=True, slots=True, eq=False)
class GridSample:
    """Sampled numbers of both sides, a column for each inequality, without nulls."""

    axes: tuple[Axis, ...]
    left: F64
    right: F64
    ascending: tuple[F64, ...]  # the numbers of both sides

    @classmethod
    def of(cls, left: DataFrame, right: DataFrame, axes: Sequence[Axis]) -> GridSample:
        """A sample of both inputs from one job."""
        parts = []
        for number, (frame, name) in enumerate(((left, "left"), (right, "right"))):
            columns = [f"{getattr(axis, name)} as p{n}" for n, axis in enumerate(axes)]
            known = frame.selectExpr(f"{number} as side", *columns).dropna()
            parts.append(known.orderBy(F.rand(SEED)).limit(SAMPLED))
        table = parts[0].union(parts[1]).toArrow()
        points = np.column_stack([table[f"p{n}"].to_numpy() for n in range(len(axes))])
        sides = table["side"].to_numpy()
        return cls(tuple(axes), points[sides == 0], points[sides == 1], tuple(np.sort(points, axis=0).T))

    def best_pair(self) -> tuple[int, int]:
        """The two inequalities that together hold for the fewest pairs."""
        holds = []
        for number, axis in enumerate(self.axes):
            a, b = self.left[:512, number, None], self.right[None, :512, number]
            holds.append(a <= b if axis.left_first else a >= b)
        pairs = [(i, j) for i in range(len(holds)) for j in range(i + 1, len(holds))]
        return min(pairs, key=lambda pair: int((holds[pair[0]] & holds[pair[1]]).sum()))

    def cells(
        self, pair: tuple[int, int], rows: tuple[int, int], same_key: float, candidate_cost: float
    ) -> GridCells | None:
        """The cheapest grid for inputs of that size, if this share of the pairs has the same key; None without rows."""
        if not len(self.left) or not len(self.right):
            return None
        grids = [
            self._grid(pair, cuts, copied, rows, same_key, candidate_cost)
            for cuts in CUTS
            for copied in ("left", "right")
        ]
        return min((grid for grid in grids if grid is not None), key=lambda grid: grid.seconds)

    def _grid(
        self,
        pair: tuple[int, int],
        cuts: int,
        copied: str,
        rows: tuple[int, int],
        same_key: float,
        candidate_cost: float,
    ) -> GridCells | None:
        axes, points = (
            (self.axes[pair[0]], self.axes[pair[1]]),
            (self._points(pair[0], cuts), self._points(pair[1], cuts)),
        )
        sides = (self.left, self.right) if copied == "left" else (self.right, self.left)
        counts = [_counts(side[:, list(pair)], points) for side in sides]
        mine, theirs = (_turned(side, axes, copied) for side in counts)
        beyond, cells_beyond = _sums_from(theirs), _sums_from(theirs > 0)
        if cuts > CUTS[0] and (cells_beyond * (mine > 0)).sum() > MOST_TARGETS:
            return None
        n_copied, n_placed = rows if copied == "left" else rows[::-1]
        unseen = sum(float((side == 1).sum()) / len(rows_of) for side, rows_of in zip(counts, sides, strict=True))
        met = float((mine * beyond).sum()) / (len(sides[0]) * len(sides[1])) + unseen
        copies = n_copied * (1 + float((mine * cells_beyond).sum()) / len(sides[0])) + 2 * n_placed
        candidates = n_copied * n_placed * same_key * met
        seconds = copies * ROW_COST + candidates * candidate_cost
        sources, targets = (np.flatnonzero(side) for side in counts)
        return GridCells(axes, points, copied, sources, targets, copies, candidates, seconds)

    def _points(self, number: int, cuts: int) -> tuple[float, ...]:
        values = self.ascending[number]
        found = np.unique(values[len(values) * np.arange(1, cuts) // cuts])
        return tuple(float(point) for point in found if np.isfinite(point))


_Points = tuple[tuple[float, ...], tuple[float, ...]]


def _counts(values: F64, points: _Points) -> I64:
    """The number of rows in each cell of the grid."""
    across, along = (np.searchsorted(points[n], values[:, n], "right") for n in (0, 1))
    shape = len(points[0]) + 1, len(points[1]) + 1
    return np.bincount(across * shape[1] + along, minlength=shape[0] * shape[1]).reshape(shape).astype(np.int64)


def _turned(counts: I64, axes: tuple[Axis, Axis], copied: str) -> I64:
    """The counts turned so that copied rows meet the cells from their own upwards."""
    away = [number for number, axis in enumerate(axes) if axis.left_first != (copied == "left")]
    return np.flip(counts, tuple(away)) if away else counts


def _sums_from(counts: npt.NDArray[np.generic]) -> I64:
    """For each cell the sum over the cells from it upwards on both axes."""
    turned = np.flip(counts.astype(np.int64))
    return np.asarray(np.flip(turned.cumsum(0).cumsum(1)), np.int64)
