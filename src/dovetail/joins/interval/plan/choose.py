"""Decides between the routes, for joins, counts, top-k and files: which can run, which fit, which is cheapest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, isfinite, log2
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.arrays import F64
from dovetail.engine.profile import load_profile
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.index.answers import INDEX_BYTES
from dovetail.joins.interval.plan.bins import CANDIDATE_COST, BinCells, OrderCells, key_pairs
from dovetail.joins.interval.plan.grid import GridSample
from dovetail.joins.interval.plan.index import IndexRoute, OnDriver, bounds_only
from dovetail.joins.interval.plan.native import NativeRoute, bin_cells, by_extremes, candidate_cost, order_cells
from dovetail.joins.interval.plan.ranges import RangeCells, RangesRoute, range_cells
from dovetail.joins.interval.plan.route import Route
from dovetail.joins.interval.plan.sides import Sides, is_wide_decimal
from dovetail.joins.interval.plan.statistics import SMALL_ROWS, Inputs, SideStatistics, kept_row_counts, text_bytes
from dovetail.joins.interval.relation import Relation, strategy
from dovetail.joins.interval.request import OPERATORS, Request
from dovetail.spark.frames import parallelism
from dovetail.spark.hosts.sample import SMALL_BYTES
from dovetail.spark.inputs import collectable_bytes, known_bytes, may_collect, rows_at_most, spark_only

if TYPE_CHECKING:
    from dovetail.joins.interval.cost import Choice, IntervalStatistics
    from dovetail.joins.interval.cost.sampled import SampledSide

MOST_RANGES = 2000  # tasks of one join; ranges that are still too large then are streamed
DRIVER_ROW_BYTES = 24  # of a row on the driver: two bounds, and a key or the sort's scratch
INDEX_ROOM = 3  # a range's share of the budget: its index, a second one of rows that start in it, and the current batch
OPERATOR_ROW_BYTES = 24  # of a row in an operator beside its columns: codes of the bounds and of the key
OPERATOR_ROOM = 2.5  # a range's share of the budget: half of it is for current batches, and ranges are not equal
STREAMED_RANGE_BYTES = 1 << 28  # of input for each task of the streaming route
EXPLODED_ROW = 1.4  # cost of a row that is copied to bins and hashed with their numbers, relative to a plain row
RANGES_START = 0.5  # seconds of one core that a join by operators takes for no rows: workers, and an exchange of ids
INDEX_START = 0.2  # the same of an index of the whole right side: a job that reads it, and workers
SENT_ROW = 4  # cost of a right row that the driver reads, broadcasts and every worker loads, relative to one sent once
MISSED_LENGTH = 1.5  # times the longest sampled row: longer ones were missed by the sample
FEWEST_SAMPLED = 64  # rows of both samples in a range from which a sweep can be followed
CODES_BOTH_CLOSED = 2.0**62  # bounds below this leave room for a closed end
CODES_MIXED_CLOSED = 2.0**61  # bounds nearer to zero than this leave room for half steps

_NATIVE_REASONS = {
    "bins": "pairs are found by bins that Spark compiles, spills and balances",
    "keys": "few rows share a key: Spark's own equality join on the keys, the relation as its condition",
    "equality": "Spark's own equality join on the bounds, the rest as a filter",
    "order": "REPLICATE and PROJECT by split points, the rest as a filter",
    "extremes": "each row is compared with the latest start or the earliest end of its key, and no pair is formed",
    "grid": "rows are copied to the cells of a grid over both inequalities that may hold their matches",
    "nested_loop": "no bins help; Spark's nested loop, or its equality join on the keys",
}
_DRIVER_REASON = "the bounds of both sides fit the budget and are read on the driver"
_STRATEGY_OBSTACLES = {
    "equality": "a relation with an equality of bounds is an equality join",
    "order": "before and after are inequality joins",
    "nested_loop": "the set of relations holds for intervals far apart",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """The route of a join, and the prices of all candidates."""

    route: Route
    native_seconds: float | None = None
    operators_seconds: float | None = None
    operators: Choice | None = None

    def explain(self) -> list[str]:
        """The prices, a line each."""
        lines = []
        if self.native_seconds is not None:
            lines.append(f"native price: {self.native_seconds:.3g} s of one core")
        if self.operators_seconds is not None:
            lines.append(
                f"operators' price: {self.operators_seconds:.3g} s of one core, rows to Python and back included"
            )
        prices = self.operators
        if prices is None and isinstance(self.route, RangesRoute):  # a named operator is not priced before it runs
            inputs = self.route.inputs
            prices = price_operators(inputs.request, inputs.statistics, self.route.cells.ranges)
        if prices is not None:
            lines.append("operators, priced for one range:")
            lines += [f"  {line}" for line in prices.explain().splitlines()]
        return lines


def choose_join(inputs: Inputs) -> Decision:
    """The route of a join; a named algorithm or route is used if it can run; otherwise the reason says why not."""
    request = inputs.request
    by_ranges = request.algorithm in OPERATORS or request.route in ("in_memory", "streaming")
    by_ranges = (by_ranges or request.split_points is not None) and request.algorithm != "nested_loop"
    obstacle = _ranges_obstacle(inputs) if by_ranges else None
    if by_ranges and obstacle is None:
        ranges = _ranges(inputs)
        return Decision(ranges, operators=ranges.prices)
    native = native_route(inputs, f"{obstacle}; " if by_ranges else "")
    named = by_ranges or request.algorithm != "auto" or request.route != "auto"
    if named or (request.left_only and by_extremes(request)):
        return Decision(native, native.seconds)
    index = index_route(inputs)
    if index is not None and (native.cells is not None or native.seconds is None or _cheaper(index, native)):
        return Decision(index)
    if _ranges_obstacle(inputs) is not None:
        return Decision(native, native.seconds)
    ranges = _ranges(inputs)
    chosen = ranges if _cheaper(ranges, native) else native
    return Decision(chosen, native.seconds, ranges.seconds, ranges.prices)


def choose_counts(inputs: Inputs) -> Route:
    """The route of counts by left row: an index wherever one can answer."""
    return _index(inputs) or native_route(inputs)


def choose_total(inputs: Inputs) -> Route:
    """The route that counts all pairs in tasks: pairs have to be formed for a condition."""
    return choose_counts(inputs) if inputs.request.condition is None else choose_join(inputs).route


def total_on_driver(sides: Sides) -> IndexRoute | None:
    """The index that counts all pairs on the driver, if the bounds fit the budget; needs no statistics."""
    if sides.request.condition is not None or _spark_only(sides) is not None:
        return None
    if sum(known_bytes(bounds_only(side)) for side in (sides.left, sides.right)) <= SMALL_BYTES:
        return IndexRoute(sides, _DRIVER_REASON, driver=OnDriver(SMALL_ROWS))
    return IndexRoute(sides, _DRIVER_REASON, driver=OnDriver()) if _bounds_fit(sides) else None


def _bounds_fit(sides: Sides) -> bool:
    """Whether bounds fit the driver; a job counts rows only if neither Spark's cache nor footers say that they do."""
    both = sides.left, sides.right
    told = [rows for side in both if (rows := rows_at_most(side.source)) is not None]
    known = len(told) == len(both) and _driver_fits(sum(told), sides)
    return known or _driver_fits(sum(kept_row_counts(both)), sides)


