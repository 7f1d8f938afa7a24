"""Interval joins on Spark DataFrames: what users call."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame  # noqa: F401  (Column is in the type of an option)

from dovetail.joins.interval.plan.plan import IntervalPlan, count_all, count_rows, longest_overlaps, make_plan
from dovetail.joins.interval.request import CountOptions, JoinOptions, Request, TopOptions, TopRequest
from dovetail.request import takes


@takes(JoinOptions)
def interval_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Rows of both inputs whose intervals stand in a relation, as a lazy DataFrame.

    Args:
        left: One input.
        right: The other.
        left_interval: Names of the left start and end columns, or of a struct column with two fields. Bounds are
            numbers, decimals, dates, timestamps, times or day-time intervals; both inputs meet in Spark's common type.
        right_interval: The same for the right input.
        relation: `overlapping` (they share a point), one of Allen's relations (before, after, meets, met_by, overlaps,
            overlapped_by, starts, started_by, covers, covered_by, ends, ended_by, equals; contains, during, finishes
            and finished_by are other names), or a set of them: a pair that satisfies any appears once.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        condition: What else must hold for a pair: a Column or SQL text over the output columns.
        closed: Which bounds belong to the interval: left, right, both or neither; or a pair, one per input. It decides
            which intervals are empty, and whether touching ones overlap.
        strict: Allen's strict relations, of which just one holds for a pair, instead of the source's, where equal
            intervals also start, end and cover each other.
        invalid: What an interval that ends before it starts, or holds NaN, is: "error"; "drop"; "null" (kept by outer
            joins, matching nothing). Intervals with a null bound and empty ones match nothing and are never an error.
        algorithm: auto, native, bins, sort_merge, time_sweep, forward_scan, oip, dip or nested_loop.
            `native` is the best plan of Spark's own operators; `nested_loop` joins by keys alone, if there are any.
        memory: The budget of each task.
        split_points: Where time is cut into partitions by the routes in_memory and streaming; by default quantiles of
            a sample.
        partitions: Into how many partitions time is cut; by default as many as make them fit the budget.
        route: How the join runs: native (by Spark's own operators), in_memory (a partition at a time in memory),
            streaming (sorted by Spark, for partitions that do not fit), or auto.
        how: inner, left, right, full, left_semi or left_anti, or another name of Spark's for one of these.
        keep: How many matches a left row keeps: all, any (one), first or last (by right start, then end). With
            how="right" a right row keeps them (by left start, then end); how="full" keeps all.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        left's columns, then right's; for semi and anti joins left's alone. Planning runs one small job over the
        bounds; `plan_interval_join` shows what they led to.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for inverted intervals, with the side, their number and up to five rows.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> calls = spark.createDataFrame([(1, 9, 10), (2, 15, 17)], "call int, start int, end int")
    >>> dovetail.interval_join(shifts, calls, columns=["name", "call"]).orderBy("name", "call").collect()
    [Row(name='ada', call=1), Row(name='ada', call=2), Row(name='bob', call=2)]
    """
    return make_plan(left, right, request).frame()


@takes(JoinOptions)
def plan_interval_join(left: DataFrame, right: DataFrame, request: Request) -> IntervalPlan:
    """The plan of `interval_join` with the same arguments: `explain`, `frame`, `write_parquet`, `metrics`.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> plan = dovetail.plan_interval_join(shifts, shifts, algorithm="native", memory="16MB")
    >>> print(plan.explain().splitlines()[0])
    IntervalJoin: overlapping, how=inner, keys=none, keep=all, memory=16 MiB per task
    """
    return make_plan(left, right, request)


@takes(CountOptions)
def interval_count(left: DataFrame, right: DataFrame, request: Request) -> int:
    """The number of pairs that the inner `interval_join` with these arguments has; no pair is formed.

    The options mean what they mean for `interval_join`.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> dovetail.interval_count(shifts, shifts, relation="before", closed="both")
    0
    """
    return count_all(left, right, request)


@takes(CountOptions)
def count_overlaps(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Every left row with the number of right rows that match it, `n_overlaps`; no pair is formed.

    Rows that can match nothing have 0. The options mean what they mean for `interval_join`.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> calls = spark.createDataFrame([(1, 9, 10), (2, 15, 17)], "call int, start int, end int")
    >>> dovetail.count_overlaps(shifts, calls).select("name", "n_overlaps").orderBy("name").collect()
    [Row(name='ada', n_overlaps=2), Row(name='bob', n_overlaps=1)]
    """
    return count_rows(left, right, request)


@takes(TopOptions)
def interval_topk(left: DataFrame, right: DataFrame, request: TopRequest) -> DataFrame:
    """The `k` pairs that overlap longest, longest first; of pairs that overlap alike, any.

    The other options mean what they mean for `interval_join`; `by` says what pairs are ranked by.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> calls = spark.createDataFrame([(1, 9, 10), (2, 15, 17)], "call int, start int, end int")
    >>> dovetail.interval_topk(shifts, calls, k=1, columns=["name", "call"]).collect()
    [Row(name='bob', call=2)]
    """
    return longest_overlaps(left, right, request.k, request.join)
