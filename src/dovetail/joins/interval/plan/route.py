"""Which way an interval join goes, and why: every route and algorithm priced from the statistics of both inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, isfinite, log2

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import parse_bytes
from dovetail.engine.profile import load_profile
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.answers import INDEX_BYTES
from dovetail.joins.interval.bins import CANDIDATE_COST, HASHED_CANDIDATE_COST, choose_bins, key_pairs
from dovetail.joins.interval.cell_join import sweepable
from dovetail.joins.interval.cost import FrameMemory, IntervalStatistics, choose
from dovetail.joins.interval.cost.choose import Choice
from dovetail.joins.interval.plan.answers import can_stream_codes, right_fits
from dovetail.joins.interval.plan.cells import BinCells, OrderCells
from dovetail.joins.interval.plan.native import strategy
from dovetail.joins.interval.plan.partitioned import RangeCells
from dovetail.joins.interval.plan.points import points_from_hint, points_from_positions
from dovetail.joins.interval.plan.sides import Side, spark_only
from dovetail.joins.interval.plan.statistics import SideStatistics
from dovetail.joins.interval.request import OPERATORS, Request
from dovetail.spark.connect import parallelism

INDEX = "index"
KEYS = "keys"
MOST_RANGES = 2000
_FURTHEST = 2.0**61  # lengths of whole numbers nearer to zero than this fit into a long


@dataclass(frozen=True, slots=True)
class Route:
    """The chosen route and algorithm, the cells rows are placed in, and what it was chosen from."""

    name: str
    algorithm: str
    reason: str
    cells: BinCells | OrderCells | RangeCells | None
    swapped: bool = False
    choice: Choice | None = None
    native_seconds: float | None = None
    operators_seconds: float | None = None


def choose_route(
    request: Request, left: Side, right: Side, stats: tuple[SideStatistics, SideStatistics], spark: SparkSession
) -> Route:
    """The route for a request; a named algorithm or route is taken where it can run, and the reason says where not."""
    way = strategy(request.relation)
    low, high = min(s.low for s in stats), max(s.high for s in stats)
    codes = can_stream_codes(left, request.relation, low, high)
    partitioned = request.algorithm in OPERATORS or request.route in ("in_memory", "streaming")
    partitioned = partitioned or request.split_points is not None
    if request.algorithm == "nested_loop":
        return Route("native", "nested_loop", "named by the user", None)
    only = spark_only(left, right)
    obstacle = _obstacle(request, way, codes) or only
    if partitioned and obstacle is None:
        return _partitioned(request, left, stats, spark)
    native = _native(request, way, stats, f"{obstacle}; " if partitioned else "", left.bound_type, spark)
    if request.algorithm == "auto" and not partitioned and codes and only is None:
        route = _index_route(request, left, right, stats, way, spark)
        if route is not None and (native.algorithm != KEYS or _index_seconds(stats) < native.native_seconds):  # type: ignore[operator]  # keys are priced
            return route
    if request.algorithm != "auto" or request.route != "auto" or obstacle is not None:
        return native
    other = _partitioned(request, left, stats, spark)
    seconds = _operators_seconds(other, stats)
    if None not in (seconds, native.native_seconds) and seconds < native.native_seconds:  # type: ignore[operator]  # just checked
        return replace(other, native_seconds=native.native_seconds, operators_seconds=seconds)
    return replace(native, choice=other.choice or native.choice, operators_seconds=seconds)


_INDEX_REASON = "the {} side fits the budget: {} rows stream past an index of it, and no pair is formed"


_RANGES_REASON = "each range has an index of its right rows, left rows stream past it, and no pair is formed"


def _obstacle(request: Request, way: str, codes: bool) -> str | None:
    """Why the operators cannot run this request, if they cannot."""
    if way == "equality":
        return "a relation with an equality of bounds is an equality join"
    if way == "order":
        return "before and after are inequality joins"
    if way == "nested_loop":
        return "the set of relations holds for intervals far apart"
    if not sweepable(request.relation):
        return "with this `closed` the relation also holds for intervals that only touch"
    if request.condition is not None and request.how != "inner":
        return f"a condition inside a {request.how} join is Spark's to evaluate"
    if not codes:
        return "bounds of this type and `closed` have no 64-bit codes"
    return None


def _index_route(
    request: Request,
    left: Side,
    right: Side,
    stats: tuple[SideStatistics, SideStatistics],
    way: str,
    spark: SparkSession,
) -> Route | None:
    """The route that forms no pairs, for questions about left rows; None for other requests."""
    asked = request.how in ("left_semi", "left_anti") or request.keep != "all"
    if not asked or request.condition is not None:
        return None
    if right_fits(stats[1], request.memory, None if request.left_only else right):
        return Route("in_memory", INDEX, _INDEX_REASON.format(right.shown, left.shown), None)
    if not request.left_only or way != "bins":
        return None
    ranges = max(parallelism(spark), ceil(sum(s.usable for s in stats) * INDEX_BYTES * 2 / request.memory))
    return Route("in_memory", INDEX, _RANGES_REASON, range_cells(request, left, stats, min(ranges, MOST_RANGES)))


def _index_seconds(stats: tuple[SideStatistics, SideStatistics]) -> float:
    """One core's time for an index: its rows read and sorted, left rows to Python, looked up, and back."""
    profile, (left, right) = load_profile(), stats
    row, depth = profile.python_to_jvm_row.seconds, log2(right.usable + 2)
    return left.rows * (2 * row + profile.probe.seconds * depth) + right.usable * (row + profile.sort.seconds * depth)


