"""Interval joins on Spark DataFrames: the public functions, and a join as a plan with its explanation and metrics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import (
    Column,  # noqa: F401  (Column is in the type of an option)
    DataFrame,
)
from pyspark.sql.types import BooleanType

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.interval.index.answers import COUNT
from dovetail.joins.interval.plan.choose import (
    Decision,
    choose_counts,
    choose_join,
    choose_top,
    choose_total,
    choose_writer,
    total_on_driver,
)
from dovetail.joins.interval.plan.ranges import points_from_hint
from dovetail.joins.interval.plan.route import Route
from dovetail.joins.interval.plan.sides import Side, Sides, as_column, output_columns, prepare, project
from dovetail.joins.interval.plan.slack import with_slack
from dovetail.joins.interval.plan.statistics import Inputs, SideStatistics
from dovetail.joins.interval.plan.text import TextCodes, coded_texts
from dovetail.joins.interval.request import CountOptions, JoinOptions, Request, TopOptions, TopRequest
from dovetail.request import takes
from dovetail.spark.frames import arrow_type, is_connect, quoted
from dovetail.spark.places import access_to, address_of, require_shared_directory
from dovetail.spark.task_errors import spark_says, translate_task_errors


@dataclass(frozen=True, slots=True)
class IntervalPlan:
    """A join that is planned but not run. `frame` gives the lazy DataFrame, `write_parquet` runs it to files.

    >>> rows = spark.createDataFrame([(0, 5), (3, 8)], "start int, end int")
    >>> dovetail.plan_interval_join(rows, rows).frame().count()
    4
    """

    asked: Request
    inputs: Inputs  # of the same request, with its sides exchanged where right rows keep one match each
    decision: Decision

    @property
    def request(self) -> Request:
        """The request that is planned."""
        return self.inputs.request

    @property
    def route(self) -> Route:
        """The chosen route."""
        return self.decision.route

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        left, right = self.inputs.checked()
        wanted = output_columns(left, right, self.request)
        if self.request.columns is not None and self.request.condition is None:
            # Spark prunes columns of its own joins, but not of our operators.
            left, right = (side.pruned(wanted) for side in (left, right))
        return project(self.route.answer(left, right), left, right, self.request)

    def metrics(self) -> Metrics:
        """The metrics of the last run: rows of each side as planned, rows placed in cells, replication, and so on.

        Operators and indexes have their own counters; those of the native route come from Spark. Before a run there are
        only the planned rows.
        """
        metrics = self.route.add_measured(self._planned())
        return metrics.exchanged("left", "right") if self.inputs.left.exchanged else metrics

    def _planned(self) -> Metrics:
        planned = Metrics()
        for side, stats in self._sides():
            planned.add("rows", stats.usable, side=side.name)
        planned.ratio("replication", over="placed", under="rows")
        return Metrics().include(planned)

    def write_parquet(self, path: str, *, mode: str = "error", compression: str = "snappy") -> Metrics:
        """Write the answer as Parquet files, by the tasks that compute it, all or nothing; returns the metrics.

        An inner join runs on the operators, which write their results without returning rows to Spark. `mode` is
        "error" (the path must not exist) or "overwrite".
        """
        from dovetail.joins.interval.plan.write import new_target, write_cells, write_frame, written  # with operators

        left, right = self.inputs.checked()
        columns = output_columns(left, right, self.request)
        frame = self.frame()
        fields = [pa.field(f.name, arrow_type(f.dataType)) for f in frame.schema.fields]
        described = {"org.apache.spark.sql.parquet.row.metadata": frame.schema.json()}  # collations, for Spark's reader
        spark = frame.sparkSession
        schema = pa.schema(fields, described)
        address = address_of(spark, str(path))
        target = new_target(address, columns, schema, compression, mode, access_to(spark, address))
        require_shared_directory(spark, target.uri, "the answer")
        ranges = choose_writer(self.inputs, self.route)
        if ranges is None:
            files = write_frame(frame, target)
        else:
            pruned = (side.pruned(columns) for side in (left, right))
            files = write_cells(*ranges.inner_tasks(*pruned), ranges.inputs.sink, target)
        if is_connect(frame):  # Spark Connect does not return the counters of tasks
            return written(files, self._planned())
        return written(files, self.metrics() if ranges is None else ranges.add_measured(self._planned()))

    def explain(self) -> str:
        """Route, algorithm, placement, predictions, and the prices of the losers."""
        request, route = self.asked, self.route
        keys = ", ".join(f"{k.left}={k.right}" for k in request.keys) or "none"
        lines = [
            f"IntervalJoin: {request.relation}, how={request.how}, keys={keys}, keep={request.keep}, "
            f"memory={format_bytes(request.memory)} per task",
            f"route: {route.name}, algorithm: {route.algorithm} ({route.reason})",
        ]
        for side, stats in self._sides()[:: -1 if self.inputs.left.exchanged else 1]:
            lines.append(
                f"{side.shown}: {stats.rows:,} rows, {stats.usable:,} usable, {side.bound_type.simpleString()} bounds "
                f"closed {side.closed}, mean length {stats.mean_length:.6g}, longest {stats.max_length:.6g}"
            )
        asked = request.right_interval if self.inputs.left.exchanged else request.left_interval
        if asked != self.request.left_interval:
            lines.append(
                "texts as bounds: rows are joined by the numbers of their first bytes, the texts are a condition"
            )
        return "\n".join([*lines, *route.explain(), *self.decision.explain()])

    def _sides(self) -> list[tuple[Side, SideStatistics]]:
        return list(zip((self.inputs.left, self.inputs.right), self.inputs.statistics, strict=True))


@takes(JoinOptions)
def interval_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Pairs of rows whose intervals satisfy a relation, as a lazy DataFrame.

    Args:
        left: One input.
        right: The other.
        left_interval: Names of the left start and end columns, or of a struct column with two fields. Bounds are
            numbers, decimals, dates, timestamps, times or day-time intervals; both inputs are cast to Spark's common
            type. They may also be texts, or all binary, in the order of their bytes.
        right_interval: The same for the right input.
        relation: `overlapping` (they share a point), one of Allen's relations (before, after, meets, met_by, overlaps,
            overlapped_by, starts, started_by, covers, covered_by, ends, ended_by, equals; contains, during, finishes
            and finished_by are other names), or a set of them: a pair that satisfies any appears once.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        condition: What else must hold for a pair: a Column or SQL text over the output columns.
        closed: Which bounds belong to the interval: left, right, both or neither; or a pair, one per input. It decides
            which intervals are empty, and whether touching ones overlap.
        strict: Allen's strict relations, exactly one of which holds for a pair, instead of the source's, where equal
            intervals also start, end and cover each other.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error"; "drop"; "null" (kept
            by outer joins, matching nothing). Intervals with a null bound and empty ones match nothing and are never an
            error.
        algorithm: auto, native, bins, sort_merge, time_sweep, forward_scan, oip, dip or nested_loop.
            `native` is the best plan of Spark's own operators; `nested_loop` joins by keys alone, if there are any.
        memory: The budget of each task.
        split_points: The boundaries of time partitions in the routes in_memory and streaming; by default quantiles of
            a sample.
        partitions: The number of time partitions; by default enough to make each fit the budget.
        route: How the join runs: native (by Spark's own operators), in_memory (a partition at a time in memory),
            streaming (sorted, for partitions that do not fit), or auto.
        how: inner, left, right, full, left_semi or left_anti, or another name of Spark's for one of these.
        keep: How many matches a left row keeps: all, any (one), first or last (by right start, then end). With
            how="right" a right row keeps them (by left start, then end); how="full" keeps all.
        min_overlap: The least length that two intervals share: a number, and for dates and times a timedelta, text such
            as "10 min", or seconds.
        max_gap: How far apart intervals may be that match; 0 for those that touch. Bounds count as closed then.
        min_fraction: The least part of the left interval that the right one covers, above 0 and at most 1.
        reciprocal: Whether min_fraction holds for the right interval, too.
        with_overlap: Whether the result has the columns overlap_start, overlap_end and overlap_length (a bigint, a
            double for floats, a decimal for decimals, days as an int for dates, a day-time interval for times); null
            where intervals are apart.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        left's columns, then right's; for semi and anti joins left's alone. Planning runs one small job over the
        bounds; `plan_interval_join` shows the resulting plan.

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
    left, right, request = coded_texts(left, right, request)
    sides = with_slack(_prepared(left, right, request))
    driver = total_on_driver(sides)
    if driver is not None:
        with suppress(BudgetExceeded):  # many rows were added since they were counted
            return driver.total()
    return choose_total(Inputs.of(sides)).total()


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
    """The `k` pairs that overlap longest, longest first; ties are broken arbitrarily.

    The other options mean what they mean for `interval_join`; `by` says what pairs are ranked by.

    >>> shifts = spark.createDataFrame([("ada", 8, 16), ("bob", 14, 22)], "name string, start int, end int")
    >>> calls = spark.createDataFrame([(1, 9, 10), (2, 15, 17)], "call int, start int, end int")
    >>> dovetail.interval_topk(shifts, calls, k=1, columns=["name", "call"]).collect()
    [Row(name='bob', call=2)]
    """
    inputs = Inputs.of(with_slack(_prepared(left, right, request.join)))
    try:
        found = choose_top(inputs).top(request.k)
    except BudgetExceeded:  # too many rows are as long as the overlap of the last pair
        found = choose_join(inputs).route.top(request.k)
    return project(found, inputs.left, inputs.right, inputs.request)


def make_plan(left: DataFrame, right: DataFrame, request: Request) -> IntervalPlan:
    """The plan of a request over two DataFrames; runs a small job for their statistics."""
    inputs = Inputs.of(_asked(*coded_texts(left, right, request)))
    return IntervalPlan(request, inputs, choose_join(inputs))


def empty_result(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """A frame with the columns of the result over inputs without rows; no job, and what planning refuses is refused."""
    no_codes = TextCodes(b"")  # right for any texts, and needs none of them
    sides = _asked(*coded_texts(left, right, replace(request, invalid="null"), no_codes))
    one, other, request = sides.left, sides.right, sides.request
    rows = one.frame if request.left_only else one.frame.crossJoin(other.frame)
    return project(rows, one, other, request)


def _asked(left: DataFrame, right: DataFrame, request: Request) -> Sides:
    """Both sides as they are joined, with every part of the request checked; starts no job."""
    sides = _prepared(left, right, request)
    if request.keep != "all" and request.how == "right":  # right rows keep one match each: the sides are exchanged
        request = request.mirrored(output_columns(sides.left, sides.right, request))
        sides = Sides(request, *(replace(side, exchanged=True) for side in prepare(right, left, request)))
    return with_slack(sides)


def count_rows(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Left rows with the number of their matches, `n_overlaps`."""
    if COUNT in left.columns:
        raise PlanError(f"left input already has a column {COUNT!r}; rename it first", argument="left")
    request = replace(request, how="left_anti")  # every left row is kept, and right rows are not
    inputs = Inputs.of(with_slack(_prepared(*coded_texts(left, right, request))))
    return choose_counts(inputs).counts(*inputs.checked()).select(*map(quoted, left.columns), COUNT)


