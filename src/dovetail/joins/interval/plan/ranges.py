"""The ranges route: rows go to the tasks of the time ranges that they reach, and an operator joins them there.

Split points cut time into ranges. SPLIT sends a row to every range that it reaches, PROJECT to the range of its start.
Reference: Carman 2020, 3.2, 6.2 and table 6.3 with the sides exchanged for inverses; docs/algorithms/interval.md, 1.4.

A split point is a number that stands for a bound exactly: days for dates, microseconds for times and intervals. So
Spark, which places rows, and the tasks never disagree about a time zone.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.exchange.delivery import Columns, Places
from dovetail.errors import PlanError
from dovetail.joins.interval.plan.cells import CELL_COLUMNS, MISS_CELLS
from dovetail.joins.interval.plan.route import Route
from dovetail.joins.interval.plan.sides import Side, as_column
from dovetail.joins.interval.plan.statistics import Inputs
from dovetail.joins.interval.relation import Relation, SideColumns
from dovetail.spark.frames import arrow_type, quoted, unquoted
from dovetail.spark.hosts.batch import Placed, exchange, exchange_sorted, nullable, task_frame
from dovetail.spark.inputs import FLOATS

if TYPE_CHECKING:
    from dovetail.joins.interval.cell_join import CellJoin
    from dovetail.joins.interval.cost import Choice

SPLIT_LEFT = frozenset({"covers", "overlaps"})
SPLIT_RIGHT = frozenset({"covered_by", "overlapped_by"})
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INTEGERS: dict[type[T.DataType], int] = {
    T.ByteType: 2**7, T.ShortType: 2**15, T.IntegerType: 2**31, T.LongType: 2**63,
}  # fmt: skip
_LARGEST_DOUBLE = int(sys.float_info.max)
_MICROS = (T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType)


@dataclass(frozen=True, slots=True)
class RangesRoute(Route):
    """An interval join by one of the operators, one task a range.

    `name` is in_memory, where ranges are cut to fit the budget, or streaming, where ranges may be larger and operators
    spill. `prices` are those of the operators for one range.
    """

    inputs: Inputs
    name: str
    algorithm: str
    reason: str
    cells: RangeCells
    swapped: bool = False
    prices: Choice | None = None
    seconds: float | None = None

    def answer(self, left: Side, right: Side) -> DataFrame:
        """The joined rows of checked sides."""
        request = self.inputs.request
        whole = self._join(left, right).answer(request.how, request.keep)
        return whole if request.condition is None else whole.where(as_column(request.condition))

    def inner_tasks(self, left: Side, right: Side) -> tuple[DataFrame, CellJoin]:
        """Both sides placed for an inner join, one partition a range, and the specification of a task."""
        rows, others = (self.cells.add(side, side.frame, ("cell",)) for side in (left, right))
        return self._tasks(left, rows, right, others, "inner", once=True)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [self.cells.explain(self.inputs.left, self.inputs.right)]

    def match(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool) -> DataFrame:
        """The result of `rows.join(others, ..., how)` by range; with `once`, pairs in their first range only."""
        from dovetail.joins.interval.cell_join import join_cell  # counts need no operators

        placed, task = self._tasks(first, rows, second, others, how, once)
        fields = [rows.schema[name] for name in task.left.columns]
        fields += [] if task.semi else [others.schema[name] for name in task.right.columns]
        return task_frame(placed, join_cell, task, self.inputs.sink, nullable(fields))

    def _tasks(
        self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool
    ) -> tuple[DataFrame, CellJoin]:
        """Both sides, each range in its own partition, sorted by (keys, start); and the task's specification."""
        from dovetail.joins.interval.cell_join import CellJoin  # as above

        request, exchanged = self.inputs.request, first.name == "right"
        pairs = list(zip(_sorted_by(first), _sorted_by(second), strict=True))
        inner = how == "inner"  # the range of a row is not asked for
        sides = (in_ranges(first, rows, inner), in_ranges(second, others, inner))
        schemas = None
        if request.keys:  # Spark sorts them, because codes of keys have no common order
            placed, places = exchange(*sides, self.cells.ranges, pairs)
            placed = placed.sortWithinPartitions(*places.paired[:-1])
        else:
            placed, schemas = exchange_sorted(*sides, self.cells.ranges, pairs[0], request.memory)
            mine, theirs = ({name: name for name in side.columns} for side in sides)
            places = Places(mine, theirs)
        task = CellJoin(
            self.algorithm,
            request.relation.swapped() if exchanged else request.relation,
            how,
            side_columns(first, places.left),
            side_columns(second, places.right),
            request.memory,
            places.paired[: len(request.keys)],
            once and self.cells.both_split,
            as_arrow(first.bound_type, self.cells.points),
            self.swapped != exchanged,
            schemas,
        )
        return placed, task


