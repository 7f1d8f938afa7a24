"""A planned interval join: the route that was chosen and why, the DataFrame it gives, and what it measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.answers import Kind
from dovetail.joins.interval.plan.answers import IndexMeeting, shipped_answer
from dovetail.joins.interval.plan.cells import BinCells
from dovetail.joins.interval.plan.compose import CellsJoin
from dovetail.joins.interval.plan.measured import native_metrics
from dovetail.joins.interval.plan.native import SparkMeeting, as_column
from dovetail.joins.interval.plan.partitioned import PartitionedMeeting, RangeCells
from dovetail.joins.interval.plan.points import points_from_hint
from dovetail.joins.interval.plan.route import INDEX, Route, choose_route
from dovetail.joins.interval.plan.sides import RESERVED, Side, prepare, quoted, unquoted
from dovetail.joins.interval.plan.statistics import SideStatistics, collect_statistics
from dovetail.joins.interval.plan.write import Target, new_target, task_metrics, write_cells, write_frame
from dovetail.joins.interval.request import Request
from dovetail.request.columns import wanted_columns
from dovetail.spark.arrow import arrow_type
from dovetail.spark.connect import is_connect
from dovetail.spark.metrics import MetricsSink


@dataclass(frozen=True, slots=True)
class IntervalPlan:
    """A join that is planned but not run. `frame` gives the lazy DataFrame, `write_parquet` runs it to files.

    >>> rows = spark.createDataFrame([(0, 5), (3, 8)], "start int, end int")
    >>> dovetail.plan_interval_join(rows, rows).frame().count()
    4
    """

    asked: Request
    request: Request  # the same, with its sides exchanged where right rows keep one match each
    left: Side
    right: Side
    statistics: tuple[SideStatistics, SideStatistics]
    route: Route
    sink: MetricsSink

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        left, right = self.checked_sides()
        wanted = output_columns(left, right, self.request)
        if self.request.columns is not None and self.request.condition is None:
            # Spark sees through its own joins, but not into our operators: they are given no column in vain.
            left, right = (_pruned(side, wanted) for side in (left, right))
        return project(self.whole(left, right), left, right, self.request)

    def checked_sides(self) -> tuple[Side, Side]:
        """Both sides with `invalid` applied, and without rows that can neither match nor appear."""
        invalid = self.request.invalid
        return self.left.checked(invalid), self.right.checked(invalid)

    def metrics(self) -> Metrics:
        """What the last run measured: rows of each side as planned, rows placed in its cells, replication, and so on.

        The operators and indexes count for themselves; of the native route Spark's own records tell. Before a run
        there are the rows alone.
        """
        metrics = self._planned()
        if self.route.name == "native":
            metrics.include(native_metrics(self.left.frame.sparkSession, self.left, self.right))
        else:
            metrics.merge(self.sink.collect())
        return metrics.exchanged("left", "right") if self.left.exchanged else metrics

    def _planned(self) -> Metrics:
        planned = Metrics()
        for side, stats in zip((self.left, self.right), self.statistics, strict=True):
            planned.add("rows", stats.usable, side=side.name)
        planned.ratio("replication", over="placed", under="rows")
        return Metrics().include(planned)

    def whole(self, left: Side, right: Side) -> DataFrame:
        """The answer over checked sides, with columns of ours still in it."""
        request, route = self.request, self.route
        if route.algorithm == INDEX and not isinstance(route.cells, RangeCells):
            kind: Kind = request.how if request.left_only else request.keep  # type: ignore[assignment]  # checked names
            return shipped_answer(left, right, kind, request.relation, request.memory, self.sink, request.how == "left")
        if not isinstance(route.cells, RangeCells):
            spark = SparkMeeting(request.relation, request.condition, route.cells)
            return CellsJoin(left, right, route.cells, spark).answer(request.how, request.keep)
        meeting: PartitionedMeeting | IndexMeeting
        if route.algorithm == INDEX:
            meeting = IndexMeeting(request.relation, request.memory, route.cells, self.sink)
        else:
            meeting = PartitionedMeeting(
                request.relation, route.algorithm, request.memory, route.cells, self.sink, route.swapped
            )
        whole = CellsJoin(left, right, route.cells, meeting).answer(request.how, request.keep)
        return whole if request.condition is None else whole.where(as_column(request.condition))

    def write_parquet(self, path: str, *, mode: str = "error", compression: str = "snappy") -> Metrics:
        """Write the answer as Parquet files, made by the tasks that compute it, all or nothing; gives the metrics.

        An inner join runs on the operators, which write what they find without handing rows back to Spark. `mode` is
        "error" (the place must be free) or "overwrite".
        """
        left, right = self.checked_sides()
        columns = output_columns(left, right, self.request)
        frame = self.frame()
        fields = [pa.field(f.name, arrow_type(f.dataType)) for f in frame.schema.fields]
        described = {"org.apache.spark.sql.parquet.row.metadata": frame.schema.json()}  # collations, for Spark's reader
        target = new_target(path, columns, pa.schema(fields, described), compression, mode)
        ways = self._to_write()
        files = write_frame(frame, target) if ways is None else self._write_cells(left, right, ways, target)
        if is_connect(frame):  # what tasks counted does not come back; the answer is written all the same
            return task_metrics(files, self._planned())
        return task_metrics(files, self.metrics() if ways is None else self._planned().merge(self.sink.collect()))

    def _to_write(self) -> Route | None:
        """The operators' route for an inner join that one can run; None where the answer comes from Spark."""
        request = self.request
        shared = any(key.shared for key in request.keys)
        if request.how != "inner" or request.keep != "all" or request.condition is not None or shared:
            return None
        if isinstance(self.route.cells, RangeCells):
            return self.route
        if request.algorithm != "auto" or request.route != "auto":
            return None
        forced = replace(request, route="in_memory")
        route = choose_route(forced, self.left, self.right, self.statistics, self.left.frame.sparkSession)
        return route if isinstance(route.cells, RangeCells) else None

    def _write_cells(self, left: Side, right: Side, route: Route, target: Target) -> list[tuple[str, int]]:
        cells = route.cells
        assert isinstance(cells, RangeCells), "checked by _to_write"  # noqa: S101
        request = self.request
        left, right = (_pruned(side, target.columns) for side in (left, right))
        rows, others = (cells.add(s, s.frame, ("cell",)) for s in (left, right))
        meeting = PartitionedMeeting(request.relation, route.algorithm, request.memory, cells, self.sink, route.swapped)
        task = meeting.task(left, rows, right, others, "inner", once=True)
        return write_cells(meeting.placed(left, rows, right, others), task, self.sink, target)

    def explain(self) -> str:
        """Route, algorithm, placement, predictions, and the prices of the losers."""
        request, route = self.asked, self.route
        keys = ", ".join(f"{k.left}={k.right}" for k in request.keys) or "none"
        lines = [
            f"IntervalJoin: {request.relation}, how={request.how}, keys={keys}, keep={request.keep}, "
            f"memory={format_bytes(request.memory)} per task",
            f"route: {route.name}, algorithm: {route.algorithm} ({route.reason})",
        ]
        sides = list(zip((self.left, self.right), self.statistics, strict=True))
        for side, stats in sides[::-1] if self.left.exchanged else sides:
            lines.append(
                f"{side.shown}: {stats.rows:,} rows, {stats.usable:,} usable, {side.bound_type.simpleString()} bounds "
                f"closed {side.closed}, mean length {stats.mean_length:.6g}, longest {stats.max_length:.6g}"
            )
        return "\n".join([*lines, *self._placement(), *self._prices()])

    def _placement(self) -> list[str]:
        cells = self.route.cells
        if isinstance(cells, BinCells):
            return [f"bins: {cells.bins.explain()}"]
        if isinstance(cells, RangeCells):
            schemes = " x ".join(cells.scheme(side) for side in (self.left, self.right))
            return [f"ranges: {cells.ranges} ({schemes}), split points {_some(cells.points)}"]
        return []

    def _prices(self) -> list[str]:
        lines = []
        if self.route.native_seconds is not None:
            lines.append(f"native price: {self.route.native_seconds:.3g} s of one core")
        if self.route.operators_seconds is not None:
            lines.append(
                f"operators' price: {self.route.operators_seconds:.3g} s of one core, rows to Python and back included"
            )
        if self.route.choice is not None:
            lines.append("operators, priced for one range:")
            lines += [f"  {line}" for line in self.route.choice.explain().splitlines()]
        return lines


