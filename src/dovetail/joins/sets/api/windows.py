"""Windows and pivot: intervals over windows of equal width, one row a window, or totals of each window."""

from __future__ import annotations

from pyspark.sql import DataFrame

from dovetail.joins.sets.api.plan import SetPlan, describe, swept_plan
from dovetail.joins.sets.plan.rows import prepare_rows
from dovetail.joins.sets.plan.windows import pivoted, windowed
from dovetail.joins.sets.request import PivotOptions, Request, WindowOptions
from dovetail.request import takes


@takes(WindowOptions)
def interval_window(rows: DataFrame, request: Request) -> DataFrame:
    """Each row once for every window that it meets, with how much of it is in the window, as a lazy DataFrame.

    Rows without an interval (a null bound, an empty interval) are left out.

    Args:
        rows: The intervals.
        interval: Names of the start and end columns, or of a struct column with two fields.
        closed: Which bounds belong to the interval: left, right, both or neither. It decides which intervals are empty.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: Not used: a task holds one row and up to 32,768 of its windows at a time.
        width: The width of a window: a number, and for dates and times a timedelta, text such as "1 h", or seconds.
        origin: Where a window begins; by default 0, and for dates and times the start of 1970 (in UTC for timestamps).

    Returns:
        The columns of the input, `window_start`, `window_end` (not part of the window) and `overlap`: seconds for dates
        and times, else a number of the bounds' type. A bound of a window of
        times of day that lies outside of the day, such as midnight at its end, is null.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for a row that meets more than 2^30 windows, or one beyond the type of its bounds, in the query.

    >>> calls = spark.createDataFrame([(50, 130)], "start int, end int")
    >>> dovetail.interval_window(calls, width=60).select("window_start", "overlap").orderBy("window_start").collect()
    [Row(window_start=0, overlap=10), Row(window_start=60, overlap=60), Row(window_start=120, overlap=10)]
    """
    return _window(rows, request).frame()


@takes(WindowOptions)
def plan_interval_window(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `interval_window` with the same arguments: `explain`, `frame`, `metrics`.

    >>> calls = spark.createDataFrame([(50, 130)], "start int, end int")
    >>> print(dovetail.plan_interval_window(calls, width=60).explain())
    IntervalWindow: keys=none, width=60, closed=left
    """
    return _window(rows, request)


@takes(PivotOptions)
def interval_pivot(rows: DataFrame, request: Request) -> DataFrame:
    """For each window how many rows meet it, and how much of it they fill together, as a lazy DataFrame.

    Rows without an interval (a null bound, an empty interval) or with a null key are left out.

    Args:
        rows: The intervals.
        interval: Names of the start and end columns, or of a struct column with two fields.
        on: Equality keys: "k" or ["k", "l"]. Each key has its own windows.
        closed: Which bounds belong to the interval: left, right, both or neither. It decides which intervals are empty.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error", "drop" or "null".
        memory: Not used: a task holds one row and up to 32,768 of its windows at a time, and Spark adds them up.
        width: The width of a window: a number, and for dates and times a timedelta, text such as "1 h", or seconds.
        origin: Where a window begins; by default 0, and for dates and times the start of 1970 (in UTC for timestamps).

    Returns:
        Keys, `window_start`, `window_end`, `n_overlaps` and `overlap`, the sum of the rows' overlaps: seconds for dates
        and times. Windows that no row meets are not in the result. Bounds outside of the day
        are null for times of day.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for a row that meets more than 2^30 windows, or one beyond the type of its bounds, in the query.

    >>> calls = spark.createDataFrame([(50, 130), (60, 70)], "start int, end int")
    >>> dovetail.interval_pivot(calls, width=60).drop("window_end").orderBy("window_start").collect()
    [Row(window_start=0, n_overlaps=1, overlap=10), Row(window_start=60, n_overlaps=2, overlap=70), Row(window_start=120, n_overlaps=1, overlap=10)]
    """  # noqa: E501  (a result in one line)
    return _pivot(rows, request).frame()


@takes(PivotOptions)
def plan_interval_pivot(rows: DataFrame, request: Request) -> SetPlan:
    """The plan of `interval_pivot` with the same arguments: `explain`, `frame`, `metrics`.

    >>> calls = spark.createDataFrame([(50, 130)], "start int, end int")
    >>> print(dovetail.plan_interval_pivot(calls, width=60).explain())
    IntervalPivot: keys=none, width=60, closed=left
    """
    return _pivot(rows, request)


def _window(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_window")
    first = describe("IntervalWindow", request, f"width={request.width}", swept=False)
    return swept_plan(first, rows, None, windowed(rows, request))


def _pivot(frame: DataFrame, request: Request) -> SetPlan:
    rows = prepare_rows(frame, request, "interval_pivot")
    first = describe("IntervalPivot", request, f"width={request.width}", swept=False)
    return swept_plan(first, rows, None, pivoted(rows, request))
