"""Merge, cluster and complement: rows that touch as one, the number of each group, and the gaps between groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import (
    Column,  # noqa: F401  (Column is in the type of an option)
    DataFrame,
)
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.joins.sets.api.plan import SetPlan, describe, swept_plan
from dovetail.joins.sets.plan.cuts import choose_cuts
from dovetail.joins.sets.plan.pairs import explained, gaps_of_ranges
from dovetail.joins.sets.plan.rows import (
    Rows,
    check_differences,
    check_measured,
    check_names,
    check_type,
    check_value,
    make_rows,
    prepare_rows,
    set_bounds,
)
from dovetail.joins.sets.plan.sweep import N_MERGED, clustered, gaps, gaps_of_keys, merged
from dovetail.joins.sets.request import ClusterOptions, ComplementOptions, MergeOptions, Request
from dovetail.request import Key, takes
from dovetail.spark.frames import RESERVED
from dovetail.spark.inputs import check_input, common_keys


@takes(MergeOptions)
def interval_merge(rows: DataFrame, request: Request) -> DataFrame:
    """Rows that touch or overlap as one row, with their number and their aggregates, as a lazy DataFrame.

    Rows without an interval (a null bound, an empty interval) or with a null key are left out.

    Args:
        rows: The intervals.
        interval: Names of the start and end columns, or of a struct column with two fields. Bounds are numbers,
            decimals, dates, timestamps, times, day-time intervals, or texts, which are ordered by their bytes.
        on: Equality keys: "k" or ["k", "l"]. Rows of different keys are not merged.
        closed: Which bounds belong to the interval: left, right, both or neither. It decides which intervals are empty,
            and with gap=None whether touching ones share a point.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error" (a `DataError` of the
            query), "drop" or "null" (as if a bound were null).
        memory: The size of tasks: an input with more rows is cut into more of them. Spark spills what does not fit.
        partitions: The number of tasks of a sweep over all rows; by default enough to fit the budget.
        gap: Rows up to this far apart are merged, too: a number, and for dates and times a timedelta, text such as
            "10 min", or seconds. None keeps rows apart that share no point, even if they touch.
        aggregates: More columns of the merged rows: {"name": "SQL aggregate"}, or a list of Columns with names.

    Returns:
        Keys, bounds, `n_merged` and the aggregates; the bounds of a row are the smallest start and the largest end of
        the rows that it stands for. Planning samples an input that is not small by one job.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> calls = spark.createDataFrame([(0, 5, 1), (5, 8, 2), (10, 12, 3)], "start int, end int, cost int")
    >>> dovetail.interval_merge(calls, aggregates={"cost": "sum(cost)"}).orderBy("start").collect()
    [Row(start=0, end=8, n_merged=2, cost=3), Row(start=10, end=12, n_merged=1, cost=3)]
    """
    return _merge(rows, request).frame()


@takes(MergeOptions)
def plan_interval_merge(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `interval_merge` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([("a", 0, 5), ("a", 6, 8)], "k string, start int, end int")
    >>> print(dovetail.plan_interval_merge(rows, on="k", gap=1).explain())
    IntervalMerge: keys=k, gap=1, closed=left, tasks sized for 64 MiB, spilled by Spark
    sweep: by key (about 2 rows, too few to cut)
    """
    return _merge(rows, request)


@takes(ClusterOptions)
def interval_cluster(rows: DataFrame, request: Request) -> DataFrame:
    """Every row with the number and the bounds of its cluster: the rows that it touches, directly or through others.

    Rows without an interval (a null bound, an empty interval) or with a null key belong to no cluster.

    Args:
        rows: The intervals.
        interval: Names of the start and end columns, or of a struct column with two fields.
        on: Equality keys: "k" or ["k", "l"]. Rows of different keys are in different clusters.
        closed: Which bounds belong to the interval: left, right, both or neither.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: The size of tasks, as for `interval_merge`; Spark spills what does not fit.
        partitions: The number of tasks of a sweep over all rows; by default enough to fit the budget.
        gap: Rows up to this far apart are in one cluster, as for `interval_merge`.

    Returns:
        The columns of the input, then `cluster`, a number within the key that begins at 0 and follows the order of
        starts, `cluster_start` and `cluster_end`; the three are null for a row without a cluster.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> calls = spark.createDataFrame([(0, 5), (4, 8), (10, 12)], "start int, end int")
    >>> dovetail.interval_cluster(calls).select("start", "cluster", "cluster_end").orderBy("start").collect()
    [Row(start=0, cluster=0, cluster_end=8), Row(start=4, cluster=0, cluster_end=8), Row(start=10, cluster=1, cluster_end=12)]
    """  # noqa: E501  (a result in one line)
    return _cluster(rows, request).frame()


