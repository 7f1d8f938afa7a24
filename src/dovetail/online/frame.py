"""Online joins of two streams, or of two batch DataFrames, on Spark: what users call."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, PlanError
from dovetail.online.bucket_join import BucketJoin
from dovetail.online.frame_batch import join_buckets
from dovetail.online.frame_pack import ANSWERS, ORDER, PACKED, OnlineTask, labels_for, pack, unpack
from dovetail.online.lateness import Lateness
from dovetail.online.phases import PHASE_COLUMN
from dovetail.online.predicate import Band
from dovetail.online.request import Request, parse_request
from dovetail.spark.arrow import arrow_type, map_in_arrow
from dovetail.spark.metrics import MetricsSink

_END = "dovetail_end_of_input"
_WATERMARK = "spark.watermarkDelayMs"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def online_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str | tuple[str, str]] | None = None,
    within: Band | Sequence[Any] | None = None,
    how: str = "inner",
    algorithm: str = "diner",
    memory: int | str = "32MB",
    buckets: int | None = None,
    wait: str | float = "25 ms",
    owed: str = "idle",
    end_of_input: Column | None = None,
    retain: str | float | None = None,
    with_phase: bool = False,
) -> DataFrame:
    """Matching pairs of two streams, each pair once and as early as possible, as a lazy DataFrame.

    Args:
        left: A streaming or batch DataFrame. Rows of batch DataFrames arrive in the order they are read.
        right: One of the same kind.
        on: Equal columns: "k", ["k", "l"], or [("left_k", "right_k")]. Null keys match nothing. A key given by one name
            appears once in the result; other names that both sides have get "_right" on the right.
        within: A band: ("price", 0.05), or ("l_price", "r_price", -0.05, 0.05): lo <= right - left <= hi. It needs no
            equal columns with diner and pmj. If both columns have a watermark, rows that are too late are dropped and
            counted, and rows leave the state once none that may still come can match them.
        how: inner.
        algorithm: shj, dphj, xjoin, pmj, hmj, rpj, ehj or diner.
        memory: The budget of each bucket. What does not fit goes to disk, and is joined in pauses or at the end.
        buckets: How many parts are joined on their own, in parallel; by default `spark.sql.shuffle.partitions`.
        wait: Silence on both inputs after which deferred work begins: the reactive phase. It is noticed at the next
            micro-batch. If input never resumes, that work is done, and what it cannot reach is owed to the end.
        owed: "idle": deferred work waits for a pause or the end of input. Such a query never ends by itself, not even
            with trigger(availableNow=True), if the
            algorithm has a reactive phase. "batch": every micro-batch ends with nothing owed, which
            trigger(availableNow=True) needs.
        end_of_input: A column that is true on the last row of a side. When both sides have ended, everything still owed
            is given and state is freed. A row that comes later fails the query. Batch DataFrames end by themselves.
        retain: "2 hours": rows leave the state when they came longer ago than this (and at most an eighth more),
            by the time of micro-batches; pairs of rows that came further apart are not given.
        with_phase: Add a column `_phase`: arriving, reactive or cleanup.

    Returns:
        Left's columns, then right's, in no order. Of a stream that restarts from its checkpoint every pair comes once,
        given a sink that takes a micro-batch as a whole.

    Raises:
        PlanError: for a request that cannot be right, before any job starts; also for streams without an end that have
            neither `retain` nor watermarks.
        ConfigError: for a session that cannot keep state of this kind; `dovetail.configure` repairs it.
        UnsupportedError: for what this algorithm or session cannot do, with what can.
    """
    return plan_online_join(
        left, right, on, within, how, algorithm, memory, buckets, wait, owed, end_of_input, retain, with_phase
    ).frame()


def plan_online_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str | tuple[str, str]] | None = None,
    within: Band | Sequence[Any] | None = None,
    how: str = "inner",
    algorithm: str = "diner",
    memory: int | str = "32MB",
    buckets: int | None = None,
    wait: str | float = "25 ms",
    owed: str = "idle",
    end_of_input: Column | None = None,
    retain: str | float | None = None,
    with_phase: bool = False,
) -> OnlinePlan:
    """The plan of `online_join` with the same arguments: `explain`, `frame`, `metrics`."""
    request = parse_request(on, within, how, algorithm, memory, buckets, wait, owed, retain, with_phase)
    return make_plan(left, right, request, end_of_input)


@dataclass(frozen=True, slots=True)
class OnlinePlan:
    """An online join that is planned but not run: `frame` is the lazy DataFrame."""

    left: DataFrame
    right: DataFrame
    task: OnlineTask
    output: T.StructType

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame; streaming if the inputs are."""
        inputs = (self.left, self.right)
        first, second = (map_in_arrow(rows, partial(pack, self.task, side), PACKED) for side, rows in enumerate(inputs))
        packed = first.union(second)
        if not self.left.isStreaming:
            placed = packed.repartitionById(len(self.task.labels), F.col("bucket"))
            ordered = placed.sortWithinPartitions("bucket", *ORDER)
            return map_in_arrow(ordered, partial(join_buckets, self.task), self.output)
        from dovetail.online.frame_state import Buckets  # brings pandas, which nothing else here needs

        # Within a micro-batch this is its logged time.
        packed = packed.withColumn("now_ms", F.unix_millis(F.current_timestamp()))
        mode = "processingTime" if self.task.request.reacts else "none"
        answers = packed.groupBy("bucket").transformWithStateInPandas(Buckets(self.task), ANSWERS, "append", mode)
        return map_in_arrow(answers, partial(unpack, self.task), self.output)

    def metrics(self) -> Metrics:
        """What the last run measured; of a stream, all its micro-batches."""
        return self.task.sink.collect()

    def explain(self) -> str:
        """The join and its buckets in two lines."""
        request = self.task.request
        retain = "" if request.retain_ms is None else f", retain={request.retain_ms} ms"
        return "\n".join(
            [
                f"OnlineJoin: {len(self.task.labels)} buckets of {format_bytes(request.memory)}, owed={request.owed}, "
                f"wait={request.wait_ms} ms{retain}",
                self.task.join.spec().explain(),
            ]
        )