def choose_top(inputs: Inputs) -> Route:
    """The route of the longest overlaps: an index on the driver, if bounds alone decide and fit it; else a join."""
    request, stats = inputs.request, inputs.statistics
    simple = request.condition is None and request.relation.only == "overlapping"
    coded = simple and not is_wide_decimal(inputs.left.bound_type) and _spark_only(inputs) is None
    if not coded or not _driver_fits(sum(s.rows for s in stats), inputs):
        return choose_join(inputs).route
    room = min(request.memory, collectable_bytes(inputs.left.frame.sparkSession))
    whole_rows = int(room / max(1.0, sum(s.row_bytes for s in stats)))
    return IndexRoute(inputs, _DRIVER_REASON, driver=OnDriver(whole_rows=whole_rows))


def _driver_fits(rows: int, sides: Sides) -> bool:
    return rows * DRIVER_ROW_BYTES <= sides.request.memory and may_collect(bounds_only(sides.left), rows)


def choose_writer(inputs: Inputs, planned: Route) -> RangesRoute | None:
    """The operators' route, whose tasks write an inner join themselves; None if Spark has to compute the answer."""
    request = inputs.request
    shared = any(key.shared for key in request.keys)
    if request.how != "inner" or request.keep != "all" or request.condition is not None or shared:
        return None
    if request.algorithm == request.route == "auto" and not isinstance(planned, RangesRoute):
        planned = choose_join(replace(inputs, request=replace(request, route="in_memory"))).route
    return planned if isinstance(planned, RangesRoute) else None


