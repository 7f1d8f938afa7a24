"""Stateful host: runs a join of buckets over the micro-batches of streams, with its state in the checkpoint.

Rows go to their buckets as packets (see `exchange`). In a micro-batch a bucket is called once, with its packets in the
order in which they were read, or because its timer fired. Its state is a header and numbered pieces, all bytes, read
and written once a call, because PySpark's state protocol is slow per row. Results leave as columns if pandas keeps
their types, and packed otherwise.

Spark's driver starts a Python interpreter of its own that asks a new query for its state variables. So this module
imports no kernels, and joins are unpickled at the first call of a bucket.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.engine.rows.packing import in_chunks, unpack_rows
from dovetail.errors import ConfigError
from dovetail.spark.frames import Batches, arrow_type, map_in_arrow
from dovetail.spark.hosts.exchange import PACKED, BucketedInputs, Packet, pack

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies

LAYOUT = 1
"""The format number of headers and pieces; their content has a format number of the join's own."""
_HEADER = -1  # among the numbers of pieces: each variable of the state costs every task some milliseconds
_PACKED_ANSWERS = T.StructType([T.StructField("rows", T.BinaryType())])
_FLAT = (
    T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType,
    T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DayTimeIntervalType,
)  # fmt: skip
"""Types that pass through pandas unchanged and without a copy, in Arrow-backed columns."""
Wakes = Literal["never", "by clock", "without input", "by watermark"]
"""When timers of buckets fire: never; when their time has come; also in a micro-batch that brings no rows; when the
watermark of the inputs has reached their time."""
_TIME_MODES = {
    "never": "none", "by clock": "processingTime", "without input": "eventTime", "by watermark": "eventTime",
}  # fmt: skip


class StatefulJoin(Protocol):
    """A join's declaration of its buckets over micro-batches; a value that is pickled into tasks."""

    @property
    def state_name(self) -> str:
        """The name of the state variable. It never changes: under another name Spark would find no state."""
        ...

    @property
    def state_format(self) -> int:
        """The format number of header and pieces; state of another format is refused."""
        ...

    @property
    def arrival_bytes(self) -> int | None:
        """Bytes of packets in memory; others are spilled until they are read. None for no limit."""
        ...

    def answer(self, call: BucketCall) -> Batches:
        """The results of a call, in the columns of the output."""
        ...


def stateful_frame(
    inputs: Sequence[DataFrame], bucketed: BucketedInputs, join: StatefulJoin, output: T.StructType, wakes: Wakes
) -> DataFrame:
    """The result of a join of streams, as a lazy DataFrame."""
    parts = [map_in_arrow(rows, partial(pack, bucketed, True, side), PACKED) for side, rows in enumerate(inputs)]
    # The logged time of a micro-batch, as text: a number would be part of the code that Spark generates, which would
    # then be compiled again in every micro-batch.
    now = F.current_timestamp()
    packed = reduce(DataFrame.union, parts).withColumn("now_ms", F.unix_millis(now).cast("string"))
    if wakes == "without input":
        # A watermark on our own column: Spark then runs one micro-batch without rows when a stream pauses or ends.
        packed = packed.withColumn("at", now).withWatermark("at", "0 seconds")
        packed = packed.drop("at")  # or Spark would drop rows as late after a clock was set back
    grouped, mode = packed.groupBy("bucket"), _TIME_MODES[wakes]
    if is_flat(output):
        names = _names(output)
        given = T.StructType([T.StructField(n, f.dataType, f.nullable) for n, f in zip(names, output, strict=True)])
        answers = grouped.transformWithStateInPandas(Buckets(join, names), given, "append", mode)
        return answers if names == output.names else answers.toDF(*output.names)
    answers = grouped.transformWithStateInPandas(Buckets(join), _PACKED_ANSWERS, "append", mode)
    schema = pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in output])
    return map_in_arrow(answers, partial(_unpacked, schema), output)


def is_flat(output: T.StructType) -> bool:
    """Whether results of these columns leave unpacked."""
    return all(type(field.dataType) in _FLAT for field in output)


