"""Nearest joins on Spark DataFrames: the public functions, and a join as a plan with its explanation and metrics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.keys import MOST_DIGITS, NARROW_DIGITS
from dovetail.errors import PlanError
from dovetail.joins.interval.plan.sides import Side, asked_type, prepare
from dovetail.joins.nearest.kernels.nearest import FARTHEST
from dovetail.joins.nearest.operator import DISTANCE
from dovetail.joins.nearest.plan.search import Search
from dovetail.joins.nearest.plan.ties import Nearest
from dovetail.joins.nearest.request import NearestOptions, Request
from dovetail.request import takes, wanted_columns
from dovetail.spark.frames import length, quoted
from dovetail.spark.inputs import FLOATS, distance_units, spark_only
from dovetail.spark.task import MetricsSink
from dovetail.spark.task_errors import MARK, translate_task_errors


@dataclass(frozen=True, slots=True)
class NearestPlan:
    """A nearest join that is planned but not run; `frame` gives the lazy DataFrame.

    >>> rows = spark.createDataFrame([(1, 2), (5, 9)], "start int, end int")
    >>> dovetail.plan_interval_nearest(rows, rows).frame().count()
    2
    """

    request: Request
    nearest: Nearest
    asked: T.DataType  # of the left start, as it was given
    sink: MetricsSink

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        left, right = self.nearest.left, self.nearest.right
        wanted = wanted_columns(self.request.join.columns, (*left.payload, *right.payload, DISTANCE))
        mine = tuple(name for name in left.payload if name in wanted)
        theirs = tuple(name for name in right.payload if name in wanted)
        distance = f"{length(self.asked, left.bound_type, DISTANCE)} as {DISTANCE}"
        answer = self.nearest.answer(mine, theirs)
        return answer.selectExpr(*(distance if name == DISTANCE else quoted(name) for name in wanted))

    def explain(self) -> str:
        """The join, its searches, and the placement of rows."""
        request, join = self.request, self.request.join
        keys = ", ".join(k.left if k.left == k.right else f"{k.left}={k.right}" for k in join.keys) or "none"
        within = "" if request.max_distance is None else f", max_distance={request.max_distance}"
        skipped = ", overlaps ignored" if request.ignore_overlaps else ""
        lines = [
            f"IntervalNearest: k={request.k}, {request.direction}{skipped}, keys={keys}{within}, ties={request.ties}, "
            f"how={join.how}, memory={format_bytes(join.memory)} per task"
        ]
        for search in self.nearest.searches:
            lines += search.explain()
        if request.ties != "any":
            lines.append("ties: an interval join of left rows, widened by the distance of their last nearest row")
        return "\n".join(lines)

    def metrics(self) -> Metrics:
        """The metrics of the last run: rows placed, matched, spilled, and memory."""
        return Metrics().merge(self.sink.collect())


@takes(NearestOptions)
def interval_nearest(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """The k nearest right intervals of each left interval, with their distance, as a lazy DataFrame.

    The distance is 0 for intervals that overlap or touch, else the gap between the end of the earlier one and the start
    of the later one.

    Args:
        left: The rows whose nearest rows are wanted.
        right: The rows that are found.
        k: How many right rows a left row gets, at most.
        direction: Which right rows count: any, upstream (those that lie before the left one) or downstream (those that
            lie after it). Rows that overlap count in every direction.
        ignore_overlaps: Whether rows that overlap do not count. Rows that only touch, by `closed`, still do.
        ties: Which of equally near rows are taken. "any": k rows; rows that overlap before rows that lie before, these
            before rows that lie after, and the same ones in every run of the same call. "first": k rows, the first by
            start, then by end. "all": all rows that are as near as the k-th.
        max_distance: The largest distance that counts, itself included: a number, and for dates and times a timedelta,
            text such as "10 min", or seconds. None for any distance.
        on: Equality keys: "k", ["k"] or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result.
        left_interval: Names of the left start and end columns, or of a struct column with two fields. Bounds are
            numbers, decimals of up to 18 digits, dates, timestamps, times or day-time intervals; both inputs are cast
            to Spark's common type.
        right_interval: The same for the right input.
        closed: Which bounds belong to the interval: left, right, both or neither; or a pair, one per input. It decides
            which intervals are empty, and whether touching ones overlap.
        invalid: How to treat an interval that ends before it starts, or has a NaN bound: "error"; "drop"; "null" (kept
            by how="left", matching nothing). Intervals with a null bound and empty ones match nothing and are never an
            error.
        how: inner, or left, which keeps left rows without a match.
        memory: The budget of each task. Rows that do not fit are spilled.
        partitions: The number of partitions of the exchange; by default enough to make each fit the budget.
        columns: The output columns wanted, in order.
        suffixes: Added to left's and right's names where both have the same one.

    Returns:
        left's columns, right's, and `distance`: a bigint, a double for floats, a decimal for decimals, days as an int
        for dates, a day-time interval for timestamps, times and day-time intervals. Planning samples inputs that are
        not small by one job; ties="first" and "all" run the search while they are planned, to size a second join.

    Raises:
        PlanError: for a request that cannot be right, before any job starts.
        DataError: for inverted intervals, with the side and the bounds, when the answer is computed.

    >>> peaks = spark.createDataFrame([("a", 10, 12), ("b", 30, 31)], "peak string, start int, end int")
    >>> genes = spark.createDataFrame([("x", 0, 5), ("y", 14, 29)], "gene string, start int, end int")
    >>> near = dovetail.interval_nearest(peaks, genes, columns=["peak", "gene", "distance"])
    >>> near.orderBy("peak").collect()
    [Row(peak='a', gene='y', distance=2), Row(peak='b', gene='y', distance=1)]
    """
    return make_plan(left, right, request).frame()


@takes(NearestOptions)
def plan_interval_nearest(left: DataFrame, right: DataFrame, request: Request) -> NearestPlan:
    """The plan of `interval_nearest` with the same arguments: `explain`, `frame`, `metrics`.

    >>> rows = spark.createDataFrame([(1, 2, 3), (1, 5, 9)], "k int, start int, end int")
    >>> plan = dovetail.plan_interval_nearest(rows, rows, on="k", k=2, direction="upstream", memory="16MB")
    >>> print(plan.explain().splitlines()[0])
    IntervalNearest: k=2, upstream, keys=k, ties=any, how=inner, memory=16 MiB per task
    """
    return make_plan(left, right, request)


def make_plan(left: DataFrame, right: DataFrame, request: Request) -> NearestPlan:
    """The plan of a request; inputs that are not small are sampled by one job."""
    translate_task_errors()
    mine, theirs = prepare(left, right, request.join)
    wanted_columns(request.join.columns, (*mine.payload, *theirs.payload, DISTANCE))
    _check(mine, theirs)
    asked = asked_type(left, request.join.left_interval)
    farthest: int | float | None = None
    if request.max_distance is not None:
        farthest = distance_units("max_distance", request.max_distance, mine.bound_type, asked)
        farthest = farthest if isinstance(mine.bound_type, FLOATS) else min(FARTHEST, farthest)
    mine, theirs = (_checked(side, request.join.invalid) for side in _in_codes(mine, theirs))
    counted = [(request.before, not request.ignore_overlaps, request.after)]
    if request.ignore_overlaps and request.direction == "any":
        counted = [(True, False, False), (False, False, True)]
    sink = MetricsSink(left.sparkSession)
    searches = tuple(Search.plan(request, mine, theirs, each, farthest, sink) for each in counted)
    return NearestPlan(request, Nearest(request, searches, mine, theirs), asked, sink)


def _check(left: Side, right: Side) -> None:
    """`PlanError` for inputs that tasks cannot search."""
    obstacle = spark_only((side.frame, side.keys) for side in (left, right))
    if obstacle is not None:
        raise PlanError(
            f"interval_nearest: {obstacle}, and there is no other way to run it. Leave such columns out; in place of a "
            "struct or array key give its fields or elements as columns, on=[...], or its text by F.to_json.",
            argument="on",
        )
    for side in (left, right):
        if DISTANCE in (name.lower() for name in side.payload):
            raise PlanError(f"{side.name} input has a column {DISTANCE!r}; rename it first.", argument=side.name)


def _in_codes(left: Side, right: Side) -> tuple[Side, Side]:
    """The sides with wide decimals counted from the smallest bound, so that 18 digits are enough; one job finds it."""
    kind = left.bound_type
    if not isinstance(kind, T.DecimalType) or kind.precision <= NARROW_DIGITS:
        return left, right
    wide = kind.simpleString()
    if kind.scale > NARROW_DIGITS or kind.precision == MOST_DIGITS:  # differences of 38 digits lose the last one
        raise PlanError(
            f"interval bounds of type {wide} have no exact differences here; cast them to at most {MOST_DIGITS - 1} "
            f"digits, {NARROW_DIGITS} of them after the point, or to double.",
            argument="left_interval",
        )
    one, other = (s.frame.selectExpr(f"explode(array({s.start}, {s.end})) as bound") for s in (left, right))
    least, most = one.union(other).selectExpr("min(bound)", "max(bound)").collect()[0]
    if least is None:
        least = most = Decimal(0)
    if Fraction(most) - Fraction(least) >= Fraction(10 ** (NARROW_DIGITS - kind.scale)):
        raise PlanError(
            f"interval bounds of type {wide} reach from {least:f} to {most:f}, more than {NARROW_DIGITS} digits apart; "
            "cast them to fewer digits after the point, or to double.",
            argument="left_interval",
        )
    narrow = T.DecimalType(NARROW_DIGITS, kind.scale)
    changed = f"{MARK}DataError: interval bounds have changed since the join was planned; plan it again."

    def coded(side: Side) -> Side:
        columns = []
        for bound, name in ((side.start, "low"), (side.end, "high")):
            code = f"try_cast(cast({bound} as {wide}) - cast('{least:f}' as {wide}) as {narrow.simpleString()})"
            columns.append(f"if({bound} is null, null, coalesce({code}, raise_error('{changed}'))) as {side.own(name)}")
        frame, low, high = side.frame.selectExpr("*", *columns), quoted(side.own("low")), quoted(side.own("high"))
        return replace(side, frame=frame, start=low, end=high, bound_type=narrow, written=(side.start, side.end))

    return coded(left), coded(right)


def _checked(side: Side, invalid: str) -> Side:
    """The side with `invalid` applied to its inverted intervals."""
    if invalid == "error":
        what = f"{MARK}DataError: {side.name} input has an interval that ends before it starts or holds NaN: "
        repair = '. Repair it, or pass invalid="drop" (leave it out) or invalid="null" (keep it, unmatched).'
        start, end = side.written or (side.start, side.end)
        given = f"concat('{what}', string({start}), ' to ', string({end}), '{repair}')"
        return replace(side, frame=side.frame.where(f"if({side.inverted}, raise_error({given}), true)"))
    return side if invalid == "null" else replace(side, frame=side.frame.where(f"not {side.inverted}"))