def may_use_grid(request: Request) -> bool:
    """Whether a grid of two inequalities may be priced: no other way is named."""
    free = request.algorithm in ("auto", "native") and request.route in ("auto", "native")
    return free and request.partitions is None


def choose_grid(inputs: Inputs, planned: Decision, grid: GridSample, pair: tuple[int, int]) -> Decision:
    """The join by a grid of two inequalities in place of one of them, unless few rows share a key."""
    route = planned.route
    if not isinstance(route, NativeRoute) or not isinstance(route.cells, OrderCells):
        return planned
    left, right = (side.usable for side in inputs.statistics)
    same_key = min(1.0, _pairs_of_keys(inputs) / max(1, left * right))
    cells = grid.cells(pair, (left, right), same_key, CANDIDATE_COST)
    if cells is None:
        return planned
    return Decision(NativeRoute(inputs, "grid", _NATIVE_REASONS["grid"], cells, cells.seconds), cells.seconds)


def _cheaper(one: Route, other: Route) -> bool:
    return one.seconds is not None and other.seconds is not None and one.seconds < other.seconds


def _ranges_obstacle(inputs: Inputs) -> str | None:
    """Why the operators cannot run this request, if they cannot."""
    from dovetail.joins.interval.operators.spec import sweepable  # counts need no operators

    request = inputs.request
    way = strategy(request.relation)
    if way != "bins":
        return _STRATEGY_OBSTACLES[way]
    if not sweepable(request.relation):
        return "with this `closed` the relation also holds for intervals that only touch"
    if request.condition is not None and request.how != "inner":
        return f"a condition inside a {request.how} join is Spark's to evaluate"
    return codes_obstacle(inputs)


def codes_obstacle(inputs: Inputs) -> str | None:
    """Why tasks in Python cannot see the rows as 64-bit codes, if they cannot."""
    low, high = min(s.low for s in inputs.statistics), max(s.high for s in inputs.statistics)
    if not _has_codes(inputs.left.bound_type, inputs.request.relation, low, high):
        return "bounds of this type and `closed` have no 64-bit codes"
    return _spark_only(inputs)


def _spark_only(sides: Sides) -> str | None:
    return spark_only((side.frame, side.keys) for side in (sides.left, sides.right))


def _has_codes(kind: T.DataType, relation: Relation, low: float, high: float) -> bool:
    """Whether bounds have 64-bit codes without seeing all of them: not wide decimals, nor mixed `closed` on floats."""
    if is_wide_decimal(kind):
        return False
    if relation.left_closed == relation.right_closed:
        return relation.left_closed != "both" or high < CODES_BOTH_CLOSED
    floating = isinstance(kind, (T.FloatType, T.DoubleType))
    # Positions of times are seconds, codes microseconds; decimals are counted in their last digit.
    scale = 10.0**kind.scale if isinstance(kind, T.DecimalType) else 1.0 if isinstance(kind, T.IntegralType) else 1e6
    return not floating and max(abs(low), abs(high)) * scale < CODES_MIXED_CLOSED