def _names(output: T.StructType) -> list[str]:
    """Names of the columns of results for pandas, which must be distinct: a step that renames them costs time."""
    names = output.names
    return names if len(set(names)) == len(names) else [f"c{n}" for n in range(len(names))]


def _unpacked(schema: pa.Schema, batches: Batches) -> Batches:
    for batch in batches:
        for data in batch.column(0):
            yield unpack_rows(data.as_buffer(), schema)


class Buckets(StatefulProcessor):
    """The stateful processor of a join of buckets; results have columns of these names, or are packed if None."""

    def __init__(self, join: StatefulJoin, names: list[str] | None = None) -> None:
        self.state_name, self.names = join.state_name, names
        self._join: StatefulJoin | bytes = join

    def __getstate__(self) -> tuple[Any, ...]:
        pickled = cloudpickle.dumps(self.join)  # type: ignore[no-untyped-call]  # PySpark's copy has no types
        return self.state_name, self.names, pickled

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state_name, self.names, self._join = state

    @property
    def join(self) -> StatefulJoin:
        """The join, unpickled when it is first asked for."""
        if isinstance(self._join, bytes):
            join: StatefulJoin = pickle.loads(self._join)  # noqa: S301  (pickled by the driver)
            self._join = join
        return self._join

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variable."""
        self._handle = handle
        number = T.StructType([T.StructField("number", T.LongType())])
        data = T.StructType([T.StructField("data", T.BinaryType())])
        self._pieces = handle.getMapState(self.state_name, number, data)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The results of packets."""
        with Arrivals(self.join.arrival_bytes) as arrived:
            for frame in rows:
                arrived.take(frame)
            yield from self._answers(int(key[0]), arrived.latest_ms, arrived, None, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803  (Spark's names)
        """The results of a timer."""
        now_ms, fired_ms = timerValues.getCurrentProcessingTimeInMs(), expiredTimerInfo.getExpiryTimeInMs()
        yield from self._answers(int(key[0]), int(now_ms), None, int(fired_ms), timerValues)

    def close(self) -> None:
        """Do nothing: nothing is held between calls."""

    def _answers(
        self, key: int, now_ms: int, arrived: Arrivals | None, fired_ms: int | None, timer_values: Any
    ) -> Iterator[Any]:
        import pandas as pd  # Spark has loaded it for these tasks; others that pack rows need not

        state = BucketState(self._handle, self._pieces, self.join.state_format, fired_ms is not None)
        watermark_ms = int(timer_values.getCurrentWatermarkInMs())
        for answer in in_chunks(self.join.answer(BucketCall(key, now_ms, arrived, fired_ms, state, watermark_ms))):
            if self.names is None:
                yield pd.DataFrame({"rows": [answer.serialize().to_pybytes()]})
            else:
                columns = (pd.Series(pd.arrays.ArrowExtensionArray(column)) for column in answer.columns)
                yield pd.DataFrame(dict(zip(self.names, columns, strict=True)), copy=False)


class BucketState:
    """The state of one bucket: a header, pieces of bytes by number, and one timer."""

    def __init__(self, handle: StatefulProcessorHandle, pieces: Any, number: int, has_fired: bool) -> None:
        self._handle, self._pieces, self._format, self._has_fired = handle, pieces, number, has_fired
        self._timer: int | None = None
        self.wake_ms: int | None = None
        """When the bucket is called although no rows arrive; `store` registers the timer."""

    def load(self) -> dict[str, Any] | None:
        """The header; None if there is none. `ConfigError` if it is of another format."""
        stored = self._pieces.getValue((_HEADER,))
        if stored is None:
            return None
        head: dict[str, Any] = json.loads(bytes(stored[0]))
        found, here = (head.pop("layout", 0), head.pop("format")), (LAYOUT, self._format)
        if found != here:
            told = [".".join(map(str, some)) for some in (found, here)]
            raise ConfigError(
                f"the checkpoint holds state of format {told[0]}, and this version of Dovetail reads format {told[1]}; "
                f"run the version that wrote it, or start from a new checkpoint."
            )
        timer = head.pop("timer")
        self._timer = self.wake_ms = None if self._has_fired else timer
        return head

    def store(self, head: dict[str, Any]) -> None:
        """Write the header and set the timer to `wake_ms`; after `load`."""
        if self.wake_ms != self._timer:
            if self._timer is not None:
                self._handle.deleteTimer(self._timer)
            if self.wake_ms is not None:
                self._handle.registerTimer(self.wake_ms)
        whole = {"layout": LAYOUT, "format": self._format, "timer": self.wake_ms, **head}
        self._pieces.updateValue((_HEADER,), (json.dumps(whole).encode(),))

    def piece(self, number: int) -> bytes:
        """A piece; `ConfigError` if it is not there."""
        found = self.find(number)
        if found is None:
            raise ConfigError(f"piece {number} of the state is missing; start from an older checkpoint.")
        return found

    def find(self, number: int) -> bytes | None:
        """A piece; None if it is not there."""
        if not self._pieces.containsKey((number,)):  # Spark warns of a value that is asked for and not there
            return None
        return bytes(self._pieces.getValue((number,))[0])

    def put(self, number: int, data: bytes) -> None:
        """Write a piece."""
        self._pieces.updateValue((number,), (data,))

    def remove(self, first: int, end: int) -> None:
        """Remove the pieces from `first` to before `end`."""
        for number in range(first, end):
            self._pieces.removeKey((number,))

    def clear(self) -> None:
        """Remove header and pieces."""
        self._pieces.clear()


@dataclass(frozen=True, slots=True)
class BucketCall:
    """A call of one bucket: its packets, or the time of its timer; and its state.

    `key` is the bucket's label. `now_ms` is the logged time of the micro-batch if there are packets. `watermark_ms` is
    Spark's watermark, if timers fire; 0 or less before there is one.
    """

    key: int
    now_ms: int
    arrived: Arrivals | None
    fired_ms: int | None
    state: BucketState
    watermark_ms: int = -1


class Arrivals:
    """The packets of a bucket in a micro-batch, returned in the order in which they were read.

    At most `limit` bytes of rows stay in memory; later ones are spilled, and read back one at a time.
    """

    def __init__(self, limit: int | None = None, directory: Path | None = None) -> None:
        from dovetail.engine.storage.spool import HeldBytes  # loads kernels: see above

        self._packets: list[Packet] = []
        self._held = HeldBytes(limit, directory, "arrivals")
        self.latest_ms = 0

    def take(self, frame: pd.DataFrame) -> None:
        """Add packets from a pandas batch of Spark."""
        for row in frame.itertuples(index=False):
            self.latest_ms = max(self.latest_ms, int(row.now_ms))
            number, part, side, n, dropped = map(int, (row.number, row.part, row.side, row.n, row.dropped))
            rows = None if row.rows is None else self._held.keep(row.rows)
            self._packets.append(Packet(number, part, side, n, dropped, bool(row.ends), row.rule, rows))

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return all(packet.rows is None for packet in self._packets)

    @property
    def held_bytes(self) -> int:
        """Bytes of rows in memory."""
        return self._held.held

    @property
    def spilled_bytes(self) -> int:
        """Bytes written to disk."""
        return self._held.spilled

    @property
    def packets(self) -> list[Packet]:
        """All packets in their order."""
        return sorted(self._packets, key=lambda packet: packet[:3])

    def rows(self, packet: Packet) -> pa.Buffer:
        """The rows of a packet that has some."""
        return self._held.read(packet.rows)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows, of inputs of one schema, in their order; each packet is released once it was read."""
        waiting = self.packets[::-1]
        self._packets.clear()
        while waiting:
            packet = waiting.pop()
            if packet.rows is not None:
                self._held.let_go(packet.rows)
                yield unpack_rows(self.rows(packet), schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._packets.clear()
        self._held.close()