def make_plan(left: DataFrame, right: DataFrame, request: Request, end_of_input: Column | None) -> OnlinePlan:
    """The plan of a request; errors for what cannot be right come before any job."""
    streaming = _checked(left, right, request, end_of_input)
    if streaming:
        _check_provider(left)
    join = BucketJoin(
        request.algorithm, request.on, request.within, request.memory, request.with_phase,
        _arrow_schema(left), _arrow_schema(right),
    )  # fmt: skip
    spec = join.spec()
    layout = spec.layout(join.schemas)
    spec.fit(request.memory, list(join.schemas.values()), {})  # a budget that is too small is refused here
    fields = [left.schema[name] for name in layout.left] + [right.schema[name] for name in layout.right]
    named = [T.StructField(n, f.dataType, f.nullable) for n, f in zip(layout.schema.names, fields, strict=True)]
    if request.with_phase:
        named.append(T.StructField(PHASE_COLUMN, T.StringType(), False))
    output = T.StructType(named)
    partitions = int(left.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
    count = request.buckets or partitions
    labels = labels_for(count, partitions) if streaming else tuple(range(count))
    answers = pa.schema([*layout.schema, *([pa.field(PHASE_COLUMN, pa.string())] if request.with_phase else [])])
    out = pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in output])
    marked = streaming and end_of_input is not None
    sink = MetricsSink(left.sparkSession)
    lateness = _lateness(left, right, request)
    task = OnlineTask(uuid.uuid4().hex, join, request, labels, marked, answers, out, sink, lateness)
    if marked:
        end = F.coalesce(end_of_input.cast("boolean"), F.lit(False)).alias(_END)  # type: ignore[union-attr]  # not None
        left, right = left.select("*", end), right.select("*", end)
    return OnlinePlan(left, right, task, output)


def _checked(left: DataFrame, right: DataFrame, request: Request, end_of_input: Column | None) -> bool:
    """Whether the inputs are streams; an error if they do not go together or have no end."""
    if left.isStreaming != right.isStreaming:
        names = ("left", "right") if left.isStreaming else ("right", "left")
        raise PlanError(
            f"{names[0]} is a stream and {names[1]} is not; give two streams or two batch DataFrames, or use "
            f"dovetail.enrich to join a stream with stored data."
        )
    if end_of_input is not None and not isinstance(end_of_input, Column):
        raise PlanError(f"end_of_input={end_of_input!r} must be a Column that is true on the last row of a side.")
    if not left.isStreaming or end_of_input is not None or request.retain_ms is not None:
        return left.isStreaming
    if _lateness(left, right, request) is None:
        raise PlanError(
            "two streams without an end would fill the state without bound; give retain='2 hours' (rows that came "
            "longer ago leave), end_of_input=<column that is true on the last row of a side>, or withWatermark on both "
            "inputs and within=(left time, right time, timedelta, timedelta) on those columns."
        )
    return True


def _check_provider(frame: DataFrame) -> None:
    provider = frame.sparkSession.conf.get(_PROVIDER, "") or ""
    if "RocksDB" not in provider:
        raise ConfigError(
            f"{_PROVIDER} is {provider!r}; state of online joins needs Spark's RocksDB provider: call "
            f"dovetail.configure(spark) first, or use dovetail.session()."
        )


def _lateness(left: DataFrame, right: DataFrame, request: Request) -> Lateness | None:
    """What a watermark on both columns of the band says; None if they have none, or if these are batches."""
    band = request.within
    if band is None or not left.isStreaming or not isinstance(band.lo, timedelta):
        return None
    found = []
    for frame, name in ((left, band.left), (right, band.right)):
        if name not in frame.columns or _WATERMARK not in (frame.schema[name].metadata or {}):
            return None
        found.append(int(frame.schema[name].metadata[_WATERMARK]))
    return Lateness.of(band, (found[0], found[1]))


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in frame.schema])
