"""The index algorithm: rows of both sides are exchanged by cell, and joined in tasks by the operator.

A cell is one task: a range in the order of (key hash, time). Cells are cut between keys, and inside a key only if it
has more rows than half a cell: so a join without keys, or with a hot key, still uses all cores. Of earlier (later)
cells of its key a left row needs only the last (first) right row; these rows are copied to the cells that follow
(precede).
Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.exchanged import CELL, Places
from dovetail.engine.point_join import PointTask, join_task
from dovetail.joins.asof.operator import AsofJoin, Direction
from dovetail.joins.asof.plan.sides import Side
from dovetail.joins.asof.request import Request
from dovetail.spark.frames import RESERVED, quoted, unquoted
from dovetail.spark.hosts.batch import Placed, exchange, nullable, task_frame
from dovetail.spark.hosts.cells import HASH, Cells
from dovetail.spark.hosts.sample import long_literal
from dovetail.spark.task import MetricsSink


@dataclass(frozen=True, slots=True)
class IndexWay:
    """An as-of join by tasks that look left rows up in an index of the right rows of their cell."""

    request: Request
    tolerance: int | float | None
    cells: Cells
    sink: MetricsSink

    def answer(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> DataFrame:
        """The joined rows, with these columns of both sides."""
        spec = self._spec(left, right, left_out, right_out)
        left, right = left.pruned(left_out), right.pruned(right_out)
        rows, places = self._exchanged(left, right)
        fields = nullable(s.frame.schema[name] for s, out in ((left, left_out), (right, right_out)) for name in out)
        return task_frame(rows, join_task, PointTask(spec, places, self.request.memory), self.sink, fields)

    def _spec(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> AsofJoin:
        request = self.request
        return AsofJoin(
            on=(unquoted(left.on), unquoted(right.on)),
            by=tuple((unquoted(a), unquoted(b)) for a, b in zip(left.keys, right.keys, strict=True)),
            direction=request.direction,
            tolerance=self.tolerance,
            allow_exact=request.allow_exact,
            tie="any" if request.tie == "all" else request.tie,
            tie_order=tuple(unquoted(name) for name in right.order),
            how=request.how,
            left_columns=left_out,
            right_columns=right_out,
        )

    def _exchanged(self, left: Side, right: Side) -> tuple[DataFrame, Places]:
        """Both sides, each cell in a partition of its own, and where their columns are."""
        mine = left.frame if self.request.how == "left" else left.frame.where(left.usable)
        columns = list(right.frame.columns)
        rows = self.cells.place(left, mine, list(left.frame.columns))
        others = self.cells.place(right, right.frame.where(right.usable), columns)
        others = carry(self.cells, right, others, columns, self.request.direction)
        mine_at, theirs_at = Placed(rows, CELL, left.frame.columns), Placed(others, CELL, columns)
        return exchange(mine_at, theirs_at, self.cells.count)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [self.cells.explain()]


def carry(cells: Cells, side: Side, placed: DataFrame, columns: list[str], direction: Direction) -> DataFrame:
    """Right rows in their cells, with copies of the ends of a hot key's cells in the cells that need them."""
    if not cells.hot:
        return placed
    groups = [*side.keys, CELL]
    own = [f"{RESERVED}g{number}" for number in range(len(groups))]
    hot = placed.where(f"{HASH} in ({', '.join(map(long_literal, cells.hot))})")
    first, last = f"{RESERVED}first", f"{RESERVED}last"
    ends = hot.groupBy(*groups).agg(F.expr(f"max({side.on})").alias(last), F.expr(f"min({side.on})").alias(first))
    ends = ends.selectExpr(*(f"{group} as {name}" for group, name in zip(groups, own, strict=True)), first, last)
    same = " and ".join(f"{group} = {name}" for group, name in zip(groups, own, strict=True))
    low, high = cells.edge("first"), cells.edge("last")
    copied = []
    if direction != "forward":
        copied.append((f"{side.on} = {last} and {CELL} < {high}", f"sequence({CELL} + 1, {high})"))
    if direction != "backward":
        copied.append((f"{side.on} = {first} and {CELL} > {low}", f"sequence({low}, {CELL} - 1)"))
    whole = placed.select(*map(quoted, columns), CELL)
    for chosen, others in copied:
        met = hot.join(F.broadcast(ends), F.expr(f"{same} and {chosen}"))
        whole = whole.union(met.selectExpr(*map(quoted, columns), f"explode({others}) as {CELL}"))
    return whole
