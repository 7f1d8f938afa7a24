"""Rows on their way to buckets and answers on their way back: Arrow record batches in binary columns.

So types stay exact, and what Spark shuffles is few and large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.arrays import I64
from dovetail.errors import DataError
from dovetail.joins.online.bucket_rule import BucketRule, Homes, MultiBucketRule
from dovetail.joins.online.lateness import Lateness
from dovetail.joins.online.request import Terms
from dovetail.joins.online.resident.joins import ResidentJoin
from dovetail.spark.arrow import Batches
from dovetail.spark.metrics import MetricsSink
from dovetail.spark.pinned import state_partitions

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
        T.StructField("spread", T.StringType()),
    ]
)
"""Rows of a side for one bucket; `spread` says what that bucket depends on, and is compared with the state."""
ORDER = ["number", "part", "side"]  # as read, all sides in turn, whatever the shuffle did
_PACKED_ANSWERS = T.StructType([T.StructField("rows", T.BinaryType())])
_FLAT = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType,
)  # fmt: skip
"""Types that come through pandas as they are, without a copy, if their columns are Arrow's."""
CHANGE_COLUMN = "_change_type"
"""What feeds of changes call the column that tells inserted rows from others; others cannot be joined."""
_SEED, _MASK = 42, 0xFFFFFFFF  # of Spark's hash partitioning
CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class OnlineTask:
    """One planned online join as its tasks see it.

    Without `buckets`, a stream has as many as its checkpoint has partitions. With `marked` the last column of each
    input says where it ends, and with `flat` answers need not be packed.
    """

    plan: str
    join: ResidentJoin
    request: Terms
    buckets: int | None
    streams: bool
    marked: bool
    answers: pa.Schema
    output: pa.Schema
    sink: MetricsSink
    lateness: Lateness | None = None
    flat: bool = False

    def spread(self) -> BucketRule | MultiBucketRule:
        """Which buckets rows belong to, the same in every micro-batch and after every restart."""
        return self.join.spread(self.buckets or state_partitions())


def pack(task: OnlineTask, side: int, batches: Batches) -> Batches:
    """The rows of a side by bucket; rows without a key are left out and counted."""
    context, schema = TaskContext.get(), task.join.schemas[task.join.names[side]]
    part = 0 if context is None else context.partitionId()
    spread, ended, number = task.spread(), False, -1
    labels = np.array([label(n) if task.streams else n for n in range(spread.count)], np.int64)
    address = _Address(labels, spread.rule, side, part)
    for number, chunk in enumerate(_chunks(batches)):
        rows, ends = chunk, False
        if task.marked:
            rows, ends = chunk.select(range(len(schema))), bool(pc.any(chunk.column(len(schema))).as_py())
        ended = ended or ends
        rows = as_schema(rows, schema)
        _check_appended(task.join.names[side], rows)
        yield _packed(address, number, rows, spread.homes(side, rows))
    if ended:
        everyone = np.arange(spread.count)
        yield _table(address, number + 1, everyone, [None] * spread.count, [0] * spread.count, 0, ends=True)


def _check_appended(name: str, rows: pa.RecordBatch) -> None:
    """`DataError` if there are rows that change or delete others: what was given for those cannot be taken back."""
    if CHANGE_COLUMN not in rows.schema.names:
        return
    kinds = set(pc.unique(rows.column(CHANGE_COLUMN)).to_pylist()) - {"insert", None}
    if kinds:
        raise DataError(
            f"{name} has rows with {CHANGE_COLUMN} {sorted(map(str, kinds))}; online joins take rows that are only "
            f"added: filter the input by {CHANGE_COLUMN} = 'insert', or drop that column to join each row as a new one."
        )


def _chunks(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Batches joined to larger ones, so that every bucket gets rows worth a message."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(waiting)


def as_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns in the types and under the names of a schema."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Address(NamedTuple):
    """What all rows of a task have in common: names of buckets, what these depend on, where the rows are from."""

    labels: I64
    spread: str
    side: int
    part: int


def _packed(address: _Address, number: int, rows: pa.RecordBatch, homes: Homes) -> pa.RecordBatch:
    """One row for each bucket that has some, and one for the first bucket in any case.

    So the first bucket sees in every micro-batch how rows are spread, and refuses before any go elsewhere than before.
    """
    ordered = rows.take(pa.array(homes.rows))
    buckets, starts = np.unique(homes.buckets, return_index=True)
    stops = np.append(starts, len(homes.buckets))[1:]
    data: list[bytes | None] = [
        ordered.slice(a, b - a).serialize().to_pybytes() for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    counts = (stops - starts).tolist()
    if len(buckets) == 0 or buckets[0] != 0:
        buckets, data, counts = np.insert(buckets, 0, 0), [None, *data], [0, *counts]
    return _table(address, number, buckets, data, counts, homes.dropped)


def _table(
    address: _Address,
    number: int,
    buckets: I64,
    data: Sequence[bytes | None],
    counts: Sequence[int],
    dropped: int,
    ends: bool = False,
) -> pa.RecordBatch:
    n = len(data)
    return pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array(address.labels[buckets], pa.int64()),
            "side": pa.array([address.side] * n, pa.int32()),
            "part": pa.array([address.part] * n, pa.int32()),
            "number": pa.array([number] * n, pa.int64()),
            "rows": pa.array(data, pa.binary()),
            "ends": pa.array([ends] * n, pa.bool_()),
            "n": pa.array(counts, pa.int64()),
            "dropped": pa.array([dropped] + [0] * (n - 1), pa.int64()),
            "spread": pa.array([address.spread] * n, pa.string()),
        }
    )


def is_flat(output: T.StructType) -> bool:
    """Whether answers of these columns can be given as they are; others are packed once more."""
    return all(type(field.dataType) in _FLAT for field in output)


def given_as(output: T.StructType) -> T.StructType:
    """What buckets give for an answer of these columns: the columns under plain names, or packed ones."""
    if not is_flat(output):
        return _PACKED_ANSWERS
    return T.StructType([T.StructField(f"c{at}", f.dataType, f.nullable) for at, f in enumerate(output)])


def unpack(task: OnlineTask, batches: Batches) -> Batches:
    """Packed answers as rows again."""
    for batch in batches:
        for data in batch.column(0):
            yield answer_rows(task, data.as_buffer())


def answer_rows(task: OnlineTask, data: pa.Buffer) -> pa.RecordBatch:
    """The rows of one answer; `DataError` if the bytes are none."""
    try:
        answer = pa.ipc.read_record_batch(data, task.answers)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"an answer of {len(data)} bytes cannot be read: {error}.") from error
    return as_schema(answer, task.output)


def label(bucket: int) -> int:
    """The value of Spark's grouping key for a bucket: the one whose hash is the bucket's number.

    So buckets are spread evenly over partitions, bucket i in partition i modulo their number, however many there are,
    and a bucket's name depends on nothing that can change. It is Murmur3 of a long, backwards; the lower half is 0.
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