def native_route(inputs: Inputs, because: str = "") -> NativeRoute:
    """The cheapest plan of Spark's own operators: cells, or for few rows a key its equality join on the keys."""
    request, way = inputs.request, strategy(inputs.request.relation)
    if request.algorithm == "nested_loop":
        return NativeRoute(inputs, "nested_loop", "named by the user")
    if request.left_only and by_extremes(request) and request.partitions is None:
        return NativeRoute(inputs, "extremes", because + _NATIVE_REASONS["extremes"])
    wants_cells = request.algorithm == "bins" or (way == "order" and request.partitions is not None)
    by_keys = _seconds_by_keys(inputs) if request.keys and not wants_cells else None
    if way not in ("bins", "order"):
        return NativeRoute(inputs, way, because + _NATIVE_REASONS[way], seconds=by_keys)
    row, joins = load_profile().shuffle_row.seconds, _joins_of_cells(request)
    keys = NativeRoute(inputs, "keys", because + _NATIVE_REASONS["keys"], seconds=by_keys)
    if by_keys is not None and by_keys <= sum(s.usable for s in inputs.statistics) * row * EXPLODED_ROW * joins:
        return keys  # a row is in at least one cell, so that cells cannot cost less
    cells: BinCells | OrderCells = bin_cells(inputs) if way == "bins" else order_cells(inputs)
    rows, seconds = _rows_and_seconds(inputs, cells)
    if by_keys is not None and by_keys <= (seconds + rows * row * (EXPLODED_ROW - 1)) * joins:
        return keys
    return NativeRoute(inputs, way, because + _NATIVE_REASONS[way], cells, seconds)


def _seconds_by_keys(inputs: Inputs) -> float:
    """One core's time for Spark's equality join on the keys, the relation as its condition."""
    rows = sum(s.usable for s in inputs.statistics)
    return rows * load_profile().shuffle_row.seconds + _pairs_of_keys(inputs) * candidate_cost(inputs)


def _rows_and_seconds(inputs: Inputs, cells: BinCells | OrderCells) -> tuple[float, float]:
    """Rows after they are copied to cells, and one core's time for a join by them."""
    if isinstance(cells, BinCells):
        rows, candidates = cells.bins.rows, cells.bins.candidates
    else:
        samples = [s.sample for s in inputs.statistics]
        rows, candidates = cells.rows(*samples), _pairs_of_keys(inputs) * cells.part(*samples)
    cost = candidate_cost(inputs) if isinstance(cells, BinCells) else CANDIDATE_COST
    return rows, rows * load_profile().shuffle_row.seconds + candidates * cost


def _pairs_of_keys(inputs: Inputs) -> float:
    return key_pairs(*(s.sample for s in inputs.statistics))


def _joins_of_cells(request: Request) -> int:
    """How many joins cells need: rows of several cells that no cell can decide alone are joined again."""
    undecided = (request.left_only or request.keeps_left) + request.keeps_right
    return 1 + undecided + (request.keep != "all" and request.keeps_left)


def index_route(inputs: Inputs) -> IndexRoute | None:
    """The route that forms no pairs, for questions about left rows; None for other requests."""
    request = inputs.request
    asked = request.left_only or request.keep != "all"
    return _index(inputs, with_rows=not request.left_only) if asked else None


def _index(inputs: Inputs, with_rows: bool = False) -> IndexRoute | None:
    """An index of all right rows, with their columns if asked, or else of those of each range; None if neither can."""
    if inputs.request.condition is not None or codes_obstacle(inputs) is not None:
        return None
    if _right_fits(inputs, with_rows):
        right, left = inputs.right.shown, inputs.left.shown
        reason = f"the {right} side fits the budget: {left} rows stream past an index of it, and no pair is formed"
        return IndexRoute(inputs, reason, seconds=_index_seconds(inputs))
    if with_rows or strategy(inputs.request.relation) != "bins":
        return None
    reason = "each range has an index of its right rows, left rows stream past it, and no pair is formed"
    return IndexRoute(inputs, reason, cells_of_indexes(inputs, sum(s.usable for s in inputs.statistics), INDEX_BYTES))


