"""The batch host: joins over DataFrames that end.

* `task_frame`: a function over the Arrow batches of each partition, with its metrics; `mapped_frame` without.
* `numbered`: a row for each of a number of tasks. `one_partition`, `copied_to_tasks`: all rows in one task, or in all.
* `exchange_by_id`, `exchange_by_hash`, `exchange_by_range`: rows of one input, each partition in one task.
* `exchange_bundled`: rows of both sides of a join in bundles, each partition in one task; `task_frame` runs the join.
* `exchange_sorted`: the same in packets, sorted by the tasks.
* `exchange`: the same row by row, for what Spark must sort.
* `bucket_frame`: a join of buckets, which packs rows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.exchange.delivery import (
    CELL,
    LEFT,
    RIGHT,
    ROWS,
    SIDE,
    SIDES,
    Bundling,
    Copied,
    InColumn,
    Placement,
    Places,
    bundle_rows,
)
from dovetail.engine.exchange.packets import FIRST, Packing, pack_rows
from dovetail.engine.metrics import Metrics
from dovetail.spark.frames import RESERVED, Batches, arrow_type, column_of, map_in_arrow, quoted
from dovetail.spark.hosts.exchange import ORDER, PACKED, BucketedInputs, Packet, pack
from dovetail.spark.task import MetricsSink

ColumnOrName: TypeAlias = Column | str
Join = Callable[[Any, Batches, Metrics], Batches]
"""Gives the answers of a task from its specification and its batches, and counts what it does."""


def task_frame(rows: DataFrame, join: Join, task: Any, sink: MetricsSink, output: Iterable[T.StructField]) -> DataFrame:
    """The answers of the tasks, as a lazy DataFrame with these columns; their metrics go to the sink."""
    return map_in_arrow(rows, partial(reported, join, task, sink), T.StructType(list(output)))


def mapped_frame(rows: DataFrame, function: Callable[[Batches], Batches], output: Iterable[T.StructField]) -> DataFrame:
    """The results of a function over the batches of each partition, as a lazy DataFrame with these columns."""
    return map_in_arrow(rows, function, T.StructType(list(output)))


def numbered(spark: SparkSession, tasks: int) -> DataFrame:
    """A partition for each task, whose only row is the number of the task."""
    return spark.range(0, tasks, 1, tasks)


def one_partition(rows: DataFrame, shuffled: bool) -> DataFrame:
    """All rows in one partition; without a shuffle one task also computes them."""
    return rows.repartition(1) if shuffled else rows.coalesce(1)


def copied_to_tasks(rows: DataFrame) -> DataFrame:
    """The few rows of one side of a join of Spark's, to be broadcast."""
    return F.broadcast(rows)


def exchange_by_id(rows: DataFrame, partitions: int, number: Column, order: Sequence[ColumnOrName] = ()) -> DataFrame:
    """The rows in the partitions of these numbers, sorted there."""
    placed = rows.repartitionById(partitions, number)
    return placed.sortWithinPartitions(*order) if order else placed


def exchange_by_hash(rows: DataFrame, by: Sequence[ColumnOrName]) -> DataFrame:
    """The rows, those with equal values in one partition."""
    return rows.repartition(*by)


def exchange_by_range(rows: DataFrame, by: Sequence[ColumnOrName], then: Sequence[ColumnOrName] = ()) -> DataFrame:
    """The rows in the order of these values from partition to partition, and sorted in each, also by `then`."""
    return rows.repartitionByRange(*by).sortWithinPartitions(*by, *then)


def nullable(fields: Iterable[T.StructField]) -> list[T.StructField]:
    """The fields of an input as those of an answer, in which they may be null."""
    return [T.StructField(field.name, field.dataType, True) for field in fields]


def reported(join: Join, task: Any, sink: MetricsSink, batches: Batches) -> Batches:
    """The join's batches; its metrics are reported before the last batch, because Spark may not ask for more."""
    metrics = Metrics()
    waiting: pa.RecordBatch | None = None
    for batch in join(task, batches, metrics):
        if waiting is not None:
            yield waiting
        waiting = batch
    sink.task(metrics)
    if waiting is not None:
        yield waiting


class Placed(NamedTuple):
    """The rows of one side, the column that has the number of their partition, and the columns that tasks need.

    Tasks that bundle rows may find the partition themselves, by `placement`.
    """

    rows: DataFrame
    cell: str
    columns: Sequence[str]
    placement: Placement | None = None

    @property
    def fields(self) -> list[T.StructField]:
        """The columns that tasks need, with their types."""
        return [self.rows.schema[name] for name in self.columns]

    @property
    def schema(self) -> pa.Schema:
        """The same in tasks."""
        return pa.schema([(field.name, arrow_type(field.dataType)) for field in self.fields])


def exchange(
    left: Placed, right: Placed, partitions: int, pairs: Sequence[tuple[str, str]] = ()
) -> tuple[DataFrame, Places]:
    """The rows of both sides, each partition in one task, and where their columns are.

    Columns of one type share a place, first of all the given pairs of a left and a right column. The caller sorts.
    """
    places, owns, kinds = _laid_out(left, right, pairs)
    sides = zip((left, right), (LEFT, RIGHT), owns, strict=True)
    mine, theirs = (_tagged(side, tag, own, kinds) for side, tag, own in sides)
    return exchange_by_id(mine.union(theirs), partitions, F.col(CELL)), places


_BUNDLES = T.StructType().add(SIDE, T.ByteType()).add(CELL, T.IntegerType()).add(ROWS, T.BinaryType())
_PACKETS = (
    T.StructType().add(SIDE, T.ByteType()).add(CELL, T.IntegerType()).add(FIRST, T.LongType()).add(ROWS, T.BinaryType())
)


