"""Depth and disjoint pieces: how many rows are open, and rows cut where others begin or end."""

from __future__ import annotations

from pyspark.sql import DataFrame

from dovetail.joins.sets.api.plan import SetPlan, describe, swept_plan
from dovetail.joins.sets.plan.cuts import choose_cuts
from dovetail.joins.sets.plan.depth import DEPTH, depths, largest
from dovetail.joins.sets.plan.rows import prepare_rows
from dovetail.joins.sets.request import DepthOptions, Request
from dovetail.request import takes


@takes(DepthOptions)
def interval_depth(rows: DataFrame, request: Request) -> DataFrame:
    """How many rows are open, as pieces in which that number is the same, as a lazy DataFrame.

    Rows without an interval (a null bound, an empty interval) or with a null key are not counted.

    Args:
        rows: The intervals.
        interval: Names of the start and end columns, or of a struct column with two fields. Bounds are numbers,
            decimals, dates, timestamps, times or day-time intervals.
        on: Equality keys: "k" or ["k", "l"]. Each key is counted on its own.
        closed: Which bounds belong to the interval: left, right, both or neither. With both and neither, a point at
            which rows end and others start has its own depth, and a piece of length zero.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: The budget of each task: an input with more rows is cut into more tasks. Spark spills what does not fit.
        partitions: The number of tasks of a sweep over all rows; by default enough to fit the budget.
        keep: all pieces, or of each key the first of the pieces with the largest depth: how many at most, and where.

    Returns:
        Keys, bounds and `depth`, above zero; where no row is open there is no piece. Neighbours differ in depth.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> calls = spark.createDataFrame([(0, 5), (3, 8)], "start int, end int")
    >>> dovetail.interval_depth(calls).orderBy("start").collect()
    [Row(start=0, end=3, depth=1), Row(start=3, end=5, depth=2), Row(start=5, end=8, depth=1)]
    """
    return _depth(rows, request).frame()


@takes(DepthOptions)
def plan_interval_depth(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `interval_depth` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (6, 8)], "start int, end int")
    >>> print(dovetail.plan_interval_depth(rows, keep="largest").explain().splitlines()[0])
    IntervalDepth: keys=none, keep=largest, closed=left, memory=64 MiB per task
    """
    return _depth(rows, request)


def _depth(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_depth")
    cuts = choose_cuts(rows, request, [rows.start, rows.end])
    found = depths(rows, cuts)
    if request.keep == "largest":
        found = largest(rows, found)
    answer = found.selectExpr(*rows.keys, *rows.output(rows.start, rows.end), DEPTH)
    return swept_plan(describe("IntervalDepth", request, f"keep={request.keep}"), rows, cuts, answer)
