"""Functions of two sets, and pieces of one, by the index and the joins of interval joins; no pair is formed in vain.

* Coverage: counts and covered lengths from an index of right rows (`coverage`). Types that have none are counted by
  Spark, and joined with the right rows, merged by a sweep.
* Difference: left rows joined with the gaps of the right ones; every pair is a piece of the result.
* Complement within many ranges: gaps joined with the ranges; every pair is a piece of the result.
* Disjoint pieces: rows joined with the pieces between all bounds of their key; every pair is a piece of a row.
Reference: docs/algorithms/sets.md, 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.joins.interval.api import IntervalPlan, make_plan
from dovetail.joins.interval.index.answers import COUNT
from dovetail.joins.interval.plan.choose import choose_counts, native_route
from dovetail.joins.interval.plan.sides import Sides, prepare
from dovetail.joins.interval.plan.statistics import Inputs
from dovetail.joins.interval.request import JoinOptions
from dovetail.joins.interval.request import Request as PairRequest
from dovetail.joins.sets.cover_index import COVERED
from dovetail.joins.sets.plan.coverage import covered_rows
from dovetail.joins.sets.plan.cuts import Cuts, choose_cuts
from dovetail.joins.sets.plan.depth import depths
from dovetail.joins.sets.plan.rows import (
    Rows,
    aggregate_columns,
    check_differences,
    check_free,
    check_measured,
    make_rows,
    set_bounds,
)
from dovetail.joins.sets.plan.scale import Scale
from dovetail.joins.sets.plan.sweep import N_MERGED, gaps, gaps_of_keys, merged, with_ends
from dovetail.joins.sets.request import Request
from dovetail.spark.frames import quoted, unquoted
from dovetail.spark.inputs import check_input, check_texts, common_keys, common_type, is_text
from dovetail.spark.task_errors import translate_task_errors

FRACTION = "covered_fraction"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both inputs with their bounds as numbers of one type, and the request."""

    left: Rows
    right: Rows
    request: PairRequest

    @property
    def of_right(self) -> Request:
        """The request of a sweep over the right rows."""
        asked, keys = self.request, tuple(key.right for key in self.request.keys)
        closed = asked.relation.right_closed
        return Request(asked.right_interval, keys, closed, asked.invalid, asked.memory, asked.partitions)


def prepare_pair(left: DataFrame, right: DataFrame, request: PairRequest, what: str) -> Pair:
    """Both inputs, checked against the request; no job starts."""
    translate_task_errors()
    for name, frame in (("left", left), ("right", right)):
        check_input(name, frame, what)
    one, *mine = set_bounds("left", left, request.left_interval, "left_interval")
    other, *theirs = set_bounds("right", right, request.right_interval, "right_interval")
    if is_text(one) or is_text(other):
        check_texts("interval bounds", [one, other], "left_interval")
    kind = common_type(left, "interval bounds", one, other)
    keys = common_keys(left, right, request.keys, "on")
    closed, invalid = request.relation.left_closed, request.invalid
    return Pair(
        make_rows("left", left, (kind, mine[0], mine[1]), [key.left for key in keys], closed, invalid),
        make_rows("right", right, (kind, theirs[0], theirs[1]), [key.right for key in keys], closed, invalid),
        request,
    )


def coverage(pair: Pair) -> tuple[DataFrame, Inputs, list[str]]:
    """Left rows with count, covered length and fraction; the inputs of the route that gives them, and its lines."""
    check_free(pair.left, (COUNT, COVERED, FRACTION))
    check_measured(pair.left.scale.kind, "interval_coverage", "left_interval")
    check_differences(pair.left.scale.kind, "interval_coverage", "left_interval")
    request = replace(pair.request, how="left_anti")  # every left row is kept, and right rows are not
    sides = prepare(pair.left.source, pair.right.source, request)
    inputs = Inputs.of(Sides(request, *sides))
    found = covered_rows(inputs)
    if found is not None:
        return _measured(pair, found[0]), inputs, found[1]
    counting = choose_counts(inputs)
    counted = counting.counts(*inputs.checked()).select(*map(quoted, pair.left.columns), COUNT)
    cuts = choose_cuts(pair.right, pair.of_right, [pair.right.start])
    union = merged(pair.right, pair.of_right, cuts).drop(N_MERGED)
    # The statistics of all right rows serve for their union: it has no more rows, and begins where they begin.
    joined = Inputs(request, *prepare(counted, union, request), inputs.statistics)
    steps = [f"counts: route {counting.name}, algorithm: {counting.algorithm} ({counting.reason})"]
    steps += [cuts.explain(), *counting.explain()]
    return _measured(pair, _covered(pair, joined)), inputs, steps