@takes(ClusterOptions)
def plan_interval_cluster(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `interval_cluster` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (6, 8)], "start int, end int")
    >>> print(dovetail.plan_interval_cluster(rows).explain().splitlines()[0])
    IntervalCluster: keys=none, gap=0, closed=left, tasks sized for 64 MiB, spilled by Spark
    """
    return _cluster(rows, request)


@takes(ComplementOptions)
def interval_complement(rows: DataFrame, request: Request) -> DataFrame:
    """The gaps of a set of intervals: what none of its rows covers, as a lazy DataFrame.

    Args:
        rows: The intervals.
        interval: Names of the start and end columns, or of a struct column with two fields.
        on: Equality keys: "k" or ["k", "l"]. Each key has its own gaps.
        closed: Which bounds belong to the interval: left, right, both or neither. It decides which intervals are empty.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: The size of tasks, as for `interval_merge`; Spark spills what does not fit.
        partitions: The number of tasks of a sweep over all rows; by default enough to fit the budget.
        limits: Where gaps are searched. None: between the first start and the last end of a key. A (start, end) pair,
            for every key that has rows; None in its place leaves that side as without limits. A DataFrame with the key
            and interval columns: for each of its rows the gaps within it, also where a key has no rows.

    Returns:
        Keys and bounds of gaps that are longer than zero. Planning samples an input that is not small by one job; a
        DataFrame of limits is joined with the gaps by an `interval_join`, whose planning runs another one.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> busy = spark.createDataFrame([("ann", 9, 11), ("ann", 13, 15)], "name string, start int, end int")
    >>> dovetail.interval_complement(busy, on="name", limits=(8, 15)).orderBy("start").collect()
    [Row(name='ann', start=8, end=9), Row(name='ann', start=11, end=13)]
    """
    return _complement(rows, request).frame()


@takes(ComplementOptions)
def plan_interval_complement(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `interval_complement` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (6, 8)], "start int, end int")
    >>> print(dovetail.plan_interval_complement(rows, limits=(0, 10)).explain().splitlines()[0])
    IntervalComplement: keys=none, limits=(0, 10), closed=left, tasks sized for 64 MiB, spilled by Spark
    """
    return _complement(rows, request)


def _merge(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_merge")
    check_names(rows, [N_MERGED])
    _check_gap(rows, request)
    cuts = choose_cuts(rows, request, [rows.start])
    first = describe("IntervalMerge", request, f"gap={request.gap}")
    return swept_plan(first, rows, cuts, merged(rows, request, cuts))


def _cluster(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_cluster")
    _check_gap(rows, request)
    cuts = choose_cuts(rows, request, [rows.start])
    first = describe("IntervalCluster", request, f"gap={request.gap}")
    return swept_plan(first, rows, cuts, clustered(rows, request, cuts))


def _check_gap(rows: Rows, request: Request) -> None:
    if request.gap:
        check_measured(rows.scale.kind, f"gap={request.gap!r}", "gap")
        check_differences(rows.scale.kind, f"gap={request.gap!r}", "gap")
    if request.gap is not None and not rows.scale.textual:
        rows.scale.distance("gap", request.gap)


def _complement(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_complement")
    check_names(rows, [])
    limits = _limits(rows, request)
    cuts = choose_cuts(rows, request, [rows.start])
    steps: list[str] = []
    if limits is None:
        found = gaps(rows, cuts)
    elif isinstance(request.limits, tuple):
        found = gaps_of_keys(rows, cuts, limits)
    else:
        found, plan = gaps_of_ranges(rows, cuts, limits, request)
        steps = ["gaps joined with the limits:", *explained(plan)]
    shown = "a DataFrame" if isinstance(request.limits, DataFrame) else request.limits
    first = describe("IntervalComplement", request, f"limits={shown}")
    swept = swept_plan(first, rows, cuts, found.selectExpr(*rows.keys, *rows.output(rows.start, rows.end)))
    return replace(swept, steps=(*swept.steps, *steps))


def _limits(rows: Rows, request: Request) -> DataFrame | None:
    """Keys and two numbers for each range in which gaps are searched; None for no limits."""
    given = request.limits
    if given is None:
        return None
    if isinstance(given, tuple):
        return _pair_limits(rows, given)
    check_input("limits", given, "interval_complement")
    kind, start, end = set_bounds("limits", given, request.interval, "limits")
    check_type(rows, kind, "limits")
    keys = common_keys(rows.frame, given, [Key(k, k, True) for k in request.keys], "limits")
    ranges = make_rows("limits", given, (rows.scale.kind, start, end), [k.right for k in keys], "left", request.invalid)
    return ranges.usable().select(*ranges.keys, ranges.start, ranges.end)


def _check_pair(pair: tuple[Any, Any]) -> None:
    """`PlanError` for limits in the wrong order; values that Python does not compare are left to Spark."""
    try:
        inverted = None not in pair and pair[0] > pair[1]
    except TypeError:
        return
    if inverted:
        raise PlanError(f"limits={pair!r} end before they start; give (start, end).", argument="limits")


def _pair_limits(rows: Rows, pair: tuple[Any, Any]) -> DataFrame:
    """The range of every key that has rows; a missing bound is that of its rows."""
    low, high = (f"{RESERVED}{which}" for which in ("a", "b"))
    _check_pair(pair)
    extent = rows.usable().groupBy(*rows.keys).agg(F.min(rows.start).alias(low), F.max(rows.end).alias(high))
    numbers = []
    for value, name in zip(pair, (low, high), strict=True):
        given = f"{RESERVED}{name}"
        if value is not None:
            check_value(rows, value, "limits")
            extent = extent.withColumn(given, rows.scale.literal(value))
        numbers.append(f"{name if value is None else rows.scale.number(given)} as {name}")
    return extent.selectExpr(*rows.keys, *numbers).where(f"{low} < {high}")
