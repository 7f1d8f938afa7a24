"""The index route: counts, semi and anti joins, first matches and the longest overlaps, without forming pairs.

Bounds that fit the budget are read and answered on the driver, if the answer is a number or a few rows. Otherwise tasks
answer left rows from an index of right rows: of all of them, read once and sent to every task, if they fit the budget;
if not, both sides are cut at split points and every range has an index of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.exchange.delivery import SIDE
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.rows.columns import take_columns, valid_rows
from dovetail.engine.rows.keys import KeyEncoder, bound_numbers
from dovetail.errors import BudgetExceeded
from dovetail.joins.interval.index.answers import COUNT, Kind, Question, answer_cell, sent_right
from dovetail.joins.interval.index.count import Side as Coded
from dovetail.joins.interval.index.count import count_pairs
from dovetail.joins.interval.index.top import top_overlap_pairs, top_overlap_threshold
from dovetail.joins.interval.plan.cells import ROW, WHOLE
from dovetail.joins.interval.plan.ranges import RangeCells, in_ranges, side_columns
from dovetail.joins.interval.plan.route import Route
from dovetail.joins.interval.plan.sides import Side, Sides, raise_inverted
from dovetail.joins.interval.plan.statistics import ROW_IN_PARTITION, row_counts
from dovetail.joins.interval.relation import INVERTED, USABLE, Encoded, classify, encode_sides
from dovetail.spark.frames import quoted, read_small, unquoted
from dovetail.spark.hosts.batch import exchange, nullable, one_partition, task_frame
from dovetail.spark.hosts.sent import answered

DRIVER_BUDGETS = 2  # budgets of a task that the bounds of both sides may take on the driver
_ONE_MATCH = ("first", "last", "any")


@dataclass(frozen=True, slots=True)
class OnDriver:
    """How much an index on the driver reads, beyond which it refuses: rows of a partition, and whole rows for the top.

    `of_partition` is None where the number of rows is known.
    """

    of_partition: int | None = None
    whole_rows: int = 0


@dataclass(frozen=True, slots=True)
class IndexRoute(Route):
    """Answers questions from an index, in tasks or on the driver.

    Without cells every task has an index of the whole right side; with them, of the right rows of its range, and only
    semi joins, anti joins and counts are answered. On the driver only the total and the longest overlaps are.
    """

    inputs: Sides
    reason: str
    cells: RangeCells | None = None
    seconds: float | None = None
    driver: OnDriver | None = None

    name: str = field(default="in_memory", init=False)
    algorithm: str = field(default="index", init=False)

    def answer(self, left: Side, right: Side) -> DataFrame:
        """Left rows of a semi or anti join, or left rows with one match each; sides are checked."""
        request = self.inputs.request
        if self.cells is not None:
            return self._join(left, right).answer(request.how, request.keep)
        kind: Kind = request.how if request.left_only else request.keep  # type: ignore[assignment]  # checked names
        return self._ask_all(left, right, kind, request.how == "left")

    def counts(self, left: Side, right: Side) -> DataFrame:
        """Left rows with the number of their matches."""
        if self.cells is None:
            return self._ask_all(left, right, "count")
        left = replace(left, kept=True)
        others = self.cells.add(right, right.frame)
        return summed_over_ranges(
            left, self.cells, (COUNT,), lambda rows: self._ask_ranges(left, rows, right, others, "count")
        )

    def total(self) -> int:
        """The number of pairs; `BudgetExceeded` if the driver finds more bounds than it was told."""
        if self.driver is None:
            left, right = self.inputs.checked()
            counted = self.counts(replace(left, frame=bounds_only(left)), right)
            return int(counted.agg(F.coalesce(F.sum(COUNT), F.lit(0))).first()[0])  # type: ignore[index]  # has a row
        request, sides = self.inputs.request, (self.inputs.left, self.inputs.right)
        tables = self._read_bounds(*sides)
        budget = MemoryBudget(DRIVER_BUDGETS * request.memory, "interval count")
        for side, table in zip(sides, tables, strict=True):
            budget.reserve(side.name).grow(table.nbytes)
        usable = [_usable(side, table, request.invalid) for side, table in zip(sides, tables, strict=True)]
        both, *coded = _coded(sides, tables)
        left_rows, right_rows = (rows.take(chosen) for rows, chosen in zip(coded, usable, strict=True))
        return count_pairs(left_rows, right_rows, request.relation.table(), both.h, both.shift)

    def top(self, k: int) -> DataFrame:
        """The k pairs that overlap longest, as a local DataFrame with the columns of both sides.

        The k-th longest overlap is found from the bounds alone; only rows at least that long are then read. Too many
        of them are a `BudgetExceeded`.
        """
        assert self.driver is not None, "tasks rank no pairs"  # noqa: S101  (planning asks the driver)
        left, right = sides = self.inputs.checked()
        bounds = self._read_bounds(left, right)
        threshold = top_overlap_threshold(*_coded(sides, bounds)[1:], k, *_lengths(sides, bounds))
        if threshold is not None:
            shortest = _as_length(left, threshold.length)
            left, right = (
                replace(s, frame=s.frame.where(f"{s.measure(s.end)} - {s.measure(s.start)} >= {shortest}"))
                for s in sides
            )
        if sum(row_counts((left, right))) > self.driver.whole_rows:
            raise BudgetExceeded(f"more than {self.driver.whole_rows} rows are as long as the overlap of pair {k}")
        with ThreadPoolExecutor(2) as pool:
            first, second = whole = tuple(pool.map(lambda side: side.frame.toArrow(), (left, right)))
        found = top_overlap_pairs(*_coded(sides, whole)[1:], k, *_lengths(sides, whole))
        columns = [*take_columns(first, found.left).columns, *take_columns(second, found.right).columns]
        table = pa.Table.from_arrays(columns, names=[*first.schema.names, *second.schema.names])
        schema = T.StructType(left.frame.schema.fields + right.frame.schema.fields)
        return one_partition(left.frame.sparkSession.createDataFrame(table, schema), shuffled=False)

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [] if self.cells is None else [self.cells.explain(self.inputs.left, self.inputs.right)]

    def _ask_all(self, left: Side, right: Side, kind: Kind, outer: bool = False) -> DataFrame:
        """Left rows with their answer; reads the right side now, the left side when Spark runs the result."""
        request, sink = self.inputs.request, self.inputs.sink
        wanted = right.frame if kind in _ONE_MATCH else bounds_only(right)
        mine, theirs = (
            side_columns(side, {c: c for c in rows.columns}) for side, rows in ((left, left.frame), (right, wanted))
        )
        question = Question(kind, request.relation, mine, theirs, request.memory, outer)
        fields = _answer_fields(left.frame, kind)
        if kind in _ONE_MATCH:
            fields += nullable(wanted.schema)
        return answered(left.frame, sent_right(question, wanted.toArrow()), sink, fields)

    def match(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool) -> DataFrame:
        """Rows that match, or do not, within their range."""
        return self._ask_ranges(first, rows, second, others, "left_semi" if how == "left_semi" else "left_anti")

    def _ask_ranges(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, kind: Kind) -> DataFrame:
        """Rows with their answer in each of their ranges; a pair counts in one range only."""
        request, cells = self.inputs.request, self.cells
        assert cells is not None, "asked range by range without ranges"  # noqa: S101  (our callers)
        keep = [second.start, second.end, *second.keys, second.own("cell"), second.own("in")]
        others = others.select(*dict.fromkeys(keep))
        relation = request.relation.swapped() if first.name == "right" else request.relation
        counted_once = kind == "count" and cells.both_split
        started = (first.own("in"), second.own("in")) if counted_once else None
        placed, places = exchange(in_ranges(first, rows), in_ranges(second, others), cells.ranges)
        columns = side_columns(first, places.left), side_columns(second, places.right)
        question = Question(kind, relation, *columns, request.memory, started=started)
        rows_last = placed.sortWithinPartitions(F.desc(SIDE))
        return task_frame(rows_last, answer_cell, question, self.inputs.sink, _answer_fields(rows, kind))

    def _read_bounds(self, left: Side, right: Side) -> tuple[pa.Table, pa.Table]:
        """Bounds and keys of both sides on the driver, from one job: their types are the same."""
        most = None if self.driver is None else self.driver.of_partition
        place = [] if most is None else [f"{ROW_IN_PARTITION} as row"]
        named = [[side.start, side.end, *side.keys] for side in (left, right)]
        frames = [
            side.frame.selectExpr(f"{number}Y as side", *place, *(f"{name} as c{n}" for n, name in enumerate(names)))
            for number, (side, names) in enumerate(zip((left, right), named, strict=True))
        ]
        rows = frames[0].union(frames[1])
        table = rows.toArrow() if most is None else read_small(rows.where(f"row <= {most}"))
        if most is not None and pc.max(table["row"]).as_py() == most:
            raise BudgetExceeded(f"a partition has more than {most} rows, which its size did not suggest")
        first, second = (
            pa.table({unquoted(name): rows[f"c{n}"] for n, name in enumerate(names)})
            for rows, names in zip(_by_side(table), named, strict=True)
        )
        return first, second


def summed_over_ranges(
    left: Side, cells: RangeCells, added: Sequence[str], ask: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Left rows with answers that add up over ranges; only rows that reach several ranges are added up afterwards.

    `ask` gives the rows, as it gets them, with the columns `added`.
    """
    columns = [quoted(column) for column in left.frame.columns]
    rows = cells.add(left, left.frame.withColumn(ROW, F.monotonically_increasing_id()))
    ranges = left.own("n")
    alone, parts = ask(rows.where(f"{ranges} = 1")), ask(rows.where(f"{ranges} > 1")).groupBy(ROW)
    summed = parts.agg(F.first(F.struct(*columns)).alias(WHOLE), *(F.sum(name).alias(name) for name in added))
    return alone.select(*columns, *added).unionByName(summed.select(f"{WHOLE}.*", *added))