def exchange_bundled(
    left: Placed, right: Placed, partitions: int, memory: int, copied: Copied | None = None
) -> tuple[DataFrame, dict[str, pa.Schema]]:
    """The rows of both sides in bundles, each partition in one task, and the columns of each side.

    `copied` says which right rows go to other partitions, too; it is given all columns of `right.rows`.
    """
    schemas, parts = {}, []
    for number, (name, side) in enumerate(zip(SIDES, (left, right), strict=True)):
        schemas[name] = side.schema
        placement = side.placement or InColumn(side.cell)
        bundling = Bundling(number, placement, side.schema, memory, copied if name == "right" else None)
        parts.append(map_in_arrow(side.rows, partial(bundle_rows, bundling), _BUNDLES))
    return parts[0].union(parts[1]).repartitionById(partitions, F.col(CELL)), schemas


def exchange_sorted(
    left: Placed, right: Placed, partitions: int, order: tuple[str, str], memory: int
) -> tuple[DataFrame, dict[str, pa.Schema]]:
    """The rows of both sides in packets, ordered by a column of each side, and the columns of each side.

    Tasks sort rows in chunks that fit `memory` before the exchange, and merge them behind it: Spark moves and orders
    packets of many rows.
    """
    schemas, parts = {}, []
    for number, (name, side) in enumerate(zip(SIDES, (left, right), strict=True)):
        schemas[name] = side.schema
        packing = Packing(number, side.cell, order[number], side.schema, memory)
        rows = side.rows.select(*map(quoted, dict.fromkeys([*side.columns, side.cell])))
        parts.append(map_in_arrow(rows, partial(pack_rows, packing), _PACKETS))
    return exchange_by_id(parts[0].union(parts[1]), partitions, F.col(CELL), [FIRST]), schemas


def _laid_out(
    left: Placed, right: Placed, pairs: Sequence[tuple[str, str]]
) -> tuple[Places, list[dict[str, str]], dict[str, T.DataType]]:
    """The places of columns, of each side the column in each of its places, and the type of every place."""
    places = _places(left.fields, right.fields, pairs)
    kinds: dict[str, T.DataType] = {}
    owns = []
    for number, side in enumerate((left, right)):
        own = dict(zip(places.paired, (pair[number] for pair in pairs), strict=True))
        own |= {place: name for name, place in (places.left, places.right)[number].items()}
        kinds |= {place: side.rows.schema[name].dataType for place, name in own.items()}
        owns.append(own)
    return places, owns, kinds


def _places(left: list[T.StructField], right: list[T.StructField], pairs: Sequence[tuple[str, str]]) -> Places:
    """A column that is part of several pairs has a place for each; its rows are read from the first."""
    mine: dict[str, str] = {}
    theirs: dict[str, str] = {}
    paired = tuple(f"{RESERVED}p{number}" for number in range(len(pairs)))
    for place, (one, other) in zip(paired, pairs, strict=True):
        mine.setdefault(one, place)
        theirs.setdefault(other, place)
    free = []
    for number, field in enumerate(left):
        if field.name not in mine:
            mine[field.name] = f"{RESERVED}c{number}"
            free.append((field.dataType, mine[field.name]))
    for number, field in enumerate(right):
        if field.name not in theirs:
            shared = next((each for each in free if each[0] == field.dataType), None)
            theirs[field.name] = f"{RESERVED}d{number}" if shared is None else shared[1]
            if shared is not None:
                free.remove(shared)
    first, second = ({f.name: own[f.name] for f in side} for side, own in ((left, mine), (right, theirs)))
    return Places(first, second, paired)


def _tagged(side: Placed, tag: int, own: dict[str, str], kinds: dict[str, T.DataType]) -> DataFrame:
    """The rows with their side, their partition and their columns in their places, and nulls in the other places."""

    def column(place: str) -> Column:
        return column_of(own[place]) if place in own else F.lit(None).cast(kinds[place])

    tags = F.lit(tag).cast("byte").alias(SIDE), column_of(side.cell).cast("int").alias(CELL)
    return side.rows.select(*tags, *(column(place).alias(place) for place in kinds))


Bucketed = Iterator[tuple[int, Packet]]
"""Packets with their buckets."""


def bucket_frame(
    inputs: Sequence[DataFrame],
    bucketed: BucketedInputs,
    join: Callable[[Bucketed], Batches],
    buckets: int,
    output: T.StructType,
) -> DataFrame:
    """The answers of a join, as a lazy DataFrame.

    `join` gives those of a partition. It gets the packets of one bucket after the other, those of a bucket in the order
    in which they were read.
    """
    parts = [map_in_arrow(rows, partial(pack, bucketed, False, side), PACKED) for side, rows in enumerate(inputs)]
    together, number = reduce(DataFrame.union, parts), F.col("bucket").cast("int")
    return map_in_arrow(exchange_by_id(together, buckets, number, ["bucket", *ORDER]), partial(_joined, join), output)


def _joined(join: Callable[[Bucketed], Batches], batches: Batches) -> Batches:
    return join(_packets(batches))


def _packets(batches: Batches) -> Bucketed:
    names = ("bucket", *Packet._fields[:-1])
    for batch in batches:
        lines = (batch.column(name).to_pylist() for name in names)
        for bucket, *fields, rows in zip(*lines, batch.column("rows"), strict=True):
            yield bucket, Packet._make([*fields, rows.as_buffer() if rows.is_valid else None])