def _native(
    request: Request,
    way: str,
    stats: tuple[SideStatistics, SideStatistics],
    because: str,
    bound_type: T.DataType,
    spark: SparkSession,
) -> Route:
    """The cheapest plan of Spark's own operators: bins, or for few rows a key its equality join on the keys."""
    cells = native_cells(request, way, stats, bound_type, spark)
    reasons = {
        "bins": "pairs are found by bins that Spark compiles, spills and balances",
        KEYS: "few rows share a key: Spark's own equality join on the keys, the relation as its condition",
        "equality": "Spark's own equality join on the bounds, the rest as a filter",
        "order": "REPLICATE and PROJECT by split points, the rest as a filter",
        "nested_loop": "no bins help; Spark's nested loop, or its equality join on the keys",
    }
    seconds = None
    if isinstance(cells, BinCells):
        row = load_profile().shuffle_row.seconds
        seconds = cells.bins.rows * row + cells.bins.candidates * cells.bins.candidate_cost
        if request.keys and request.algorithm != "bins":
            by_keys = sum(s.usable for s in stats) * row
            by_keys += key_pairs(*(s.sample for s in stats)) * cells.bins.candidate_cost
            if by_keys <= seconds * _joins(request):
                way, cells, seconds = KEYS, None, by_keys
    return Route("native", way, because + reasons[way], cells, native_seconds=seconds)


def _joins(request: Request) -> int:
    """How many joins bins need: rows of several bins that no bin can decide alone are joined again."""
    undecided = (request.left_only or request.keeps_left) + request.keeps_right
    return 1 + undecided + (request.keep != "all" and request.keeps_left)


def _operators_seconds(route: Route, stats: tuple[SideStatistics, SideStatistics]) -> float | None:
    """One core's time for the operators' route: rows shuffled, sorted, sent to Python, joined, and sent back."""
    if route.choice is None or route.choice.best.seconds is None or not isinstance(route.cells, RangeCells):
        return None
    profile, best, ranges = load_profile(), route.choice.best, route.cells.ranges
    rows = sum(s.usable for s in stats)
    each = profile.shuffle_row.seconds + profile.python_to_jvm_row.seconds + profile.sort.seconds * log2(rows + 2)
    back = best.rows * ranges * profile.python_to_jvm_row.seconds
    return rows * each + route.choice.best.seconds * ranges + back


def native_cells(
    request: Request,
    way: str,
    stats: tuple[SideStatistics, SideStatistics],
    bound_type: T.DataType,
    spark: SparkSession,
) -> BinCells | OrderCells | None:
    """The cells of the native route."""
    left, right = stats
    if way == "bins":
        cost = HASHED_CANDIDATE_COST if _broadcasts(stats, spark) else CANDIDATE_COST
        longest = max(left.max_length, right.max_length)
        bins = choose_bins(left.sample, right.sample, longest, cost)
        furthest = max(abs(bound) for side in stats for bound in (side.low, side.high))
        whole = isinstance(bound_type, T.IntegralType) and bins.spans(longest) and furthest < _FURTHEST
        return BinCells(bins.whole() if whole else bins, whole)
    if way == "order":
        earlier = "left" if request.relation.only == "before" else "right"
        ends, starts = (left, right) if earlier == "left" else (right, left)
        points = np.concatenate([ends.sample.end, starts.sample.start])
        ranges = request.partitions or 16
        cuts = np.unique(np.quantile(points, np.arange(1, ranges) / ranges)) if len(points) else np.array([])
        return OrderCells(tuple(float(cut) for cut in cuts if isfinite(cut)), earlier)
    return None


