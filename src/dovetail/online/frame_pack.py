"""Rows on their way to buckets and answers on their way back: Arrow record batches in binary columns.

So types stay exact, and what Spark shuffles is few and large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import DataError
from dovetail.kernels.arrays import I32
from dovetail.online.hosted_join import HostedJoin
from dovetail.online.lateness import Lateness
from dovetail.online.request import Terms
from dovetail.online.spread import Homes
from dovetail.spark.arrow import Batches
from dovetail.spark.metrics import MetricsSink

PACKED = T.StructType(
    [
        T.StructField("bucket", T.IntegerType()),
        T.StructField("side", T.IntegerType()),
        T.StructField("part", T.IntegerType()),
        T.StructField("number", T.LongType()),
        T.StructField("rows", T.BinaryType()),
        T.StructField("ends", T.BooleanType()),
        T.StructField("n", T.LongType()),
        T.StructField("dropped", T.LongType()),
    ]
)
ORDER = ["number", "part", "side"]  # as read, all sides in turn, whatever the shuffle did
_PACKED_ANSWERS = T.StructType([T.StructField("rows", T.BinaryType())])
_FLAT = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType,
)  # fmt: skip
"""Types that come through pandas as they are, without a copy, if their columns are Arrow's."""
CHANGE_COLUMN = "_change_type"
"""What feeds of changes call the column that tells inserted rows from others; others cannot be joined."""
_CHUNK_ROWS = 1 << 16
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class OnlineTask:
    """One planned online join as its tasks see it.

    `labels` are the buckets as Spark knows them. With `marked` the last column of each input says where it ends, and
    with `flat` answers need not be packed.
    """

    plan: str
    join: HostedJoin
    request: Terms
    labels: tuple[int, ...]
    marked: bool
    answers: pa.Schema
    output: pa.Schema
    sink: MetricsSink
    lateness: Lateness | None = None
    flat: bool = False

    @property
    def digest(self) -> str:
        """Differs where state cannot be taken up."""
        return self.join.digest(len(self.labels))


def pack(task: OnlineTask, side: int, batches: Batches) -> Batches:
    """The rows of a side by bucket; rows without a key are left out and counted."""
    context, schema = TaskContext.get(), task.join.schemas[task.join.names[side]]
    part = 0 if context is None else context.partitionId()
    spread = task.join.spread(len(task.labels))
    labels, ended, number = np.array(task.labels, np.int32), False, -1
    for number, chunk in enumerate(_chunks(batches)):
        rows, ends = chunk, False
        if task.marked:
            rows, ends = chunk.select(range(len(schema))), bool(pc.any(chunk.column(len(schema))).as_py())
        ended = ended or ends
        rows = as_schema(rows, schema)
        _check_appended(task.join.names[side], rows)
        yield _packed(labels, side, part, number, rows, spread.homes(side, rows))
    if ended:
        yield _table(labels, side, part, number + 1, [None] * len(labels), [0] * len(labels), 0, ends=True)


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
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
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


def _packed(labels: I32, side: int, part: int, number: int, rows: pa.RecordBatch, homes: Homes) -> pa.RecordBatch:
    """One row for each bucket that has some; one of the first bucket if all rows were dropped."""
    if len(homes.rows) == 0:
        return _table(labels[:1], side, part, number, [None], [0], homes.dropped)
    ordered = rows.take(pa.array(homes.rows))
    names, starts = np.unique(homes.buckets, return_index=True)
    stops = [*starts[1:].tolist(), len(homes.buckets)]
    data = [ordered.slice(a, b - a).serialize().to_pybytes() for a, b in zip(starts.tolist(), stops, strict=True)]
    counts = [b - a for a, b in zip(starts.tolist(), stops, strict=True)]
    return _table(labels[names], side, part, number, data, counts, homes.dropped)


def _table(
    labels: I32,
    side: int,
    part: int,
    number: int,
    data: Sequence[bytes | None],
    counts: Sequence[int],
    dropped: int,
    ends: bool = False,
) -> pa.RecordBatch:
    n = len(data)
    return pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array(labels, pa.int32()),
            "side": pa.array([side] * n, pa.int32()),
            "part": pa.array([part] * n, pa.int32()),
            "number": pa.array([number] * n, pa.int64()),
            "rows": pa.array(data, pa.binary()),
            "ends": pa.array([ends] * n, pa.bool_()),
            "n": pa.array(counts, pa.int64()),
            "dropped": pa.array([dropped] + [0] * (n - 1), pa.int64()),
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


def labels_for(buckets: int, partitions: int) -> tuple[int, ...]:
    """Numbers for the buckets that Spark's hash spreads evenly over so many partitions."""
    found: list[int] = []
    waiting: dict[int, list[int]] = {}
    label = 0
    while len(found) < buckets:
        wanted = len(found) % partitions
        while not waiting.get(wanted):
            waiting.setdefault(_spark_hash(label) % partitions, []).append(label)
            label += 1
        found.append(waiting[wanted].pop(0))
    return tuple(found)


def _spark_hash(value: int, seed: int = 42) -> int:
    """Murmur3 of one int, as Spark partitions by it; Python's remainder is its pmod."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = ((k << 15 | k >> 17) & mask) * 0x1B873593 & mask
    h = seed ^ k
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask ^ 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
