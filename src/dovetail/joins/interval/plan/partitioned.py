"""The partitioned routes: rows go to the task that owns their stretch of time, and an operator joins them there.

Split points cut time into ranges. SPLIT sends a row to every range that it reaches, PROJECT to the range of its start.
Reference: Carman 2020, 3.2, 6.2 and table 6.3 with the sides exchanged for inverses; docs/algorithms/interval.md, 1.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.cell_join import CELL, LEFT, RIGHT, SIDE, CellJoin, SideColumns, join_cell
from dovetail.joins.interval.plan.cells import COLUMNS, MISS_CELLS, name
from dovetail.joins.interval.plan.points import as_arrow, as_literal
from dovetail.joins.interval.plan.sides import RESERVED, Side, quoted, unquoted
from dovetail.joins.interval.relation import Relation
from dovetail.spark.arrow import map_in_arrow
from dovetail.spark.metrics import MetricsSink

ORDER = f"{RESERVED}order"
SPLIT_LEFT = frozenset({"covers", "overlaps"})
SPLIT_RIGHT = frozenset({"covered_by", "overlapped_by"})


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
        """Whether both sides are SPLIT, so that a pair may meet in several ranges."""
        return not self.relation.names <= SPLIT_LEFT and not self.relation.names <= SPLIT_RIGHT

    def scheme(self, side: Side) -> str:
        """SPLIT or PROJECT, by the strategy table."""
        projected = SPLIT_RIGHT if side.name == "left" else SPLIT_LEFT
        return "PROJECT" if self.relation.names <= projected else "SPLIT"

    def add(self, side: Side, frame: DataFrame, keep: Sequence[str] = COLUMNS) -> DataFrame:
        """The frame with a row for every range that a row goes to; rows that match nothing go anywhere, once."""
        ok = side.usable if side.kept else "true"
        begin = self._range(side, side.start, after=False)
        end = begin
        if self.scheme(side) == "SPLIT":
            end = self._range(side, side.end, after=side.closed in ("left", "neither"))
        anywhere = F.expr(f"pmod(xxhash64({side.start}, {side.end}), {min(self.ranges, MISS_CELLS)})").cast("int")
        first, last, cell = (name(side, what) for what in ("first", "last", "cell"))
        ranges = [F.when(F.expr(ok), place).otherwise(anywhere) for place in (begin, end)]
        placed = frame.select("*", ranges[0].alias(first), ranges[1].alias(last))
        placed = placed.selectExpr("*", f"explode(sequence({first}, {last})) as {cell}")
        ours = {"cell": cell, "in": f"{cell} = {first}", "n": f"cast({last} - {first} + 1 as bigint)"}
        return placed.selectExpr(*map(quoted, frame.columns), *(f"{ours[what]} as {name(side, what)}" for what in keep))

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


@dataclass(frozen=True, slots=True)
class PartitionedMeeting:
    """Joins rows that are in the same range, one task a range, with one of the operators."""

    relation: Relation
    algorithm: str
    memory: int
    cells: RangeCells
    sink: MetricsSink
    swapped: bool = False

    def __call__(
        self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool
    ) -> DataFrame:
        """What `rows.join(others, ..., how)` gives within each range; `once`, pairs in their first range only."""
        task = self.task(first, rows, second, others, how, once)
        semi = how in ("left_semi", "left_anti")
        schema = T.StructType([nullable(field) for field in (*rows.schema, *(() if semi else others.schema))])
        return map_in_arrow(self.placed(first, rows, second, others), partial(_run, task, self.sink), schema)

    def task(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool) -> CellJoin:
        """What the tasks are told."""
        exchanged = first.name == "right"
        return CellJoin(
            self.algorithm,
            self.relation.swapped() if exchanged else self.relation,
            how,
            side_columns(first, rows),
            side_columns(second, others),
            self.memory,
            once and self.cells.both_split,
            as_arrow(first.bound_type, self.cells.points),
            self.swapped != exchanged,
        )

    def placed(self, first: Side, rows: DataFrame, second: Side, others: DataFrame) -> DataFrame:
        """Both sides in one frame, each range in a partition of its own, sorted by (keys, start, end)."""
        together = tagged(first, rows, LEFT, others).unionByName(tagged(second, others, RIGHT, rows))
        order = [column for column in together.columns if column.startswith(ORDER)]
        return together.repartitionById(self.cells.ranges, F.col(CELL)).sortWithinPartitions(*order).drop(*order)


def side_columns(side: Side, rows: DataFrame) -> SideColumns:
    """What a task must know of the columns of one side."""
    keys = tuple(unquoted(key) for key in side.keys)
    return SideColumns(tuple(rows.columns), unquoted(side.start), unquoted(side.end), keys, side.closed)


def tagged(side: Side, rows: DataFrame, tag: int, others: DataFrame) -> DataFrame:
    """The rows with their side, their cell and their sort order, and nulls for the columns of the other side."""
    order = [*side.keys, side.start, side.end]
    return rows.select(
        F.lit(tag).cast("byte").alias(SIDE),
        F.col(name(side, "cell")).cast("int").alias(CELL),
        *(F.expr(bound).alias(f"{ORDER}{number}") for number, bound in enumerate(order)),
        *map(quoted, rows.columns),
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in others.schema),
    )


def nullable(field: T.StructField) -> T.StructField:
    """The field, which may now hold nulls."""
    return T.StructField(field.name, field.dataType, True)


def _run(task: CellJoin, sink: MetricsSink, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return reported(join_cell, task, sink, batches)


def reported(
    join: Callable[[Any, Iterator[pa.RecordBatch], Metrics], Iterator[pa.RecordBatch]],
    task: Any,
    sink: MetricsSink,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The join's batches; its metrics are reported before the last one leaves, for Spark may not ask again."""
    metrics = Metrics()
    waiting: pa.RecordBatch | None = None
    for batch in join(task, batches, metrics):
        if waiting is not None:
            yield waiting
        waiting = batch
    sink.task(metrics)
    if waiting is not None:
        yield waiting