def _prepared(left: DataFrame, right: DataFrame, request: Request) -> Sides:
    """Both sides, with every part of the request checked against their columns; starts no job."""
    translate_task_errors()
    sides = Sides(request, *prepare(left, right, request))
    output_columns(sides.left, sides.right, request)
    if request.split_points is not None:
        points_from_hint(sides.left.bound_type, request.split_points)
    if request.condition is not None:
        _check_condition(sides)
    return sides


def _check_condition(sides: Sides) -> None:
    """Lets Spark resolve the condition over the columns of a pair, so that a wrong one fails before any job."""
    left, right, request = sides.left, sides.right, sides.request
    pair = left.frame.crossJoin(right.frame)
    try:
        kind = pair.select(as_column(request.condition).alias("c")).schema["c"].dataType
        if not isinstance(kind, BooleanType):
            raise PlanError(
                f"condition={request.condition!r} is of type {kind.simpleString()}; it must be true or false",
                argument="condition",
            )
        pair.where(as_column(request.condition)).schema  # noqa: B018  (refuses aggregates, over Spark Connect too)
    except AnalysisException as problem:
        raise PlanError(
            f"condition={request.condition!r} does not fit the result's columns {[*left.payload, *right.payload]}; "
            f"write it over these names, without aggregates and window functions. Spark says: {spark_says(problem)}.",
            argument="condition",
        ) from problem
