"""Counting, semi and anti joins, and first matches on Spark, without forming pairs.

If the right side fits the budget it is read once and sent to every task, and left rows stream past its index. If not,
both sides are cut at split points and every range has an index of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.joins.interval.answers import COUNT, INDEX_BYTES, Kind, Question, RightIndex, answer, answer_cell
from dovetail.joins.interval.cell_join import CELL, LEFT, RIGHT, SIDE
from dovetail.joins.interval.plan.cells import name
from dovetail.joins.interval.plan.compose import ROW, WHOLE
from dovetail.joins.interval.plan.partitioned import (
    ORDER,
    RangeCells,
    nullable,
    reported,
    side_columns,
    tagged,
)
from dovetail.joins.interval.plan.sides import Side, quoted
from dovetail.joins.interval.plan.statistics import SideStatistics, text_bytes
from dovetail.joins.interval.relation import Relation
from dovetail.spark.arrow import map_in_arrow
from dovetail.spark.connect import is_connect
from dovetail.spark.metrics import MetricsSink


def right_fits(stats: SideStatistics, memory: int, rows: Side | None = None) -> bool:
    """Whether an index of right rows, and the rows themselves if they are wanted, fits the budget of a task.

    Rows are measured, which takes a job, if they could fit.
    """
    each = INDEX_BYTES + 2 * (stats.key_bytes if rows is None else stats.row_bytes)
    fits = stats.usable * each <= memory
    return fits and (rows is None or stats.usable * each + 2 * text_bytes(rows) <= memory)


def can_stream_codes(side: Side, relation: Relation, low: float, high: float) -> bool:
    """Whether bounds have 64-bit codes without seeing all of them: not wide decimals, nor mixed `closed` on floats."""
    kind = side.bound_type
    if isinstance(kind, T.DecimalType) and kind.precision > 18:
        return False
    if relation.left_closed == relation.right_closed:
        return relation.left_closed != "both" or high < 2.0**62
    floating = isinstance(kind, (T.FloatType, T.DoubleType))
    # Positions of times are seconds, codes microseconds; decimals are counted in their last digit.
    scale = 10.0**kind.scale if isinstance(kind, T.DecimalType) else 1.0 if isinstance(kind, T.IntegralType) else 1e6
    return not floating and max(abs(low), abs(high)) * scale < 2.0**61


@dataclass(frozen=True, slots=True)
class Shipped:
    """A question answered from an index of the whole right side, which travels to the tasks as Arrow bytes."""

    question: Question
    right: Any  # a broadcast variable, or the bytes themselves over Spark Connect
    sink: MetricsSink


def shipped_answer(
    left: Side, right: Side, kind: Kind, relation: Relation, memory: int, sink: MetricsSink, outer: bool
) -> DataFrame:
    """Left rows with their answer; reads the right side now, the left side when Spark runs the result."""
    wanted = right.frame if kind in ("first", "last", "any") else _bounds_only(right)
    question = Question(kind, relation, side_columns(left, left.frame), side_columns(right, wanted), memory, outer)
    task = Shipped(question, _send(wanted), sink)
    fields = [nullable(field) for field in left.frame.schema]
    if kind == "count":
        fields.append(T.StructField(COUNT, T.LongType(), False))
    if kind in ("first", "last", "any"):
        fields += [nullable(field) for field in wanted.schema]
    return map_in_arrow(left.frame, partial(_answer_shipped, task), T.StructType(fields))


def _bounds_only(side: Side) -> DataFrame:
    needed = dict.fromkeys((side.start, side.end, *side.keys))
    return side.frame.select(*needed)


def _send(frame: DataFrame) -> Any:
    table = frame.toArrow()
    output = pa.BufferOutputStream()
    with pa.ipc.new_stream(output, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data = output.getvalue().to_pybytes()
    spark = frame.sparkSession
    return data if is_connect(spark) else spark.sparkContext.broadcast(data)


def _answer_shipped(task: Shipped, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return reported(_answer_all, task, task.sink, batches)


_CACHED: dict[str, Any] = {}  # the index of the last question: one process answers many tasks of it


def _answer_all(task: Shipped, batches: Iterator[pa.RecordBatch], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    index: RightIndex | None = None
    for batch in batches:
        if index is None:
            index, budget = _cached_index(task)
            metrics.add("placed", index.rows.num_rows, side="right", per_task=True)
            metrics.peak("memory", budget.peak)
        metrics.add("placed", batch.num_rows, side="left", per_task=True)
        yield from answer(task.question, index, batch)


def _cached_index(task: Shipped) -> tuple[RightIndex, MemoryBudget]:
    sent = task.right if isinstance(task.right, bytes) else task.right.value
    if _CACHED.get("sent") is not sent or _CACHED["question"] != task.question:
        if "index" in _CACHED:
            _CACHED["index"].close()
        _CACHED.clear()
        table = pa.ipc.open_stream(pa.py_buffer(sent)).read_all().combine_chunks()
        rows = next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], table.schema))
        budget = MemoryBudget(task.question.memory, "interval answers")
        index = RightIndex(task.question, rows, budget)
        _CACHED.update(index=index, budget=budget, question=task.question, sent=sent)
    return _CACHED["index"], _CACHED["budget"]


@dataclass(frozen=True, slots=True)
class IndexMeeting:
    """Semi and anti joins, and counts, of rows in the same range, by an index of the range's right rows."""

    relation: Relation
    memory: int
    cells: RangeCells
    sink: MetricsSink

    def __call__(
        self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool
    ) -> DataFrame:
        """Left rows that match, or do not, within their range."""
        kind: Kind = "left_semi" if how == "left_semi" else "left_anti"
        return self._ask(first, rows, second, others, kind, None)

    def counts(self, left: Side, rows: DataFrame, right: Side, others: DataFrame) -> DataFrame:
        """Left rows with the number of their matches in their range; a pair counts in one range only."""
        started = (name(left, "in"), name(right, "in")) if self.cells.both_split else None
        return self._ask(left, rows, right, others, "count", started)

    def _ask(
        self, first: Side, rows: DataFrame, second: Side, others: DataFrame, kind: Kind, started: tuple[str, str] | None
    ) -> DataFrame:
        keep = [second.start, second.end, *second.keys, name(second, "cell"), name(second, "in")]
        others = others.select(*dict.fromkeys(keep))
        relation = self.relation.swapped() if first.name == "right" else self.relation
        columns = side_columns(first, rows), side_columns(second, others)
        question = Question(kind, relation, *columns, self.memory, started=started)
        together = tagged(first, rows, LEFT, others).unionByName(tagged(second, others, RIGHT, rows))
        order = [column for column in together.columns if column.startswith(ORDER)]
        placed = (
            together.drop(*order).repartitionById(self.cells.ranges, F.col(CELL)).sortWithinPartitions(F.desc(SIDE))
        )
        fields = [nullable(field) for field in rows.schema]
        if kind == "count":
            fields.append(T.StructField(COUNT, T.LongType(), False))
        return map_in_arrow(placed, partial(_answer_range, question, self.sink), T.StructType(fields))


def _answer_range(question: Question, sink: MetricsSink, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return reported(answer_cell, question, sink, batches)


def counted_in_ranges(left: Side, right: Side, cells: RangeCells, meeting: IndexMeeting) -> DataFrame:
    """Left rows with the number of their matches; only rows that reach several ranges are added up afterwards."""
    left = replace(left, kept=True)
    columns = [quoted(column) for column in left.frame.columns]
    others = cells.add(right, right.frame)
    rows = cells.add(left, left.frame.withColumn(ROW, F.monotonically_increasing_id()))
    alone = meeting.counts(left, rows.where(f"{name(left, 'n')} = 1"), right, others)
    parts = meeting.counts(left, rows.where(f"{name(left, 'n')} > 1"), right, others).groupBy(ROW)
    summed = parts.agg(F.first(F.struct(*columns)).alias(WHOLE), F.sum(COUNT).alias(COUNT))
    return alone.select(*columns, COUNT).unionByName(summed.select(f"{WHOLE}.*", COUNT))