def cells_of_indexes(inputs: Inputs, rows: float, each: float) -> RangeCells:
    """Ranges whose rows take an `INDEX_ROOM`-th of the budget at `each` bytes, one for every core at least."""
    ranges = max(cores_of(inputs), ceil(rows * each * INDEX_ROOM / inputs.request.memory))
    return range_cells(inputs, min(ranges, MOST_RANGES))


def index_fits(inputs: Inputs, each: float, beside: float = 0) -> bool:
    """Whether an index of all right rows fits the budget at `each` bytes a row, with some bytes beside it."""
    return inputs.statistics[1].usable * each + beside <= inputs.request.memory


def _right_fits(inputs: Inputs, with_rows: bool = False) -> bool:
    """Whether an index of right rows, with the rows themselves if needed, fits a task's budget and can be collected.

    Rows that could fit are measured by a job, if planning has not measured them.
    """
    stats = inputs.statistics[1]
    each = INDEX_BYTES + 2 * (stats.row_bytes if with_rows else stats.key_bytes)
    read = inputs.right.frame if with_rows else bounds_only(inputs.right)
    fits = index_fits(inputs, each) and may_collect(read, stats.usable)
    if not with_rows or not fits:
        return fits
    texts = text_bytes(inputs.right) if stats.text_bytes is None else stats.text_bytes
    return index_fits(inputs, each, 2 * texts) and may_collect(read, stats.usable, texts)


def _index_seconds(inputs: Inputs) -> float:
    """One core's time for an index of the whole right side: left rows to Python and back, lookups, and the index.

    All cores wait while the driver reads right rows, and every worker sorts all of them.
    """
    profile, (left, right) = load_profile(), inputs.statistics
    row, depth = profile.python_to_jvm_row.seconds, log2(right.usable + 2)
    asked = left.rows * (2 * row + profile.probe.seconds * depth)
    made = right.usable * (SENT_ROW * row + profile.sort.seconds * depth)
    return INDEX_START + asked + made * cores_of(inputs)


def _ranges(inputs: Inputs) -> RangesRoute:
    """Ranges that fit the budget, or streamed ones if that takes too many tasks, and the cheapest operator for them."""
    request = inputs.request
    size = sum(s.usable * (s.row_bytes + OPERATOR_ROW_BYTES) for s in inputs.statistics)
    fitting = ceil(size * OPERATOR_ROOM / request.memory)
    name = request.route if request.route != "auto" else "in_memory" if fitting <= MOST_RANGES else "streaming"
    cores = cores_of(inputs)
    fewest = fitting if name == "in_memory" else size / STREAMED_RANGE_BYTES
    wanted = max(1, ceil(fewest / cores)) * cores  # no core waits for the last range
    cells = range_cells(inputs, min(wanted, MOST_RANGES))
    if request.algorithm in OPERATORS:
        return RangesRoute(inputs, name, request.algorithm, "named by the user", cells)
    prices = price_operators(request, inputs.statistics, cells.ranges)
    if prices is None:
        return RangesRoute(inputs, name, "forward_scan", "too few rows to price", cells)
    best, seconds = prices.best, _ranges_seconds(inputs, prices, cells.ranges)
    return RangesRoute(inputs, name, best.algorithm, prices.reason, cells, best.swapped, prices, seconds)


def cores_of(inputs: Inputs) -> int:
    """How many tasks the session runs at once."""
    return parallelism(inputs.left.frame.sparkSession)


def _ranges_seconds(inputs: Inputs, prices: Choice, ranges: int) -> float | None:
    """One core's time for the operators: rows shuffled, sorted, sent to Python, joined, and sent back."""
    if prices.best.seconds is None:
        return None
    profile, rows = load_profile(), sum(s.usable for s in inputs.statistics)
    each = profile.shuffle_row.seconds + profile.python_to_jvm_row.seconds + profile.sort.seconds * log2(rows + 2)
    back = prices.best.rows * ranges * profile.python_to_jvm_row.seconds
    return RANGES_START + rows * each + prices.best.seconds * ranges + back


