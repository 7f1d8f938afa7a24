"""Depth and disjoint pieces: how many rows are open, and rows cut where others begin or end."""

from __future__ import annotations

from pyspark.sql import (
    Column,  # noqa: F401  (Column is in the type of an option)
    DataFrame,
)

from dovetail.joins.sets.api.plan import SetPlan, describe, swept_plan
from dovetail.joins.sets.plan.cuts import choose_cuts
from dovetail.joins.sets.plan.depth import DEPTH, depths, largest
from dovetail.joins.sets.plan.pairs import disjoint, explained
from dovetail.joins.sets.plan.rows import check_names, prepare_rows
from dovetail.joins.sets.request import DepthOptions, DisjointOptions, Request
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
        memory: The size of tasks: an input with more rows is cut into more of them. Spark spills what does not fit.
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
    IntervalDepth: keys=none, keep=largest, closed=left, tasks sized for 64 MiB, spilled by Spark
    """
    return _depth(rows, request)


def _depth(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_depth")
    check_names(rows, [DEPTH])
    cuts = choose_cuts(rows, request, [rows.start, rows.end])
    found = depths(rows, cuts)
    if request.keep == "largest":
        found = largest(rows, found)
    answer = found.selectExpr(*rows.keys, *rows.output(rows.start, rows.end), DEPTH)
    return swept_plan(describe("IntervalDepth", request, f"keep={request.keep}"), rows, cuts, answer)


@takes(DisjointOptions)
def make_disjoint(rows: DataFrame, request: Request) -> DataFrame:
    """Rows cut at every bound of another row of their key, so that pieces are equal or disjoint, as a lazy DataFrame.

    Rows without an interval (a null bound, an interval of no length) or with a null key are left out.

    Args:
        rows: The intervals: states, prices or shifts that hold for a time.
        interval: Names of the start and end columns, or of a struct column with two fields.
        on: Equality keys: "k" or ["k", "l"]. Rows of different keys do not cut each other.
        closed: Which bounds belong to the interval: left, right, both or neither.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: The size of tasks, as for `interval_merge`; Spark spills what does not fit.
        partitions: The number of tasks of a sweep over all rows; by default enough to fit the budget.
        aggregates: Merge the rows that hold a piece into one: {"name": "SQL aggregate"}, or a list of Columns with
            names. Without it there is a row for each piece of each row.

    Returns:
        The columns of the input, with the bounds of the piece; with aggregates, keys, bounds, `n_merged` and the
        aggregates, one row a piece. Planning sweeps the rows once.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> states = spark.createDataFrame([(0, 10, "on"), (4, 6, "hot")], "start int, end int, state string")
    >>> dovetail.make_disjoint(states, aggregates={"states": "sort_array(collect_list(state))"}).orderBy("start").collect()
    [Row(start=0, end=4, n_merged=1, states=['on']), Row(start=4, end=6, n_merged=2, states=['hot', 'on']), Row(start=6, end=10, n_merged=1, states=['on'])]
    """  # noqa: E501  (a result in one line)
    return _disjoint(rows, request).frame()


@takes(DisjointOptions)
def plan_make_disjoint(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `make_disjoint` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (3, 8)], "start int, end int")
    >>> print(dovetail.plan_make_disjoint(rows).explain().splitlines()[0])
    MakeDisjoint: keys=none, closed=left, tasks sized for 64 MiB, spilled by Spark
    """
    return _disjoint(rows, request)


def _disjoint(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "make_disjoint")
    cuts = choose_cuts(rows, request, [rows.start, rows.end])
    answer, plan = disjoint(rows, request, cuts)
    steps = (describe("MakeDisjoint", request), cuts.explain(), *explained(plan))
    return SetPlan(steps, answer, plan.metrics)