def _pruned(side: Side, columns: tuple[str, ...]) -> Side:
    """The side with only the columns that are wanted or joined on."""
    needed = {unquoted(name) for name in (side.start, side.end, *side.keys)} | set(columns)
    chosen = [c for c in side.frame.columns if c in needed or c.startswith(RESERVED)]
    return replace(side, frame=side.frame.select(*map(quoted, chosen)))


def _some(points: tuple[object, ...]) -> str:
    shown = ", ".join(str(point) for point in points[:8])
    return f"[{shown}{', ...' if len(points) > 8 else ''}]"


def make_plan(left: DataFrame, right: DataFrame, request: Request) -> IntervalPlan:
    """The plan of a request over two DataFrames; runs two small jobs to learn their shape."""
    for name, frame in (("left", left), ("right", right)):
        if frame.isStreaming:
            raise UnsupportedError(
                f"{name} input is a stream; an interval join needs finite inputs (use foreachBatch)", argument=name
            )
    sides = prepare(left, right, request)
    wanted = output_columns(*sides, request)
    if request.split_points is not None:
        points_from_hint(sides[0].bound_type, request.split_points)
    if request.condition is not None:
        _check_condition(*sides, request)
    asked = request
    if request.keep != "all" and request.how == "right":  # right rows keep one match each: the sides change places
        request = request.mirrored(wanted)
        first, second = prepare(right, left, request)
        sides = replace(first, exchanged=True), replace(second, exchanged=True)
    statistics = collect_statistics(*sides, request.invalid)
    route = choose_route(request, *sides, statistics, left.sparkSession)
    return IntervalPlan(asked, request, *sides, statistics, route, MetricsSink(left.sparkSession))