def _sorted_by(side: Side) -> list[str]:
    return [unquoted(name) for name in (*side.keys, side.start, side.end)]


@dataclass(frozen=True, slots=True)
class RangeCells:
    """The ranges that rows go to; columns added as for bins: `cell`, `in` (the row starts there), `n`."""

    points: tuple[Any, ...]
    relation: Relation

    @property
    def ranges(self) -> int:
        """How many ranges the split points make."""
        return len(self.points) + 1

    @property
    def both_split(self) -> bool:
        """Whether both sides are SPLIT, so that a pair may share several ranges."""
        return not self.relation.names <= SPLIT_LEFT and not self.relation.names <= SPLIT_RIGHT

    def scheme(self, side: Side) -> str:
        """SPLIT or PROJECT, by the strategy table."""
        projected = SPLIT_RIGHT if side.name == "left" else SPLIT_LEFT
        return "PROJECT" if self.relation.names <= projected else "SPLIT"

    def explain(self, left: Side, right: Side) -> str:
        """The ranges in one line: how many, how rows of each side are placed, and where they are cut."""
        shown = ", ".join(str(point) for point in self.points[:8])
        more = ", ..." if len(self.points) > 8 else ""
        return f"ranges: {self.ranges} ({self.scheme(left)} x {self.scheme(right)}), split points [{shown}{more}]"

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = CELL_COLUMNS) -> DataFrame:
        """The frame with a row for every range that a row goes to; rows that cannot match go to any one range."""
        ok = side.usable if side.kept else "true"
        begin = self._range(side, side.start, after=False)
        end = begin
        if self.scheme(side) == "SPLIT":
            end = self._range(side, side.end, after=side.closed in ("left", "neither"))
        anywhere = F.expr(f"pmod(xxhash64({side.start}, {side.end}), {min(self.ranges, MISS_CELLS)})").cast("int")
        first, last, cell = (side.own(what) for what in ("first", "last", "cell"))
        ranges = [F.when(F.expr(ok), place).otherwise(anywhere) for place in (begin, end)]
        placed = frame.select("*", ranges[0].alias(first), ranges[1].alias(last))
        placed = placed.selectExpr("*", f"explode(sequence({first}, {last})) as {cell}")
        ours = {"cell": cell, "in": f"{cell} = {first}", "n": f"cast({last} - {first} + 1 as bigint)"}
        return placed.selectExpr(*map(quoted, frame.columns), *(f"{ours[what]} as {side.own(what)}" for what in keep))

    def _range(self, side: Side, bound: str, after: bool) -> Column:
        """The range of a bound: how many split points it has reached, or passed if `after`."""
        value = F.expr(bound)

        def search(low: int, high: int) -> Column:
            if low == high:
                return F.lit(low)
            middle = (low + high) // 2
            point = as_literal(side.bound_type, self.points[middle])
            reached = value > point if after else value >= point
            return F.when(reached, search(middle + 1, high)).otherwise(search(low, middle))

        return search(0, len(self.points))


def range_cells(inputs: Inputs, wanted: int) -> RangeCells:
    """The user's split points, or quantiles of the starts of both sides that make `wanted` ranges."""
    request, kind, stats = inputs.request, inputs.left.bound_type, inputs.statistics
    if request.split_points is not None:
        return RangeCells(points_from_hint(kind, request.split_points), request.relation)
    starts = np.concatenate([s.sample.start for s in stats])
    weights = np.concatenate([np.full(len(s.sample.start), s.sample.weight) for s in stats])
    ranges = request.partitions or wanted
    if not len(starts) or ranges == 1:
        return RangeCells((), request.relation)
    order = np.argsort(starts, kind="stable")
    reached = np.cumsum(weights[order])
    aims = reached[-1] * np.arange(1, ranges) / ranges
    chosen = starts[order][np.minimum(np.searchsorted(reached, aims), len(starts) - 1)]
    return RangeCells(points_from_positions(kind, chosen), request.relation)


