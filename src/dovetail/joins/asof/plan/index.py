"""The index way: rows of both sides exchanged by cell, and joined in tasks by the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.metrics import Metrics
from dovetail.joins.asof.plan.cells import CELL, Cells
from dovetail.joins.asof.plan.sides import Side, quoted, unquoted
from dovetail.joins.asof.request import Request
from dovetail.joins.asof.spec import AsofJoin
from dovetail.joins.asof.task import LEFT, RIGHT, SIDE, AsofTask, join_task
from dovetail.spark.arrow import map_in_arrow
from dovetail.spark.metrics import MetricsSink


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
        task = AsofTask(spec, tuple(left.frame.columns), tuple(right.frame.columns), self.request.memory)
        fields = [
            _nullable(side.frame.schema[name]) for side, out in ((left, left_out), (right, right_out)) for name in out
        ]
        return map_in_arrow(self._placed(left, right), partial(_run, task, self.sink), T.StructType(fields))

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

    def _placed(self, left: Side, right: Side) -> DataFrame:
        """Both sides in one frame, each cell in a partition of its own."""
        mine = left.frame if self.request.how == "left" else left.frame.where(left.usable)
        columns = list(right.frame.columns)
        rows = self.cells.place(left, mine, list(left.frame.columns))
        others = self.cells.place(right, right.frame.where(right.usable), columns)
        others = self.cells.carry(right, others, columns, self.request.direction)
        together = _tagged(rows, LEFT, right.frame).unionByName(_tagged(others, RIGHT, left.frame))
        return together.repartitionById(self.cells.count, F.col(CELL)).drop(CELL)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [self.cells.explain()]


def _tagged(rows: DataFrame, tag: int, others: DataFrame) -> DataFrame:
    """The rows with their side and nulls for the columns of the other side."""
    nulls = (f"cast(null as {field.dataType.simpleString()}) as {quoted(field.name)}" for field in others.schema)
    named = [quoted(name) for name in rows.columns if name != CELL]
    return rows.selectExpr(f"cast({tag} as tinyint) as {SIDE}", CELL, *named, *nulls)


def _nullable(field: T.StructField) -> T.StructField:
    return T.StructField(field.name, field.dataType, True)


def _run(task: AsofTask, sink: MetricsSink, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task's answers; its metrics are reported before the last batch, because Spark may not ask for more."""
    metrics, waiting = Metrics(), None
    for batch in join_task(task, batches, metrics):
        if waiting is not None:
            yield waiting
        waiting = batch
    sink.task(metrics)
    if waiting is not None:
        yield waiting
