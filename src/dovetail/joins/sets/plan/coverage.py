"""Coverage on Spark: left rows are looked up in an index of the right rows, and no pair is formed.

* An index of all right rows that fits the budget is built on the driver and sent to all tasks: left rows stay where
  they are.
* Otherwise both sides go to ranges of time, cut at their split points: lengths and counts add up over ranges.
* Types without 64-bit codes are counted and joined by Spark, with right rows that were merged.
Reference: docs/algorithms/sets.md, 4.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.exchange.delivery import SIDE
from dovetail.engine.memory import format_bytes
from dovetail.engine.rows.columns import one_batch
from dovetail.joins.interval.index.answers import COUNT
from dovetail.joins.interval.plan.choose import cells_of_indexes, codes_obstacle, index_fits
from dovetail.joins.interval.plan.index import bounds_only, summed_over_ranges
from dovetail.joins.interval.plan.ranges import RangeCells, as_literal, in_ranges, side_columns
from dovetail.joins.interval.plan.sides import Side
from dovetail.joins.interval.plan.statistics import Inputs
from dovetail.joins.interval.relation import SideColumns
from dovetail.joins.sets.cover_index import (
    BUILD_BYTES,
    COVERED,
    FLOAT_ROW_BYTES,
    KEY_BYTES,
    ROW_BYTES,
    Coverage,
    SentIndex,
    answer_range,
    sent_index,
)
from dovetail.spark.frames import unquoted
from dovetail.spark.hosts.batch import exchange, nullable, task_frame
from dovetail.spark.hosts.sent import answered
from dovetail.spark.inputs import FLOATS, may_collect, row_bytes


def covered_rows(inputs: Inputs) -> tuple[DataFrame, list[str]] | None:
    """Left rows with count and covered length, in units of their codes, and how; None for types without codes."""
    if codes_obstacle(inputs) is not None:
        return None
    left, right = inputs.checked()
    if _fits(inputs):
        sent = _read_index(inputs, left, right)
        if sent.nbytes <= inputs.request.memory:
            size = f"{len(sent.arrays.starts):,} right rows, {format_bytes(sent.nbytes)}"
            how = f"index: of all right rows, sent to every task ({size})"
            return answered(left.frame, sent, inputs.sink, _fields(left.frame, left.bound_type)), [how]
    each = max(BUILD_BYTES, 4 * row_bytes(bounds_only(inputs.right)))  # their batches fit an eighth of the budget
    cells = cells_of_indexes(inputs, inputs.statistics[1].usable, each)
    return _by_ranges(inputs, left, right, cells), [
        "index: of the right rows of each range",
        cells.explain(left, right),
    ]


def _fits(inputs: Inputs) -> bool:
    """Whether an index of all right rows may fit the budget of a task; how many keys differ is seen in the sample."""
    right = inputs.statistics[1]
    keys = right.sample.key
    share = len(np.unique(keys)) / max(1, len(keys)) if inputs.right.keys else 0.0
    each = FLOAT_ROW_BYTES if isinstance(inputs.right.bound_type, FLOATS) else ROW_BYTES
    fits = index_fits(inputs, each + share * (2 * right.key_bytes + KEY_BYTES))
    return fits and may_collect(bounds_only(inputs.right), right.usable)


def _fields(rows: DataFrame, kind: T.DataType) -> list[T.StructField]:
    length = T.DoubleType() if isinstance(kind, FLOATS) else T.LongType()
    return [*nullable(rows.schema), T.StructField(COUNT, T.LongType(), False), T.StructField(COVERED, length, False)]


def _read_index(inputs: Inputs, left: Side, right: Side) -> SentIndex:
    """The index of all right rows, which are read now."""
    wanted = bounds_only(right)
    mine, theirs = (
        side_columns(side, {c: c for c in rows.columns}) for side, rows in ((left, left.frame), (right, wanted))
    )
    return sent_index(Coverage(mine, theirs, inputs.request.memory), one_batch(wanted.toArrow()))


def _by_ranges(inputs: Inputs, left: Side, right: Side, cells: RangeCells) -> DataFrame:
    left = replace(left, kept=True)
    others = _cut(right, cells, cells.add(right, bounds_only(right)))
    names = [(left.own("a"), right.own("a")), (left.own("b"), right.own("b"))]

    def ask(rows: DataFrame) -> DataFrame:
        rows = _cut(left, cells, rows)
        placed, places = exchange(in_ranges(left, rows), in_ranges(right, others), cells.ranges, names)
        columns = [
            SideColumns(found, side.own("a"), side.own("b"), tuple(map(unquoted, side.keys)), side.closed)
            for side, found in ((left, places.left), (right, places.right))
        ]
        asked = Coverage(columns[0], columns[1], inputs.request.memory, (left.own("in"), right.own("in")))
        in_order = placed.sortWithinPartitions(F.desc(SIDE), places.paired[0])
        return task_frame(in_order, answer_range, asked, inputs.sink, _fields(rows, left.bound_type))

    return summed_over_ranges(left, cells, (COUNT, COVERED), ask)


def _cut(side: Side, cells: RangeCells, rows: DataFrame) -> DataFrame:
    """The rows with their bounds, cut to their range if they have an interval."""
    points = [as_literal(side.bound_type, point) for point in cells.points]
    none = F.lit(None).cast(side.bound_type)
    cell, usable, (start, end) = F.col(side.own("cell")), F.expr(side.usable), map(F.col, (side.start, side.end))
    low, high = F.array(none, *points)[cell], F.array(*points, none)[cell]
    return rows.withColumns(
        {
            side.own("a"): F.when(usable, F.greatest(start, low)).otherwise(start),
            side.own("b"): F.when(usable, F.least(end, high)).otherwise(end),
        }
    )
