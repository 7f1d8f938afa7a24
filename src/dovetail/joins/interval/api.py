"""Interval joins on Spark DataFrames: what users call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame

from dovetail.errors import PlanError
from dovetail.joins.interval.plan.plan import IntervalPlan, count_all, count_rows, longest_overlaps, make_plan
from dovetail.joins.interval.request import Request, parse_request


def interval_join(
    left: DataFrame,
    right: DataFrame,
    left_interval: str | Sequence[str] = ("start", "end"),
    right_interval: str | Sequence[str] = ("start", "end"),
    relation: str | Iterable[str] = "overlapping",
    on: str | Sequence[str | tuple[str, str]] | None = None,
    condition: Column | str | None = None,
    how: str = "inner",
    closed: str | tuple[str, str] = "left",
    strict: bool = False,
    invalid: str = "error",
    algorithm: str = "auto",
    memory: int | str = "64MB",
    split_points: Sequence[Any] | None = None,
    partitions: int | None = None,
    keep: str = "all",
    columns: Sequence[str] | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    route: str = "auto",
) -> DataFrame:
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
        how: inner, left, right, full, left_semi or left_anti.
        closed: Which bounds belong to the interval: left, right, both or neither; or a pair, one per input. It decides
            which intervals are empty, and whether touching ones overlap.
        strict: Allen's strict relations, of which just one holds for a pair, instead of the source's, where equal
            intervals also start, end and cover each other.
        invalid: What an interval that ends before it starts, or holds NaN, is: "error"; "drop"; "null" (kept by outer
            joins, matching nothing). Intervals with a null bound and empty ones match nothing and are never an error.
        algorithm: auto, native, bins, sort_merge, time_sweep, forward_scan, oip, dip or nested_loop.
            `native` is the best plan of Spark's own operators; `nested_loop` joins by keys alone, if there are any.
        memory: The budget of each task.
        split_points: Where time is cut into ranges for the partitioned routes; by default quantiles of a sample.
        partitions: How many ranges there are; by default as many as make them fit the budget.
        keep: How many matches a left row keeps: all, any (one), first or last (by right start, then end). With
            how="right" a right row keeps them (by left start, then end); how="full" keeps all.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.
        route: auto, native, in_memory or streaming.

    Returns:
        left's columns, then right's; for semi and anti joins left's alone. Planning runs two small jobs over the
        bounds; `plan_interval_join` shows what they led to.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for inverted intervals, with the side, their number and up to five rows.
    """
    request = parse_request(
        left_interval,
        right_interval,
        relation,
        on,
        condition,
        how,
        closed,
        strict,
        invalid,
        algorithm,
        memory,
        split_points,
        partitions,
        keep,
        columns,
        suffixes,
        route,
    )
    return make_plan(left, right, request).frame()


def plan_interval_join(
    left: DataFrame,
    right: DataFrame,
    left_interval: str | Sequence[str] = ("start", "end"),
    right_interval: str | Sequence[str] = ("start", "end"),
    relation: str | Iterable[str] = "overlapping",
    on: str | Sequence[str | tuple[str, str]] | None = None,
    condition: Column | str | None = None,
    how: str = "inner",
    closed: str | tuple[str, str] = "left",
    strict: bool = False,
    invalid: str = "error",
    algorithm: str = "auto",
    memory: int | str = "64MB",
    split_points: Sequence[Any] | None = None,
    partitions: int | None = None,
    keep: str = "all",
    columns: Sequence[str] | None = None,
    suffixes: tuple[str, str] = ("", "_right"),
    route: str = "auto",
) -> IntervalPlan:
    """The plan of `interval_join` with the same arguments: `explain`, `frame`, `write_parquet`, `metrics`."""
    request = parse_request(
        left_interval,
        right_interval,
        relation,
        on,
        condition,
        how,
        closed,
        strict,
        invalid,
        algorithm,
        memory,
        split_points,
        partitions,
        keep,
        columns,
        suffixes,
        route,
    )
    return make_plan(left, right, request)


def interval_count(left: DataFrame, right: DataFrame, **arguments: Any) -> int:
    """The number of pairs that the inner `interval_join` with these arguments has; no pair is formed.

    Takes what `interval_join` takes, but for `how`, `keep`, `columns` and `suffixes`, which change no number.
    """
    return count_all(left, right, _inner("interval_count", arguments))


def count_overlaps(left: DataFrame, right: DataFrame, **arguments: Any) -> DataFrame:
    """Every left row with the number of right rows that match it, `n_overlaps`; no pair is formed.

    Takes what `interval_count` takes. Rows that can match nothing have 0.
    """
    return count_rows(left, right, _inner("count_overlaps", arguments))


def interval_topk(left: DataFrame, right: DataFrame, k: int = 100, by: str = "overlap", **arguments: Any) -> DataFrame:
    """The k pairs that overlap longest, longest first; of pairs that overlap alike, any.

    Takes what the inner `interval_join` takes, `condition`, `columns` and `suffixes` included.
    """
    if by != "overlap":
        raise PlanError(f"by={by!r} is not known; pairs are ranked by='overlap'")
    return longest_overlaps(left, right, k, _inner("interval_topk", arguments, "columns", "suffixes"))


def _inner(function: str, arguments: dict[str, Any], *also: str) -> Request:
    given = arguments.get("how", "inner")
    if given != "inner":
        raise PlanError(f"{function} is about matching pairs; how={given!r} does not apply, leave it out")
    for name in {"keep", "columns", "suffixes"} - set(also):
        if name in arguments:
            raise PlanError(f"{function} does not take {name!r}")
    try:
        return parse_request(**arguments)
    except TypeError as problem:
        raise PlanError(f"{function}: {problem}") from problem