def _broadcasts(stats: tuple[SideStatistics, SideStatistics], spark: SparkSession) -> bool:
    """Whether Spark is likely to send one side to all tasks and join by hashing instead of merging."""
    try:
        limit = parse_bytes(spark.conf.get("spark.sql.autoBroadcastJoinThreshold", "10MB") or "10MB")
    except PlanError:
        return False  # switched off
    return min(s.rows * s.row_bytes for s in stats) <= limit


def _partitioned(
    request: Request, left: Side, stats: tuple[SideStatistics, SideStatistics], spark: SparkSession
) -> Route:
    total = sum(s.usable * (s.row_bytes + 24) for s in stats)
    fitting = ceil(total * 1.25 / (request.memory / 2))
    route = request.route if request.route != "auto" else "in_memory" if fitting <= MOST_RANGES else "streaming"
    wanted = max(parallelism(spark), fitting) if route == "in_memory" else max(parallelism(spark), ceil(total / 2**28))
    cells = range_cells(request, left, stats, min(wanted, MOST_RANGES))
    choice = price_operators(request, stats, cells.ranges)
    algorithm, swapped, reason = request.algorithm, False, "named by the user"
    if algorithm not in OPERATORS:
        if choice is None:
            algorithm, reason = "forward_scan", "too few rows to price"
        else:
            algorithm, swapped, reason = choice.best.algorithm, choice.best.swapped, choice.reason
    return Route(route, algorithm, reason, cells, swapped, choice)


def range_cells(request: Request, left: Side, stats: tuple[SideStatistics, SideStatistics], wanted: int) -> RangeCells:
    """The ranges of the partitioned routes: the user's split points, or quantiles of the starts of both sides."""
    if request.split_points is not None:
        return RangeCells(points_from_hint(left.bound_type, request.split_points), request.relation)
    starts = np.concatenate([s.sample.start for s in stats])
    weights = np.concatenate([np.full(len(s.sample.start), s.sample.weight) for s in stats])
    ranges = request.partitions or wanted
    if not len(starts) or ranges == 1:
        return RangeCells((), request.relation)
    order = np.argsort(starts, kind="stable")
    reached = np.cumsum(weights[order])
    aims = reached[-1] * np.arange(1, ranges) / ranges
    chosen = starts[order][np.minimum(np.searchsorted(reached, aims), len(starts) - 1)]
    return RangeCells(points_from_positions(left.bound_type, chosen), request.relation)


def price_operators(request: Request, stats: tuple[SideStatistics, SideStatistics], ranges: int) -> Choice | None:
    """The five operators priced for one of so many ranges; None where there is nothing to price."""
    lengths = [s.mean_length for s in stats if s.usable and isfinite(s.mean_length)]
    finite = all(isfinite(s.low) and isfinite(s.high) for s in stats)
    if not all(s.usable for s in stats) or not finite or not lengths:
        return None
    mean = max(sum(lengths) / len(lengths), 1e-300)
    scale = 1.0 if mean >= 4 and all(float(s.low).is_integer() for s in stats) else 1000.0 / mean
    try:
        left, right = (
            IntervalStatistics.measured(
                s.usable,
                s.low,
                s.last_start,
                s.high,
                s.mean_length,
                s.max_length,
                max(24.0, s.row_bytes + 16),
                instants_per_unit=scale,
            ).split_into(ranges)
            for s in stats
        )
        memory = FrameMemory.fitting(request.memory, left.tuple_bytes, right.tuple_bytes)
        names = tuple(sorted(request.relation.names))
        return choose(left, right, memory, relations=names, strict=request.relation.strict, unit_costs=load_profile())
    except (PlanError, UnsupportedError, OverflowError):
        return None  # a price is advice: inputs beyond the models' assumptions are joined all the same
