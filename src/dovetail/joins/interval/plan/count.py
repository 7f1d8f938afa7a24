"""How many pairs match, in all or per left row: answers that need no pairs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.keys import KeyEncoder
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.interval.answers import COUNT, INDEX_BYTES
from dovetail.joins.interval.codes import INVERTED, USABLE, classify, encode_sides
from dovetail.joins.interval.index.count import Side as Coded
from dovetail.joins.interval.index.count import count_pairs
from dovetail.joins.interval.plan.answers import (
    IndexMeeting,
    can_stream_codes,
    counted_in_ranges,
    right_fits,
    shipped_answer,
)
from dovetail.joins.interval.plan.native import strategy
from dovetail.joins.interval.plan.plan import make_plan
from dovetail.joins.interval.plan.route import range_cells
from dovetail.joins.interval.plan.sides import Side, prepare, quoted, raise_inverted, spark_only, unquoted
from dovetail.joins.interval.plan.statistics import collect_statistics
from dovetail.joins.interval.request import Request
from dovetail.spark.metrics import MetricsSink

POINT_BYTES = 24  # of a row on the driver: two bounds, and a key or the sort's scratch


def count_all(left: DataFrame, right: DataFrame, request: Request) -> int:
    """The number of matching pairs.

    Bounds that fit the budget are counted on the driver; otherwise left rows are counted by tasks and added up.
    """
    if request.condition is not None:
        return make_plan(left, right, request).frame().count()
    sides = prepare(left, right, request)
    if spark_only(*sides) is None and sum(_kept_counts(sides)) * POINT_BYTES <= request.memory:
        with suppress(BudgetExceeded):  # many rows have come since they were counted
            coded, h, shift = _collect(sides, request)
            return count_pairs(*coded, request.relation.table(), h, shift)
    counted = count_rows(left, right, request, columns=())
    return int(counted.agg(F.coalesce(F.sum(COUNT), F.lit(0))).first()[0])  # type: ignore[index]  # an aggregate has a row


def count_rows(
    left: DataFrame, right: DataFrame, request: Request, columns: tuple[str, ...] | None = None
) -> DataFrame:
    """Left rows with the number of their matches, `n_overlaps`."""
    if COUNT in left.columns:
        raise PlanError(f"left input already has a column {COUNT!r}; rename it first", argument="left")
    request = replace(request, how="left_anti")  # every left row is kept, and right rows are not
    sides = prepare(left, right, request)
    stats = collect_statistics(*sides, request.invalid)
    low, high = min(s.low for s in stats), max(s.high for s in stats)
    sink = MetricsSink(left.sparkSession)
    checked_left, checked_right = (side.checked(request.invalid) for side in sides)
    wanted = [quoted(name) for name in (checked_left.payload if columns is None else columns)]
    codes = can_stream_codes(sides[0], request.relation, low, high) and request.condition is None
    codes = codes and spark_only(*sides) is None
    if codes and right_fits(stats[1], request.memory):
        shipped = shipped_answer(checked_left, checked_right, "count", request.relation, request.memory, sink, False)
        return shipped.select(*wanted, COUNT)
    if codes and strategy(request.relation) == "bins":
        total = sum(s.usable for s in stats)
        ranges = max(2, -(-total * INDEX_BYTES * 3 // request.memory))
        cells = range_cells(request, sides[0], stats, min(ranges, 2000))
        meeting = IndexMeeting(request.relation, request.memory, cells, sink)
        return counted_in_ranges(checked_left, checked_right, cells, meeting).select(*wanted, COUNT)
    return _counted_from_pairs(left, right, request).select(*wanted, COUNT)


def _counted_from_pairs(left: DataFrame, right: DataFrame, request: Request) -> DataFrame:
    """Counts by joining and adding up: for conditions, and for bounds that have no codes."""
    row, one = "__row", "__one"
    tagged = left.withColumn(row, F.monotonically_increasing_id())
    pairs = make_plan(tagged, right.withColumn(one, F.lit(1)), replace(request, how="left", columns=None)).frame()
    whole = F.first(F.struct(*map(quoted, left.columns))).alias("__whole")
    counted = pairs.groupBy(row).agg(whole, F.count(one).alias(COUNT))
    return counted.select("__whole.*", COUNT)


# A DataFrame describes the same rows as long as it lives; how many decides where they are counted, not the answer.
_ROWS: WeakKeyDictionary[DataFrame, int] = WeakKeyDictionary()


def _kept_counts(sides: tuple[Side, Side]) -> list[int]:
    if not all(side.source in _ROWS for side in sides):
        for side, rows in zip(sides, row_counts(sides), strict=True):
            _ROWS[side.source] = rows
    return [_ROWS[side.source] for side in sides]


def row_counts(sides: tuple[Side, Side]) -> list[int]:
    """How many rows each side has."""
    counts = [side.frame.selectExpr("count(*) as n", f"{number} as i") for number, side in enumerate(sides)]
    found = {row["i"]: row["n"] for row in counts[0].union(counts[1]).collect()}
    return [found[0], found[1]]


def _collect(sides: tuple[Side, Side], request: Request) -> tuple[tuple[Coded, Coded], int, int]:
    """The usable bounds and keys of both sides as codes on the driver, charged to the budget."""
    tables = read_both(*(side.frame.select(*dict.fromkeys((side.start, side.end, *side.keys))) for side in sides))
    budget = MemoryBudget(2 * request.memory, "interval count")
    keep = []
    encoder = shared_encoder(tables[0], sides[0])
    keys: list[npt.NDArray[np.int64] | None] = []
    for side, table in zip(sides, tables, strict=True):
        budget.reserve(side.name).grow(table.nbytes)
        kinds = classify(table[unquoted(side.start)], table[unquoted(side.end)], side.closed)
        inverted = int((kinds == INVERTED).sum())
        if inverted and request.invalid == "error":
            raise_inverted(side, inverted)
        usable = kinds == USABLE
        codes = None
        if encoder is not None:
            codes, valid = encoder.encode([table[unquoted(key)].combine_chunks() for key in side.keys])
            usable &= valid
        keep.append(usable)
        keys.append(codes)
    bounds = [(table[unquoted(s.start)], table[unquoted(s.end)]) for s, table in zip(sides, tables, strict=True)]
    relation = request.relation
    both = encode_sides(bounds[0], bounds[1], relation.left_closed, relation.right_closed)
    starts, ends = (both.left_start, both.right_start), (both.left_end, both.right_end)
    coded = [
        Coded(None if key is None else key[usable], start[usable], end[usable])
        for key, usable, start, end in zip(keys, keep, starts, ends, strict=True)
    ]
    return (coded[0], coded[1]), both.h, both.shift


def shared_encoder(table: pa.Table, side: Side) -> KeyEncoder | None:
    """One encoder for the keys of both sides; None without keys."""
    return KeyEncoder([table.schema.field(unquoted(key)).type for key in side.keys]) if side.keys else None


def read_both(left: DataFrame, right: DataFrame) -> tuple[pa.Table, pa.Table]:
    """Both frames on the driver, read at the same time."""
    with ThreadPoolExecutor(2) as pool:
        tables = list(pool.map(lambda frame: frame.toArrow(), (left, right)))
    return tables[0], tables[1]