def _check_condition(left: Side, right: Side, request: Request) -> None:
    """Lets Spark resolve the condition over the columns of a pair, so that a wrong one fails before any job."""
    pair = left.frame.crossJoin(right.frame)
    try:
        kind = pair.select(as_column(request.condition).alias("c")).schema["c"].dataType
    except AnalysisException as problem:
        raise PlanError(
            f"condition={request.condition!r} does not fit the result's columns {[*left.payload, *right.payload]}; "
            f"write it over these names. Spark says: {problem}",
            argument="condition",
        ) from problem
    if not isinstance(kind, BooleanType):
        raise PlanError(
            f"condition={request.condition!r} is of type {kind.simpleString()}; it must be true or false",
            argument="condition",
        )


def output_columns(left: Side, right: Side, request: Request) -> tuple[str, ...]:
    """The columns of the answer, in order; a `PlanError` for a name that it does not have."""
    every = left.payload if request.left_only else (*left.payload, *right.payload)
    return wanted_columns(request.columns, every)


def project(frame: DataFrame, left: Side, right: Side, request: Request) -> DataFrame:
    """The frame with just the columns of the answer; a shared key takes the value of the side that has one."""
    prefix = f"{RESERVED}shared_"
    shared = {name.removeprefix(prefix).lower(): name for name in right.frame.columns if name.startswith(prefix)}

    def column(name: str) -> str:
        if name.lower() in shared and request.how in ("right", "full"):
            values = [quoted(name), quoted(shared[name.lower()])]
            first, second = values if request.how == "full" else values[::-1]  # equal keys may look different
            return f"coalesce({first}, {second}) as {quoted(name)}"
        return quoted(name)

    return frame.selectExpr(*map(column, output_columns(left, right, request)))
