"""A search for nearest rows: rows of both sides are exchanged by cell, and joined in tasks by the operator.

A left row goes to the cell of its end, a right row to the cell of its start, whatever the length of either. Of earlier
cells of its key a left row needs only the k rows that end last, of later ones only the k that start first; these rows
are copied to it. A search for rows before the left one alone runs in mirrored order.
Reference: docs/algorithms/interval.md, 8.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.exchange.delivery import CELL
from dovetail.engine.point_join import PointTask, join_task
from dovetail.joins.interval.plan.sides import Side
from dovetail.joins.interval.request import Request as JoinRequest
from dovetail.joins.nearest.operator import DISTANCE, NearestJoin
from dovetail.joins.nearest.request import Request
from dovetail.request import MOST_CELLS, Closed
from dovetail.spark.frames import RESERVED, quoted, units, unquoted
from dovetail.spark.hosts.batch import Placed, exchange_bundled, nullable, task_frame
from dovetail.spark.hosts.cells import HASH, Cells, fitting_cells
from dovetail.spark.hosts.sample import long_literal
from dovetail.spark.inputs import FLOATS
from dovetail.spark.task import MetricsSink

_ROW, _RANK = f"{RESERVED}row", f"{RESERVED}rank"
_MOST_COPIES = 4_000_000  # right rows that are copied to other cells of a hot key, at most


@dataclass(frozen=True, slots=True)
class _Placed:
    """A side with the point by which its rows are placed."""

    name: str
    frame: DataFrame
    usable: str
    key_hash: str
    position: str


@dataclass(frozen=True, slots=True)
class Search:
    """The k nearest right rows before, over or after each left row."""

    join: JoinRequest
    k: int
    before: bool
    overlapping: bool
    after: bool
    farthest: int | float | None
    cells: Cells
    reason: str
    sink: MetricsSink

    @classmethod
    def plan(
        cls, request: Request, left: Side, right: Side, counted: tuple[bool, bool, bool],
        farthest: int | float | None, sink: MetricsSink,
    ) -> Search:  # fmt: skip
        """The search, in cells that fit the budget; inputs that are not small are sampled by one job."""
        join = request.join
        placed = [_placed(side, _is_mirrored(counted)) for side in (left, right)]
        most = min(MOST_CELLS, isqrt(_MOST_COPIES // request.k))
        cells, reason = fitting_cells(placed[0], placed[1], bool(join.keys), join.partitions, join.memory, max(2, most))
        return cls(join, request.k, *counted, farthest, cells, reason, sink)

    @property
    def _mirrored(self) -> bool:
        return _is_mirrored((self.before, self.overlapping, self.after))

    def answer(
        self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...],
        how: Literal["inner", "left"],
    ) -> DataFrame:  # fmt: skip
        """These columns of left rows and of their nearest rows, with the distance in units of the bounds."""
        spec = self._spec(left, right, left_out, right_out, how)
        left, right = left.pruned(left_out), right.pruned(right_out)
        mine = left.frame if how == "left" else left.frame.where(left.matches)
        columns = list(right.frame.columns)
        rows = self.cells.place(_placed(left, self._mirrored), mine, list(left.frame.columns))
        others = self.cells.place(_placed(right, self._mirrored), right.frame.where(right.matches), columns)
        others = self._with_copies(right, others, columns)
        at = Placed(rows, CELL, left.frame.columns), Placed(others, CELL, columns)
        placed, schemas = exchange_bundled(*at, self.cells.count, self.join.memory)
        fields = nullable(s.frame.schema[name] for s, out in ((left, left_out), (right, right_out)) for name in out)
        kind = T.DoubleType() if isinstance(left.bound_type, FLOATS) else T.LongType()
        task = PointTask(spec, schemas, self.join.memory)
        return task_frame(placed, join_task, task, self.sink, [*fields, T.StructField(DISTANCE, kind)])

    def _spec(
        self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...],
        how: Literal["inner", "left"],
    ) -> NearestJoin:  # fmt: skip
        closed: tuple[Closed, Closed] = (left.closed, right.closed)
        return NearestJoin(
            (unquoted(left.start), unquoted(left.end)),
            (unquoted(right.start), unquoted(right.end)),
            tuple((unquoted(a), unquoted(b)) for a, b in zip(left.keys, right.keys, strict=True)),
            self.k,
            self.before,
            self.overlapping,
            self.after,
            self.farthest,
            closed,
            how,
            left_out,
            right_out,
        )

    def _with_copies(self, right: Side, placed: DataFrame, columns: list[str]) -> DataFrame:
        """Right rows in their cells, with copies of those that left rows of other cells of a hot key may match."""
        if not self.cells.hot:
            return placed
        hot = placed.where(f"{HASH} in ({', '.join(map(long_literal, self.cells.hot))})")
        whole = placed.select(*map(quoted, columns), CELL)
        start, end = (units(right.bound_type, bound) for bound in (right.start, right.end))
        reverse = "-({})" if isinstance(right.bound_type, FLOATS) else "~({})"
        early = reverse.format(end), start  # the order in which rows end last, or start first if mirrored
        if self._mirrored or self.after:
            low = self.cells.edge("first")
            order = early if self._mirrored else (start, reverse.format(end))
            whole = whole.union(
                self._copies(right, hot, columns, order, f"{CELL} > {low}", f"sequence({low}, {CELL} - 1)")
            )
        if not self._mirrored and (self.before or self.overlapping):
            high = self.cells.edge("last")
            whole = whole.union(
                self._copies(right, hot, columns, early, f"{CELL} < {high}", f"sequence({CELL} + 1, {high})")
            )
        return whole

    def _copies(
        self, right: Side, hot: DataFrame, columns: list[str], order: tuple[str, str], goes: str, cells: str
    ) -> DataFrame:
        """The first k rows of each cell in this order, in each of the cells that they go to the first k of all."""
        ties = [quoted(name) for name in columns if has_order(hot.schema[name].dataType)]
        best = self._best if self.k == 1 else self._ranked
        found = hot.where(goes)
        for target in (CELL, f"explode({cells}) as {CELL}"):
            chosen = found.selectExpr(*map(quoted, columns), HASH, target)
            found = best(chosen, [*right.keys, HASH, CELL], ", ".join((*order, *ties)))
        return found.select(*map(quoted, columns), CELL)

    def _best(self, rows: DataFrame, groups: list[str], order: str) -> DataFrame:
        """The first row of each group, by an aggregate: the buffer of a group is one row."""
        best = F.expr(f"min_by(struct(*), struct({order}))").alias(_ROW)
        return rows.groupBy(*groups).agg(best).select(f"{_ROW}.*")

    def _ranked(self, rows: DataFrame, groups: list[str], order: str) -> DataFrame:
        """The first k rows of each group, by a sort: Spark spills what does not fit, so that any k and any row does."""
        rank = f"row_number() over (partition by {', '.join(groups)} order by {order}) as {_RANK}"
        return rows.selectExpr("*", rank).where(f"{_RANK} <= {self.k}").drop(_RANK)

    def explain(self) -> list[str]:
        """The rows that are searched for and their placement, a line each."""
        counted = ("before", self.before), ("overlapping", self.overlapping), ("after", self.after)
        carried = f"the nearest right rows of each ({self.k}) go on to those after it and before it"
        return [
            f"search: {', '.join(name for name, counts in counted if counts)} ({self.reason})",
            self.cells.explain("position", carried),
        ]


def _is_mirrored(counted: tuple[bool, bool, bool]) -> bool:
    before, overlapping, _ = counted
    return before and not overlapping


def _placed(side: Side, mirrored: bool) -> _Placed:
    key = f"xxhash64({', '.join(side.keys)})" if side.keys else "0L"
    bound = side.end if (side.name == "left") != mirrored else side.start
    at = side.position(bound)
    return _Placed(side.name, side.frame, side.usable, key, f"-{at}" if mirrored else at)


def has_order(kind: T.DataType) -> bool:
    """Whether tasks order rows by columns of this type, as Spark does."""
    plain = (T.NumericType, T.DatetimeType, T.BooleanType, T.BinaryType, T.DayTimeIntervalType)
    return isinstance(kind, plain) or kind == T.StringType()