def _covered(pair: Pair, inputs: Inputs) -> DataFrame:
    """Left rows with what the disjoint right rows cover of them, in units of the bounds' numbers."""
    left, right = inputs.checked()
    scale = Scale(inputs.left.bound_type)
    number = scale.number  # times of day are joined as decimals
    low = f"greatest({number(left.start)}, {number(right.start)})"
    shared = f"least({number(left.end)}, {number(right.end)}) - {low}"
    if scale.floating:
        shared = f"nanvl({shared}, 0D)"  # both bounds are the same infinity
    total = f"coalesce(sum(if({right.start} is null, null, {shared})), 0)"
    return native_route(inputs).aggregate(left, right, total, COVERED)


def _measured(pair: Pair, found: DataFrame) -> DataFrame:
    """The left columns, the count, the covered length in its unit, and its share of the row."""
    scale, rows = pair.left.scale, pair.left
    covered, kind = COVERED, found.schema[COVERED].dataType
    if isinstance(scale.kind, T.DecimalType):
        digits = scale.kind.scale
        if isinstance(kind, T.LongType):  # units of the last digit
            unit = f"cast('{Decimal(1).scaleb(-digits):f}' as decimal({max(1, digits)}, {digits}))"
            covered = f"cast({covered} as decimal(19, 0)) * {unit}"  # of 38 digits at most: it stays exact
        covered = f"cast({covered} as decimal(38, {digits}))"
    elif isinstance(scale.kind, T.TimeType) and isinstance(kind, T.DecimalType):
        covered = f"{covered} * 1000000"
    length = scale.length(covered)
    start, end = _written(rows)
    own = scale.length(f"{scale.number(end)} - {scale.number(start)}")
    own = f"cast({own} as double)"
    if isinstance(scale.kind, T.LongType):  # a length may have more than 64 bits
        own = f"coalesce(cast(try_subtract({end}, {start}) as double), cast({end} as double) - cast({start} as double))"
    share = f"cast({length} as double) / {own}"
    if scale.floating:  # of a row without an end, an endless part has no share
        share = f"nanvl({share}, null)"
    share = f"if({scale.number(start)} < {scale.number(end)}, {share}, null)"
    return found.selectExpr(*map(quoted, rows.columns), COUNT, f"{length} as {COVERED}", f"{share} as {FRACTION}")


def _written(rows: Rows) -> tuple[str, str]:
    """SQL: the bounds of the rows as their input has them."""
    if len(rows.named) == 2:
        return quoted(rows.named[0]), quoted(rows.named[1])
    first, last = rows.frame.schema[rows.named[0]].dataType.names  # type: ignore[attr-defined]  # a struct of two
    return f"{quoted(rows.named[0])}.{quoted(first)}", f"{quoted(rows.named[0])}.{quoted(last)}"


def subtracted(pair: Pair) -> tuple[DataFrame, IntervalPlan, Cuts]:
    """The pieces of left rows that no right row covers, and the join and the sweep that give them."""
    left, right = pair.left, pair.right
    limits = left.usable().groupBy(*left.keys).agg(F.min(left.start), F.max(left.end))
    cuts = choose_cuts(right, pair.of_right, [right.start])
    found = gaps_of_keys(right, cuts, limits)
    pieces, plan = _cut_by(left, found, right, pair.request)
    whole = _kept_whole(pair)
    return pieces if whole is None else pieces.union(whole), plan, cuts


