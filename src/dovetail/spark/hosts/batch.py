"""The batch host: a join of buckets over DataFrames that end, every bucket in one task.

Joins that need no buckets are functions over Arrow batches; `dovetail.spark.arrow` runs these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.spark.arrow import Batches, map_in_arrow
from dovetail.spark.hosts.exchange import ORDER, PACKED, BucketedInputs, Packet, pack

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
    placed = reduce(DataFrame.union, parts).repartitionById(buckets, F.col("bucket").cast("int"))
    return map_in_arrow(placed.sortWithinPartitions("bucket", *ORDER), partial(_joined, join), output)


def _joined(join: Callable[[Bucketed], Batches], batches: Batches) -> Batches:
    return join(_packets(batches))


def _packets(batches: Batches) -> Bucketed:
    names = ("bucket", *Packet._fields[:-1])
    for batch in batches:
        lines = (batch.column(name).to_pylist() for name in names)
        for bucket, *fields, rows in zip(*lines, batch.column("rows"), strict=True):
            yield bucket, Packet._make([*fields, rows.as_buffer() if rows.is_valid else None])
