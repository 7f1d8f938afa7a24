"""The index route: counts, semi and anti joins, first matches and the longest overlaps, without forming pairs.

Bounds that fit the budget are read and answered on the driver, if the answer is a number or a few rows. Otherwise tasks
answer left rows from an index of right rows: of all of them, read once and sent to every task, if they fit the budget;
if not, both sides are cut at split points and every range has an index of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.exchange.delivery import SIDE
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import take_columns
from dovetail.engine.rows.keys import KeyEncoder, bound_numbers
from dovetail.errors import BudgetExceeded
from dovetail.joins.interval.index.answers import COUNT, Kind, Question, answer_cell, sent_right
from dovetail.joins.interval.index.count import Side as Coded
from dovetail.joins.interval.index.count import count_pairs
from dovetail.joins.interval.index.top import top_overlap_pairs, top_overlap_threshold
from dovetail.joins.interval.plan.cells import ROW, WHOLE, CellsJoin
from dovetail.joins.interval.plan.ranges import RangeCells, in_ranges, side_columns
from dovetail.joins.interval.plan.sides import Side, raise_inverted
from dovetail.joins.interval.plan.statistics import ROW_IN_PARTITION, Inputs, row_counts
from dovetail.joins.interval.relation import INVERTED, USABLE, classify, encode_sides
from dovetail.joins.interval.request import Request
from dovetail.spark.frames import quoted, unquoted
from dovetail.spark.hosts.batch import exchange, nullable, one_partition, task_frame
from dovetail.spark.hosts.sent import answered

_ONE_MATCH = ("first", "last", "any")
_Bounds = tuple[pa.ChunkedArray, pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class IndexRoute:
    """Answers questions about left rows in tasks, from an index of right rows.

    Without cells every task has an index of the whole right side; with them, of the right rows of its range, and only
    semi joins, anti joins and counts are answered. `seconds` is the predicted time of one core.
    """

    inputs: Inputs
    reason: str
    cells: RangeCells | None = None
    seconds: float | None = None

    name: ClassVar[str] = "in_memory"
    algorithm: ClassVar[str] = "index"

    def answer(self, left: Side, right: Side) -> DataFrame:
        """Left rows of a semi or anti join, or left rows with one match each; sides are checked."""
        request = self.inputs.request
        if self.cells is not None:
            return CellsJoin(left, right, self.cells, self._match).answer(request.how, request.keep)
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

    def explain(self) -> list[str]:
        """The placement of rows, a line each."""
        return [] if self.cells is None else [self.cells.explain(self.inputs.left, self.inputs.right)]

    def add_measured(self, metrics: Metrics) -> Metrics:
        """The metrics, with those reported by the tasks of the last run."""
        return metrics.merge(self.inputs.sink.collect())

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

    def _match(self, first: Side, rows: DataFrame, second: Side, others: DataFrame, how: str, once: bool) -> DataFrame:
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


@dataclass(frozen=True, slots=True)
class DriverIndex:
    """Sorted bounds of both sides on the driver, for answers that are a number or a few rows.

    At most `most_each` rows are read per partition if their number is unknown; more are a `BudgetExceeded`.
    """

    request: Request
    left: Side
    right: Side
    most_each: int | None = None

    def count(self) -> int:
        """The number of matching pairs; `BudgetExceeded` if the bounds take more than twice the budget."""
        tables = self._read_bounds()
        budget = MemoryBudget(2 * self.request.memory, "interval count")
        encoder = self._encoder(tables[0])
        chosen = []
        for side, table in zip((self.left, self.right), tables, strict=True):
            budget.reserve(side.name).grow(table.nbytes)
            chosen.append(self._usable(side, table, encoder))
        relation = self.request.relation
        both = encode_sides(*self._bounds(tables), relation.left_closed, relation.right_closed)
        (left_key, left_usable), (right_key, right_usable) = chosen
        left = Coded(left_key, both.left_start[left_usable], both.left_end[left_usable])
        right = Coded(right_key, both.right_start[right_usable], both.right_end[right_usable])
        return count_pairs(left, right, relation.table(), both.h, both.shift)

    def _usable(
        self, side: Side, table: pa.Table, encoder: KeyEncoder | None
    ) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.bool_]]:
        """Key codes of the usable rows, None without keys, and which rows are usable."""
        kinds = classify(table[unquoted(side.start)], table[unquoted(side.end)], side.closed)
        inverted = int((kinds == INVERTED).sum())
        if inverted and self.request.invalid == "error":
            raise_inverted(side, inverted)
        usable = kinds == USABLE
        if encoder is None:
            return None, usable
        codes, valid = encoder.encode([table[unquoted(key)].combine_chunks() for key in side.keys])
        usable &= valid
        return codes[usable], usable

    def top(self, k: int, most_rows: int) -> DataFrame | None:
        """The k pairs that overlap longest, as a local DataFrame with the columns of both sides.

        The k-th longest overlap is found from the bounds alone; only rows at least that long are then read. None if
        those are more than `most_rows`.
        """
        left, right = self.left, self.right
        bounds = self._read_bounds()
        threshold = top_overlap_threshold(*self._coded(bounds), k, *self._lengths(bounds))
        if threshold is not None:
            shortest = _as_length(left, threshold.length)
            left, right = (
                replace(s, frame=s.frame.where(f"{s.measure(s.end)} - {s.measure(s.start)} >= {shortest}"))
                for s in (left, right)
            )
        if sum(row_counts((left, right))) > most_rows:
            return None
        whole = _read(left.frame, right.frame)
        found = top_overlap_pairs(*self._coded(whole), k, *self._lengths(whole))
        rows = [take_columns(table, at) for table, at in zip(whole, (found.left, found.right), strict=True)]
        names = [*whole[0].schema.names, *whole[1].schema.names]
        table = pa.Table.from_arrays([*rows[0].columns, *rows[1].columns], names=names)
        schema = T.StructType(left.frame.schema.fields + right.frame.schema.fields)
        pairs = left.frame.sparkSession.createDataFrame(table, schema)
        return one_partition(pairs, shuffled=False)

    def _read_bounds(self) -> tuple[pa.Table, pa.Table]:
        """Bounds and keys of both sides on the driver, from one job: their types are the same."""
        sides = [(side, [side.start, side.end, *side.keys]) for side in (self.left, self.right)]
        place = [] if self.most_each is None else [f"{ROW_IN_PARTITION} as row"]
        frames = [
            side.frame.selectExpr(f"{number}Y as side", *place, *(f"{name} as c{n}" for n, name in enumerate(names)))
            for number, (side, names) in enumerate(sides)
        ]
        rows = frames[0].union(frames[1])
        if self.most_each is not None:
            rows = rows.where(f"row <= {self.most_each}")
        table = rows.toArrow()
        if self.most_each is not None and pc.max(table["row"]).as_py() == self.most_each:
            raise BudgetExceeded(f"a partition has more than {self.most_each} rows, which its size did not suggest")
        found = _by_side(table)
        first, second = (
            pa.table({unquoted(name): rows[f"c{n}"] for n, name in enumerate(names)})
            for rows, (_, names) in zip(found, sides, strict=True)
        )
        return first, second

    def _bounds(self, tables: tuple[pa.Table, pa.Table]) -> tuple[_Bounds, _Bounds]:
        left, right = (
            (table[unquoted(side.start)], table[unquoted(side.end)])
            for table, side in zip(tables, (self.left, self.right), strict=True)
        )
        return left, right

    def _encoder(self, table: pa.Table) -> KeyEncoder | None:
        """One encoder for the keys of both sides; None without keys."""
        keys = self.left.keys
        return KeyEncoder([table.schema.field(unquoted(key)).type for key in keys]) if keys else None

    def _coded(self, tables: tuple[pa.Table, pa.Table]) -> tuple[Coded, Coded]:
        both = encode_sides(*self._bounds(tables), self.left.closed, self.right.closed)
        encoder = self._encoder(tables[0])
        left, right = (
            None if encoder is None else encoder.encode([t[unquoted(key)].combine_chunks() for key in s.keys])[0]
            for t, s in zip(tables, (self.left, self.right), strict=True)
        )
        return Coded(left, both.left_start, both.left_end), Coded(right, both.right_start, both.right_end)

    def _lengths(self, tables: tuple[pa.Table, pa.Table]) -> list[Any]:
        """The bounds as numbers whose differences are lengths."""
        return [(bound_numbers(start), bound_numbers(end)) for start, end in self._bounds(tables)]


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


def _read(left: DataFrame, right: DataFrame) -> tuple[pa.Table, pa.Table]:
    """Both frames on the driver, read at the same time."""
    with ThreadPoolExecutor(2) as pool:
        tables = list(pool.map(lambda frame: frame.toArrow(), (left, right)))
    return tables[0], tables[1]


def _as_length(side: Side, length: Any) -> str:
    """SQL: a length of the kernels as a difference of measures; of floats a little shorter, as both round."""
    kind = side.bound_type
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return f"double('{float(length) * (1 - 1e-6)!r}')"
    digits = 6 if isinstance(kind, (T.TimestampNTZType, T.DayTimeIntervalType)) else 0
    digits = kind.scale if isinstance(kind, T.DecimalType) else digits
    return f"cast('{Decimal(int(length)).scaleb(-digits):f}' as decimal(38, {digits}))"