def _answer_fields(rows: DataFrame, kind: Kind) -> list[T.StructField]:
    return [*nullable(rows.schema), *([T.StructField(COUNT, T.LongType(), False)] if kind == "count" else [])]


def bounds_only(side: Side) -> DataFrame:
    """The bounds and keys of a side."""
    return side.frame.select(*dict.fromkeys((side.start, side.end, *side.keys)))


def _bounds(side: Side, table: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    return table[unquoted(side.start)], table[unquoted(side.end)]


def _usable(side: Side, table: pa.Table, invalid: str) -> npt.NDArray[np.bool_]:
    """Which rows can match; a `DataError` for inverted ones that are an error."""
    kinds = classify(*_bounds(side, table), side.closed)
    inverted = int((kinds == INVERTED).sum())
    if inverted and invalid == "error":
        raise_inverted(side, inverted)
    usable: npt.NDArray[np.bool_] = kinds == USABLE
    for key in side.keys:
        usable = usable & valid_rows(table[unquoted(key)].combine_chunks())
    return usable


def _coded(sides: tuple[Side, Side], tables: tuple[pa.Table, ...]) -> tuple[Encoded, Coded, Coded]:
    """The codes of bounds and keys of both sides, and their scale."""
    left, right = (_bounds(side, table) for side, table in zip(sides, tables, strict=True))
    both = encode_sides(left, right, sides[0].closed, sides[1].closed)
    keys = [[table[unquoted(key)] for key in side.keys] for side, table in zip(sides, tables, strict=True)]
    encoder = KeyEncoder([column.type for column in keys[0]]) if keys[0] else None
    mine, theirs = (None if encoder is None else encoder.encode(columns)[0] for columns in keys)
    return both, Coded(mine, both.left_start, both.left_end), Coded(theirs, both.right_start, both.right_end)


def _lengths(sides: tuple[Side, Side], tables: tuple[pa.Table, ...]) -> list[Any]:
    """The bounds as numbers whose differences are lengths."""
    return [tuple(map(bound_numbers, _bounds(side, table))) for side, table in zip(sides, tables, strict=True)]


def _by_side(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of either side; a batch is of one side, unless Spark read partitions of both in one task."""
    found: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
    for batch in table.to_batches():
        tags = batch["side"].to_numpy()
        for number, batches in enumerate(found):
            chosen = tags == number
            if chosen.any():
                batches.append(batch if chosen.all() else batch.filter(pa.array(chosen)))
    left, right = (pa.Table.from_batches(batches, table.schema) for batches in found)
    return left, right


def _as_length(side: Side, length: Any) -> str:
    """SQL: a length of the kernels as a difference of measures; of floats a little shorter, as both round."""
    kind = side.bound_type
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return f"double('{float(length) * (1 - 1e-6)!r}')"
    digits = 6 if isinstance(kind, (T.TimestampNTZType, T.DayTimeIntervalType)) else 0
    digits = kind.scale if isinstance(kind, T.DecimalType) else digits
    return f"cast('{Decimal(int(length)).scaleb(-digits):f}' as decimal(38, {digits}))"