def _kept_whole(pair: Pair) -> DataFrame | None:
    """Left rows that no piece stands for: those with a null key, and points that no right row holds."""
    left, closed = pair.left, pair.request.relation.left_closed
    keyless = " or ".join(f"{key} is null" for key in left.keys)
    no_key = replace(left, keys=()).usable().where(keyless) if keyless else None
    columns = left.with_bounds(left.start, left.end)
    none = None if no_key is None else no_key.selectExpr(*columns)
    if closed != "both":
        return none
    start, end = _written(left)
    points = left.usable().where(f"{left.start} = {left.end}").select(*map(quoted, left.columns))
    alone = make_plan(points, pair.right.source, replace(pair.request, how="left_anti")).frame()
    alone = alone.selectExpr(*left.with_bounds(left.scale.number(start), left.scale.number(end)))
    return alone if none is None else none.union(alone)


def gaps_of_ranges(rows: Rows, cuts: Cuts, limits: DataFrame, request: Request) -> tuple[DataFrame, IntervalPlan]:
    """The gaps within ranges, any number of them a key, which are keys and two numbers; and the join that cuts them."""
    n = len(rows.keys)
    gap, limit = ([*(f"{of}_key_{at}" for at in range(n)), f"{of}_start", f"{of}_end"] for of in ("gap", "limit"))
    options = JoinOptions(
        left_interval=gap[n:],
        right_interval=limit[n:],
        on=list(zip(gap[:n], limit[:n], strict=True)),
        closed="neither",
        invalid="null",
        memory=request.memory,
    )
    plan = make_plan(gaps(rows, cuts).toDF(*gap), limits.toDF(*limit), options.request())
    cut = f"greatest({gap[n]}, {limit[n]})", f"least({gap[n + 1]}, {limit[n + 1]})"
    return with_ends(rows, limits, plan.frame().selectExpr(*limit[:n], *cut)), plan


def disjoint(rows: Rows, request: Request, cuts: Cuts) -> tuple[DataFrame, IntervalPlan]:
    """A row for each piece of each row, or for each piece with aggregates of the rows that hold it; and the join."""
    found = depths(rows, cuts, every_bound=True).where(f"{rows.start} < {rows.end}")
    found = found.selectExpr(*rows.keys, rows.start, rows.end)
    keys = [unquoted(key) for key in rows.keys]
    options = JoinOptions(left_interval=request.interval, on=list(keys), invalid=request.invalid, memory=request.memory)
    more = aggregate_columns(rows, request.aggregates, [*keys, *rows.named, N_MERGED])
    pieces, plan = _cut_by(rows, found, rows, options.request())
    if request.aggregates is None:
        return pieces, plan
    each = pieces.groupBy(*rows.keys, *map(quoted, rows.named)).agg(F.count("*").alias(N_MERGED), *more)
    order = [*rows.keys, *map(quoted, rows.named), N_MERGED]
    return each.select(*order, *map(quoted, each.columns[len(order) :])), plan


def _cut_by(rows: Rows, found: DataFrame, by: Rows, request: PairRequest) -> tuple[DataFrame, IntervalPlan]:
    """The common parts, longer than zero, of rows and ranges, which have the keys and the numbers of `by`."""
    names = _free_names(rows, [*(f"key_{number}" for number in range(len(rows.keys))), "low", "high"])
    bounds = [by.scale.bound(number) for number in (by.start, by.end)]
    ranges = found.selectExpr(*(f"{e} as {n}" for e, n in zip([*by.keys, *bounds], names, strict=True)))
    options = JoinOptions(
        left_interval=request.left_interval,
        right_interval=names[-2:],
        on=[(unquoted(key), name) for key, name in zip(rows.keys, names, strict=False)],
        closed="neither",
        invalid=request.invalid,
        memory=request.memory,
        partitions=request.partitions,
    )
    plan = make_plan(rows.source, ranges, options.request())
    number, (start, end) = rows.scale.number, _written(rows)
    low = f"greatest({number(start)}, {number(names[-2])})"
    high = f"least({number(end)}, {number(names[-1])})"
    return plan.frame().selectExpr(*rows.with_bounds(low, high)), plan


def _free_names(rows: Rows, wanted: list[str]) -> list[str]:
    taken, mark = {column.lower() for column in rows.columns}, "piece_"
    while any(f"{mark}{name}" in taken for name in wanted):
        mark += "_"
    return [f"{mark}{name}" for name in wanted]


def explained(plan: IntervalPlan) -> list[str]:
    """The lines of an interval join below another plan."""
    return [f"  {line}" for line in plan.explain().splitlines()]
