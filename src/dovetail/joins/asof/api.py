"""As-of joins on Spark DataFrames: what users call."""

from __future__ import annotations

from pyspark.sql import DataFrame

from dovetail.joins.asof.plan.plan import AsofPlan, make_plan
from dovetail.joins.asof.request import AsofOptions, Request
from dovetail.request import takes


@takes(AsofOptions)
def asof_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Each left row with the last right row before it (or the next, or the nearest), as a lazy DataFrame.

    Args:
        left: The rows that are looked up.
        right: The rows that are found.
        on: The time column, by one name or as (left name, right name): a number, decimal, date, timestamp, time or
            day-time interval; both inputs meet in Spark's common type. Null and NaN match nothing. Both times are in
            the result, the right one with a suffix if they have one name.
        by: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        direction: backward (the last right row at the time or before it), forward (the first one at it or after it) or
            nearest; of two that are equally near the earlier one, as in pandas.
        tolerance: The largest distance that still matches, itself included: a number, and for dates and times a
            timedelta, text such as "10 min", or seconds. None for any distance.
        allow_exact: Whether a right row at the very same time matches.
        ties: Which of several right rows at one time is taken. "any": one of them, the same in every run of the same
            call; "all": each of them, a row of the result for each; ("first", columns) or ("last", columns): the first
            or last by these right columns, nulls first.
        how: inner, or left, which keeps left rows without a match.
        algorithm: index (tasks look left rows up in sorted right rows), window (union and window functions of Spark's,
            for types that only Spark has), or auto.
        memory: The budget of each task. Rows that do not fit are spilled.
        partitions: Into how many partitions rows are exchanged; by default as many as make them fit the budget.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        left's columns, then right's. Planning samples inputs that are not small by one job; `plan_asof_join` shows
        what it led to.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.

    >>> trades = spark.createDataFrame([("A", 10, 100), ("A", 15, 200), ("B", 3, 300)], "stock string, t int, qty int")
    >>> quotes = spark.createDataFrame([("A", 9, 1.5), ("A", 14, 1.6), ("B", 4, 7.0)], "stock string, t int, p double")
    >>> dovetail.asof_join(trades, quotes, on="t", by="stock").orderBy("qty").collect()
    [Row(stock='A', t=10, qty=100, t_right=9, p=1.5), Row(stock='A', t=15, qty=200, t_right=14, p=1.6)]
    """
    return make_plan(left, right, request).frame()


@takes(AsofOptions)
def plan_asof_join(left: DataFrame, right: DataFrame, request: Request) -> AsofPlan:
    """The plan of `asof_join` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(1, 1), (1, 5)], "k int, t int")
    >>> plan = dovetail.plan_asof_join(rows, rows, on="t", by="k", tolerance=2, allow_exact=False, memory="16MB")
    >>> print(plan.explain().splitlines()[0])
    AsofJoin: backward on t, keys=k, tolerance=2, no exact matches, ties=any, how=inner, memory=16 MiB per task
    """
    return make_plan(left, right, request)
