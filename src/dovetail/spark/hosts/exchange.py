"""Exchanges rows between tasks, packed by bucket as Arrow record batches in a binary column.

Types stay exact, and Spark shuffles few large rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.rows.packing import CHUNK_ROWS, in_chunks, packed_rows
from dovetail.spark.frames import Batches
from dovetail.spark.task import TaskAttempt

if TYPE_CHECKING:
    from dovetail.engine.kernels.arrays import I64

PACKED = T.StructType(
    [
        T.StructField("bucket", T.LongType()),
        T.StructField("side", T.IntegerType()),
        T.StructField("part", T.IntegerType()),
        T.StructField("number", T.LongType()),
        T.StructField("rows", T.BinaryType()),
        T.StructField("ends", T.BooleanType()),
        T.StructField("n", T.LongType()),
        T.StructField("dropped", T.LongType()),
        T.StructField("rule", T.StringType()),
    ]
)
"""A packet: rows of an input for one bucket. `rule` says what the bucket of a row depends on."""
ORDER = ["number", "part", "side"]  # as read, all inputs in turn, whatever the shuffle did
_SEED, _MASK = 42, 0xFFFFFFFF  # of Spark's hash partitioning
Homes: TypeAlias = "tuple[I64, I64, int]"
"""Row numbers and their buckets, ordered by bucket and then by row; and the number of rows without a bucket."""


class Packet(NamedTuple):
    """Rows of one input from one partition for one bucket; `rows` says where they are held, None if there are none."""

    number: int
    part: int
    side: int
    n: int
    dropped: int
    ends: bool
    rule: str
    rows: pa.Buffer | int | None


class Exchange(Protocol):
    """Assigns rows of inputs to buckets."""

    @property
    def count(self) -> int:
        """The number of buckets."""
        ...

    @property
    def rule(self) -> str:
        """Everything that a row's bucket depends on beside the join itself, as text."""
        ...

    def homes(self, side: int, rows: pa.RecordBatch) -> Homes:
        """The buckets of these rows of an input."""
        ...


class BucketedInputs(Protocol):
    """A join's declaration of its inputs: their columns, and how rows are assigned to buckets."""

    @property
    def marked(self) -> bool:
        """Whether the last column of each input is true where that input ends."""
        ...

    @property
    def calls_all(self) -> bool:
        """Whether every bucket is called in every micro-batch that has rows, even if the bucket has none."""
        ...

    @property
    def chunk_bytes(self) -> int:
        """Bytes of rows that are packed together, over all buckets; a batch of Spark may be larger."""
        ...

    def exchange(self) -> AbstractContextManager[Exchange]:
        """The exchange of the running task."""
        ...

    def take_rows(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of Spark, without the column of marks, in the columns of the join."""
        ...


def pack(inputs: BucketedInputs, labelled: bool, side: int, batches: Batches) -> Batches:
    """Packets of the rows of an input. If `labelled`, Spark's hash of the column `bucket` is the bucket.

    The first bucket gets a packet of every batch, so that it sees a new rule before any bucket gets rows by it.
    """
    number, ended = 0, False
    with inputs.exchange() as exchange:
        every: dict[int, pa.RecordBatch | None] = dict.fromkeys(range(exchange.count))
        labels = np.array([label(n) if labelled else n for n in every], np.int64)
        address = _Address(labels, exchange.rule, side, TaskAttempt.here().partition)
        for chunk in in_chunks(batches, CHUNK_ROWS, inputs.chunk_bytes):
            rows = chunk
            if inputs.marked:
                rows, marks = chunk.select(range(chunk.num_columns - 1)), chunk.column(chunk.num_columns - 1)
                ended = ended or bool(pc.any(marks).as_py())
            rows = inputs.take_rows(side, rows)
            positions, buckets, dropped = exchange.homes(side, rows)
            called = every if inputs.calls_all and number == 0 else {0: None}
            yield address.packets(number, called | _by_bucket(rows, positions, buckets), dropped)
            number += 1
        if ended:
            yield address.packets(number, every, 0, ends=True)


def _by_bucket(rows: pa.RecordBatch, positions: I64, buckets: I64) -> dict[int, pa.RecordBatch]:
    """The rows of each bucket that has some, in their order."""
    ordered = rows.take(pa.array(positions))
    found, starts = np.unique(buckets, return_index=True)
    stops = np.append(starts, len(buckets))[1:]
    cuts = zip(found.tolist(), starts.tolist(), stops.tolist(), strict=True)
    return {bucket: ordered.slice(start, stop - start) for bucket, start, stop in cuts}


class _Address(NamedTuple):
    """Fields that all packets of a task share: labels of buckets, their rule, input and partition."""

    labels: I64
    rule: str
    side: int
    part: int

    def packets(
        self, number: int, rows: Mapping[int, pa.RecordBatch | None], dropped: int, ends: bool = False
    ) -> pa.RecordBatch:
        """A packet for each of these buckets."""
        n = len(rows)
        return pa.RecordBatch.from_pydict(
            {
                "bucket": pa.array(self.labels[list(rows)], pa.int64()),
                "side": pa.array([self.side] * n, pa.int32()),
                "part": pa.array([self.part] * n, pa.int32()),
                "number": pa.array([number] * n, pa.int64()),
                "rows": packed_rows(rows.values()),
                "ends": pa.array([ends] * n, pa.bool_()),
                "n": pa.array([0 if some is None else some.num_rows for some in rows.values()], pa.int64()),
                "dropped": pa.array([dropped] + [0] * (n - 1), pa.int64()),
                "rule": pa.array([self.rule] * n, pa.string()),
            }
        )


def label(bucket: int) -> int:
    """The value of Spark's grouping key for a bucket: the one whose hash is the bucket's number.

    So bucket i is in partition i modulo the number of partitions, whatever that number is, and a bucket's label never
    changes. It is the inverse of Murmur3 of a long whose lower half is 0.
    """
    h = bucket
    h ^= h >> 16
    h = h * pow(0xC2B2AE35, -1, 1 << 32) & _MASK
    h ^= h >> 13 ^ h >> 26
    h = h * pow(0x85EBCA6B, -1, 1 << 32) & _MASK
    h ^= h >> 16 ^ 8
    h = _unmixed(h) ^ _rotated(_SEED, 13) * 5 + 0xE6546B64 & _MASK
    k = _rotated(h * pow(0x1B873593, -1, 1 << 32) & _MASK, 17) * pow(0xCC9E2D51, -1, 1 << 32) & _MASK
    return (k - (1 << 32) if k >> 31 else k) << 32


def _unmixed(h: int) -> int:
    return _rotated((h - 0xE6546B64) * pow(5, -1, 1 << 32) & _MASK, 19)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