def side_columns(side: Side, columns: Columns) -> SideColumns:
    """The description of one side's columns, at these positions, for tasks."""
    keys = tuple(unquoted(key) for key in side.keys)
    return SideColumns(columns, unquoted(side.start), unquoted(side.end), keys, side.closed)


def in_ranges(side: Side, rows: DataFrame, inner: bool = False) -> Placed:
    """Rows of a side that have a column with their range; tasks of inner joins get no columns of cells."""
    cells = [side.own(what) for what in CELL_COLUMNS] if inner else []
    return Placed(rows, side.own("cell"), [name for name in rows.columns if name not in cells])


def points_from_positions(kind: T.DataType, positions: npt.NDArray[np.float64]) -> tuple[Any, ...]:
    """Distinct points at about these positions (positions as `Side.position` makes them)."""
    finite = positions[np.isfinite(positions)]
    return tuple(sorted({_at(kind, float(position)) for position in finite}))


def _at(kind: T.DataType, position: float) -> Any:
    if isinstance(kind, _MICROS):
        return int(position * 1e6)
    if isinstance(kind, T.DateType):
        return int(position)
    if isinstance(kind, T.DecimalType):
        return Decimal(repr(position)).quantize(Decimal(1).scaleb(-kind.scale), ROUND_FLOOR)
    most = _INTEGERS.get(type(kind))
    if most is None:
        return float(np.float32(position)) if isinstance(kind, T.FloatType) else position
    return max(-most, min(most - 1, int(position)))


def points_from_hint(kind: T.DataType, values: Sequence[Any]) -> tuple[Any, ...]:
    """The user's split points, checked against the type of the bounds."""
    return tuple(sorted({_given(kind, value) for value in values}))


def _given(kind: T.DataType, value: Any) -> Any:
    """The point in units of the bounds; a `PlanError` for one that their type does not have."""
    if isinstance(kind, T.DateType) and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH.date()).days
    if isinstance(kind, T.TimestampType) and isinstance(value, dt.datetime):
        return _micros(value.astimezone(dt.UTC) - _EPOCH)  # without a zone: the driver's, as in PySpark
    if isinstance(kind, T.TimestampNTZType) and isinstance(value, dt.datetime) and value.tzinfo is None:
        return _micros(value - _EPOCH.replace(tzinfo=None))
    if isinstance(kind, T.DayTimeIntervalType) and isinstance(value, dt.timedelta):
        return _micros(value)
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if number and isinstance(kind, T.DecimalType):
        exact = Decimal(value) if isinstance(value, int) else Decimal(str(value))
        if exact.is_finite() and exact.copy_abs() < Decimal(10) ** (kind.precision - kind.scale):
            return exact
    elif number and isinstance(kind, FLOATS) and (isinstance(value, float) or abs(value) <= _LARGEST_DOUBLE):
        return float(value)
    elif number and isinstance(value, int) and -_INTEGERS.get(type(kind), 0) <= value < _INTEGERS.get(type(kind), 0):
        return value
    raise PlanError(
        f"split_points: {value!r} is not a value of the bounds' type, {kind.simpleString()}", argument="split_points"
    )


def _micros(span: dt.timedelta) -> int:
    return span // dt.timedelta(microseconds=1)


def as_literal(kind: T.DataType, point: Any) -> Column:
    """The point as a Spark value of the bounds' type."""
    if isinstance(kind, T.DateType):
        return F.expr(f"date_from_unix_date({int(point)})")
    if isinstance(kind, T.TimestampType):
        return F.expr(f"timestamp_micros({int(point)}L)")
    if isinstance(kind, _MICROS):
        seconds = Decimal(int(point)) / 1_000_000
        span = f"make_dt_interval(0, 0, 0, cast('{seconds:f}' as decimal(18, 6)))"
        if isinstance(kind, T.TimestampNTZType):
            return F.expr(f"timestamp_ntz'1970-01-01 00:00:00' + {span}")
        return F.expr(span).cast(kind)
    return F.lit(point).cast(kind)


def as_arrow(kind: T.DataType, points: Sequence[Any]) -> pa.Array:
    """The points as an Arrow array of the type that tasks see the bounds in."""
    arrow = arrow_type(kind)
    if isinstance(kind, _MICROS):
        return pa.array(list(points), pa.int64()).cast(arrow)
    if isinstance(kind, T.DateType):
        return pa.array(list(points), pa.int32()).cast(arrow)
    return pa.array(list(points), arrow)
