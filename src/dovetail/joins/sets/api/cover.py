"""Coverage, difference and rows that meet nothing: a set of intervals against another."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.api import make_plan
from dovetail.joins.interval.request import Request as PairRequest
from dovetail.joins.sets.api.plan import SetPlan
from dovetail.joins.sets.plan.pairs import coverage, explained, prepare_pair, subtracted
from dovetail.joins.sets.request import PairOptions
from dovetail.request import takes


@takes(PairOptions)
def interval_coverage(left: DataFrame, right: DataFrame, request: PairRequest) -> DataFrame:
    """Every left row with how much of it the right rows cover, by how many, and what share, as a lazy DataFrame.

    Args:
        left: The rows that are covered.
        right: The rows that cover them; what several of them cover counts once.
        left_interval: Names of the left start and end columns, or of a struct column with two fields. Bounds are
            numbers, decimals, dates, timestamps, times or day-time intervals; both inputs are cast to Spark's common
            type.
        right_interval: The same for the right input.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing.
        closed: Which bounds belong to the interval: left, right, both or neither. It decides which intervals are empty,
            and which touching ones overlap; lengths are end - start.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error"; "drop"; "null" (a
            left row is kept, and nothing covers it). Null bounds and empty intervals cover nothing and are never an
            error.
        memory: The budget of each task. An index of right rows that fits, some 32 bytes a row, is sent to all tasks;
            otherwise both sides are cut into ranges of time.
        partitions: The number of these ranges; by default enough to make each fit the budget.

    Returns:
        left's columns, `n_overlaps`, `covered` (seconds for dates and times, else a number of the bounds' type) and
        `covered_fraction`, which is null for a row of length zero or without an interval, and for an endless part of
        a row without an end. Planning runs one small job over the bounds, and reads those of right rows if an index of
        them fits.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for inverted intervals, with the side, their number and up to five rows.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> calls = spark.createDataFrame([(9, 11), (10, 12), (15, 17)], "start int, end int")
    >>> dovetail.interval_coverage(shifts, calls).drop("start", "end").orderBy("name").collect()
    [Row(name='ada', n_overlaps=3, covered=4, covered_fraction=0.5), Row(name='bob', n_overlaps=1, covered=2, covered_fraction=0.25)]
    """  # noqa: E501  (a result in one line)
    return _coverage(left, right, request).frame()


@takes(PairOptions)
def plan_interval_coverage(left: DataFrame, right: DataFrame, request: PairRequest) -> SetPlan:
    """The plan of `interval_coverage` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (6, 8)], "start int, end int")
    >>> print(dovetail.plan_interval_coverage(rows, rows).explain().splitlines()[0])
    IntervalCoverage: keys=none, closed=left, memory=64 MiB per task
    """
    return _coverage(left, right, request)


@takes(PairOptions)
def interval_subtract(left: DataFrame, right: DataFrame, request: PairRequest) -> DataFrame:
    """The pieces of each left row that no right row covers, as a lazy DataFrame.

    A row that is covered whole has no piece, nor has one without an interval (a null bound, an empty interval). A row
    with a null key stays whole.

    Args:
        left: The rows that are cut.
        right: The rows that are taken away.
        left_interval: Names of the left start and end columns, or of a struct column with two fields.
        right_interval: The same for the right input.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing.
        closed: Which bounds belong to the interval: left, right, both or neither. It decides which intervals are empty.
            Pieces begin and end at the bounds of what is taken away.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: The budget of each task.
        partitions: The number of ranges of time; by default enough to make each fit the budget.

    Returns:
        left's columns, with the bounds of the piece. Planning sweeps the right rows once.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for inverted intervals.

    >>> shifts = spark.createDataFrame([("ada", 8, 16)], "name string, start int, end int")
    >>> breaks = spark.createDataFrame([(10, 11), (12, 13)], "start int, end int")
    >>> dovetail.interval_subtract(shifts, breaks).orderBy("start").collect()
    [Row(name='ada', start=8, end=10), Row(name='ada', start=11, end=12), Row(name='ada', start=13, end=16)]
    """
    return _subtract(left, right, request).frame()


@takes(PairOptions)
def plan_interval_subtract(left: DataFrame, right: DataFrame, request: PairRequest) -> SetPlan:
    """The plan of `interval_subtract` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (6, 8)], "start int, end int")
    >>> print(dovetail.plan_interval_subtract(rows, rows).explain().splitlines()[0])
    IntervalSubtract: keys=none, closed=left, memory=64 MiB per task
    """
    return _subtract(left, right, request)


@takes(PairOptions)
def interval_setdiff(left: DataFrame, right: DataFrame, request: PairRequest) -> DataFrame:
    """The left rows that overlap no right row, whole, as a lazy DataFrame.

    Rows that can match nothing (a null key or bound, an empty interval) are among them. It is the `interval_join` with
    how="left_anti".

    Args:
        left: The rows that are looked at.
        right: The rows that must not overlap them.
        left_interval: Names of the left start and end columns, or of a struct column with two fields.
        right_interval: The same for the right input.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing.
        closed: Which bounds belong to the interval: left, right, both or neither.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error"; "drop"; "null" (a
            left row is kept).
        memory: The budget of each task.
        partitions: The number of ranges of time; by default enough to make each fit the budget.

    Returns:
        left's columns.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for inverted intervals.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 18, 22)], "name string, start int, end int")
    >>> breaks = spark.createDataFrame([(10, 11)], "start int, end int")
    >>> dovetail.interval_setdiff(shifts, breaks).collect()
    [Row(name='bob', start=18, end=22)]
    """
    return _setdiff(left, right, request).frame()


@takes(PairOptions)
def plan_interval_setdiff(left: DataFrame, right: DataFrame, request: PairRequest) -> SetPlan:
    """The plan of `interval_setdiff` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(0, 5), (6, 8)], "start int, end int")
    >>> print(dovetail.plan_interval_setdiff(rows, rows).explain().splitlines()[0])
    IntervalSetdiff: keys=none, closed=left, memory=64 MiB per task
    """
    return _setdiff(left, right, request)


def _first_line(name: str, request: PairRequest) -> str:
    keys = ", ".join(key.left if key.shared else f"{key.left}={key.right}" for key in request.keys) or "none"
    return f"{name}: keys={keys}, closed={request.relation.left_closed}, memory={format_bytes(request.memory)} per task"


def _coverage(left: DataFrame, right: DataFrame, request: PairRequest) -> SetPlan:
    answer, inputs, steps = coverage(prepare_pair(left, right, request, "interval_coverage"))
    first = _first_line("IntervalCoverage", request)
    return SetPlan((first, *steps), answer, lambda: Metrics().merge(inputs.sink.collect()))


def _subtract(left: DataFrame, right: DataFrame, request: PairRequest) -> SetPlan:
    answer, plan, cuts = subtracted(prepare_pair(left, right, request, "interval_subtract"))
    first = _first_line("IntervalSubtract", request)
    return SetPlan((first, f"gaps of the right rows, {cuts.explain()}", *explained(plan)), answer, plan.metrics)


def _setdiff(left: DataFrame, right: DataFrame, request: PairRequest) -> SetPlan:
    plan = make_plan(left, right, replace(request, how="left_anti"))
    return SetPlan((_first_line("IntervalSetdiff", request), *explained(plan)), plan.frame(), plan.metrics)
