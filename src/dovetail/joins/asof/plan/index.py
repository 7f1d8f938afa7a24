"""The index algorithm: rows of both sides are exchanged by cell, and joined in tasks by the operator.

A cell is one task: a range in the order of (key hash, time). Cells are cut between keys, and inside a key only if it
has more rows than half a cell: so a join without keys, or with a hot key, still uses all cores. Of earlier (later)
cells of its key a left row needs only the last (first) right row; tasks that send right rows copy these to the cells
that follow (precede).
Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.engine.exchange.delivery import CELL
from dovetail.engine.point_join import PointTask, join_task
from dovetail.joins.asof.cells import ByTime, Carried
from dovetail.joins.asof.operator import AsofJoin
from dovetail.joins.asof.plan.sides import Side
from dovetail.joins.asof.request import Request
from dovetail.spark.frames import quoted, unquoted
from dovetail.spark.hosts.batch import Placed, exchange_bundled, nullable, task_frame
from dovetail.spark.hosts.cells import HASH, Cells
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
        rows, schemas = self._exchanged(left, right, spec)
        fields = nullable(s.frame.schema[name] for s, out in ((left, left_out), (right, right_out)) for name in out)
        return task_frame(rows, join_task, PointTask(spec, schemas, self.request.memory), self.sink, fields)

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

    def _exchanged(self, left: Side, right: Side, spec: AsofJoin) -> tuple[DataFrame, dict[str, pa.Schema]]:
        """Both sides, each cell in a partition of its own, and their columns."""
        mine, theirs = self._placed(left, self.request.how == "left"), self._placed(right, False)
        return exchange_bundled(mine, theirs, self.cells.count, self.request.memory, self._carried(right, spec))

    def _placed(self, side: Side, keeps_all: bool) -> Placed:
        """The rows of a side, and how tasks find their cells; rows that cannot match go to any, or are left out."""
        columns, keyed = list(side.frame.columns), self.cells.keyed and self.cells.count > 1
        chosen = [*map(quoted, columns), *([f"{side.key_hash} as {HASH}"] if keyed else [])]
        if keeps_all:
            chosen.append(f"if({side.usable}, -1, {self.cells.any_cell(side.frame)}) as {CELL}")
        rows = (side.frame if keeps_all else side.frame.where(side.usable)).selectExpr(*chosen)
        hashed, given = HASH if keyed else None, CELL if keeps_all else None
        placement = ByTime(self.cells.hashes, self.cells.positions, unquoted(side.on), hashed, given)
        return Placed(rows, CELL, columns, placement)

    def _carried(self, right: Side, spec: AsofJoin) -> Carried | None:
        """Which right rows are copied to other cells; None if no key is cut by time."""
        if not self.cells.hot:
            return None
        reach = {key: self.cells.reach(key) for key in self.cells.hot}
        return Carried(spec, tuple(right.frame.columns), HASH if self.cells.keyed else None, reach)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [self.cells.explain()]
