"""A planned interval join: the route that was chosen and why, and the DataFrame it gives."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.interval.bins import choose_bins
from dovetail.interval.frame_cells import BinCells, OrderCells
from dovetail.interval.frame_native import NativeJoin, native_frame, strategy
from dovetail.interval.frame_sides import RESERVED, Side, prepare, quoted
from dovetail.interval.frame_statistics import SideStatistics, collect_statistics
from dovetail.interval.request import Request


@dataclass(frozen=True, slots=True)
class IntervalPlan:
    """A join that is planned but not run."""

    request: Request
    left: Side
    right: Side
    statistics: tuple[SideStatistics, SideStatistics]
    cells: BinCells | OrderCells | None

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        left, right = (side.checked(self.request.invalid) for side in (self.left, self.right))
        return project(
            native_frame(NativeJoin(left, right, self.request, self.cells)), self.left, self.right, self.request
        )


def make_plan(left: DataFrame, right: DataFrame, request: Request) -> IntervalPlan:
    """The plan of a request over two DataFrames; runs one small job to learn their shape."""
    sides = prepare(left, right, request)
    output_columns(*sides, request)
    statistics = collect_statistics(*sides, request.invalid)
    cells = choose_cells(request, *statistics)
    return IntervalPlan(request, *sides, statistics, cells)


def choose_cells(request: Request, left: SideStatistics, right: SideStatistics) -> BinCells | OrderCells | None:
    """The cells of the native route, from the statistics of both sides."""
    way = strategy(request.relation)
    if way == "bins":
        return BinCells(choose_bins(left.sample, right.sample, max(left.max_length, right.max_length)))
    if way == "order":
        earlier = "left" if request.relation.only == "before" else "right"
        ends, starts = (left, right) if earlier == "left" else (right, left)
        points = np.concatenate([ends.sample.end, starts.sample.start])
        ranges = request.partitions or 16
        cuts = np.unique(np.quantile(points, np.arange(1, ranges) / ranges)) if len(points) else np.array([])
        return OrderCells(tuple(float(cut) for cut in cuts if np.isfinite(cut)), earlier)
    return None


def output_columns(left: Side, right: Side, request: Request) -> tuple[str, ...]:
    """The columns of the answer, in order; a `PlanError` for a name that it does not have."""
    every = left.payload if request.left_only else (*left.payload, *right.payload)
    if request.columns is None:
        return every
    for column in request.columns:
        if column not in every:
            near = get_close_matches(column, every, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise PlanError(f"columns: the result has no column {column!r}; it has {list(every)}.{hint}")
    return request.columns


def project(frame: DataFrame, left: Side, right: Side, request: Request) -> DataFrame:
    """The frame with just the columns of the answer; a shared key takes the value of the side that has one."""
    shared = {key.left: f"{RESERVED}shared_{key.right}" for key in request.keys if key.shared}

    def column(name: str) -> Column:
        if name in shared and request.how in ("right", "full"):
            return F.coalesce(F.col(quoted(name)), F.col(quoted(shared[name]))).alias(name)
        return F.col(quoted(name))

    return frame.select(*map(column, output_columns(left, right, request)))