def price_operators(request: Request, stats: tuple[SideStatistics, SideStatistics], ranges: int) -> Choice | None:
    """The prices of the five operators for one of `ranges` ranges; None if there is nothing to price.

    Sweeps are followed over samples of one range, where the samples have enough rows of it.
    """
    from dovetail.joins.interval.cost import FrameMemory, choose  # counts need no prices
    from dovetail.joins.interval.operators.spec import Shares  # as above

    lengths = [s.mean_length for s in stats if s.usable and isfinite(s.mean_length)]
    finite = all(isfinite(s.low) and isfinite(s.high) for s in stats)
    if not all(s.usable for s in stats) or not finite or not lengths:
        return None
    mean = max(sum(lengths) / len(lengths), 1e-300)
    scale = 1.0 if mean >= 4 and all(float(s.low).is_integer() for s in stats) else 1000.0 / mean
    shares = Shares.within(request.memory)
    try:
        left, right = (_summary(s, scale).split_into(ranges) for s in stats)
        held, ordered = (
            FrameMemory.fitting(size, left.tuple_bytes, right.tuple_bytes)
            for size in (shares.active(0), shares.blocking(0))
        )
        names = tuple(sorted(request.relation.names))
        return choose(
            left, right, held, relations=names, strict=request.relation.strict, unit_costs=load_profile(),
            samples=_samples_of_a_range(stats, ranges), partitioning=ordered,
        )  # fmt: skip
    except (PlanError, UnsupportedError, ArithmeticError, ValueError):
        return None  # a price is advice: inputs beyond the models' assumptions are joined without one


def _summary(s: SideStatistics, scale: float) -> IntervalStatistics:
    from dovetail.joins.interval.cost import IntervalStatistics  # counts need no prices

    bounds = s.low, s.last_start, s.high, s.mean_length, s.max_length
    return IntervalStatistics.measured(s.usable, *bounds, _tuple_bytes(s), instants_per_unit=scale)


def _tuple_bytes(s: SideStatistics) -> float:
    """Bytes of a row in an operator: its columns, codes of its bounds, and the bookkeeping of a row."""
    from dovetail.joins.interval.operators.spec import OVERHEAD_BYTES  # counts need no prices

    return s.row_bytes + 16 + OVERHEAD_BYTES


def _with_longest(s: SideStatistics) -> tuple[F64, F64]:
    """The sample with a row as long as the longest, in the middle, where the sample missed it: one row makes a sweep
    read ahead to its end."""
    start, end = s.sample.start, s.sample.end
    if len(start) and s.max_length > MISSED_LENGTH * float((end - start).max()):
        first = max(s.low, (s.low + s.high - s.max_length) / 2)
        start, end = np.append(start, first), np.append(end, first + s.max_length)
    return start, end


def _samples_of_a_range(
    stats: tuple[SideStatistics, SideStatistics], ranges: int
) -> tuple[SampledSide, SampledSide] | None:
    """The sampled rows that reach the middle range of `ranges`; None if they are too few to follow a sweep."""
    from dovetail.joins.interval.cost.sampled import SampledSide  # counts need no prices

    starts = np.sort(np.concatenate([s.sample.start for s in stats]))
    if not len(starts):
        return None
    cuts = np.quantile(starts, [ranges // 2 / ranges, (ranges // 2 + 1) / ranges])
    found = []
    for s in stats:
        start, end = _with_longest(s)
        if ranges > 1:
            inside = (end > cuts[0]) & (start < cuts[1])
            start, end = np.maximum(start[inside], cuts[0]), end[inside]
        found.append(SampledSide.of(start, end, s.sample.weight * len(start), _tuple_bytes(s)))
    left, right = found
    enough = min(len(left.start), len(right.start)) and len(left.start) + len(right.start) >= FEWEST_SAMPLED
    return (left, right) if enough else None
