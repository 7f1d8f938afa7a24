"""Planned online joins on Spark, of two inputs or many: from DataFrames to buckets and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.online.graph import SIDES
from dovetail.joins.online.lateness import Lateness
from dovetail.joins.online.phases import PHASE_COLUMN
from dovetail.joins.online.plan.batch import join_buckets
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.request import Terms
from dovetail.joins.online.running import ResidentJoin
from dovetail.spark.arrow import arrow_type
from dovetail.spark.collation import collation_key, collation_of
from dovetail.spark.hosts.batch import bucket_frame
from dovetail.spark.metrics import MetricsSink

_END = "dovetail_end_of_input"
_COLLATED = "dovetail_collation_key_"
_WATERMARK = "spark.watermarkDelayMs"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
End = Column | Mapping[str, Column] | None


@dataclass(frozen=True, slots=True)
class OnlinePlan:
    """An online join that is planned but not run: `frame` is the lazy DataFrame.

    `buckets` is the number of partitions; a stream without a number keeps those that its checkpoint began with.

    >>> rows = spark.createDataFrame([(1,), (2,)], "k int")
    >>> dovetail.plan_online_join(rows, rows, on="k", partitions=1).frame().count()
    2
    """

    inputs: tuple[DataFrame, ...]
    task: OnlineTask
    output: T.StructType
    placing: str
    buckets: int
    columns: tuple[str, ...] | None = None

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame; streaming if the inputs are."""
        whole = self._whole()
        return whole if self.columns is None else whole.select(*(quoted(name) for name in self.columns))

    def _whole(self) -> DataFrame:
        if not self.inputs[0].isStreaming:
            return bucket_frame(self.inputs, self.task, partial(join_buckets, self.task), self.buckets, self.output)
        from dovetail.joins.online.plan.state import OnlineBuckets  # brings pandas, which nothing else here needs
        from dovetail.spark.hosts.stateful import stateful_frame

        join, reacts = OnlineBuckets(self.task), self.task.request.reacts
        return stateful_frame(self.inputs, self.task, join, self.output, "by clock" if reacts else "never")

    def metrics(self) -> Metrics:
        """What the last run measured; of a stream, all its micro-batches."""
        return self.task.sink.collect()

    def explain(self) -> str:
        """The join, how its rows are spread over partitions and why, and its algorithm: a line for each.

        After a run, a line more says how uneven the partitions were.
        """
        terms = self.task.request
        retain = "" if terms.retain_ms is None else f", retain={terms.retain_ms} ms"
        kept = "" if self.task.buckets else " (or as many as the checkpoint has)"
        name = "OnlineJoin" if len(self.inputs) == 2 else f"OnlineJoin of {len(self.inputs)} inputs"
        return "\n".join(
            [
                f"{name}: {self.buckets} partitions{kept} of {format_bytes(terms.memory)}, owed={terms.owed}, "
                f"wait={terms.wait_ms} ms{retain}",
                self.placing,
                self.task.join.spec().explain(),
                *self._measured(),
            ]
        )

    def _measured(self) -> list[str]:
        try:
            found = self.metrics()
        except UnsupportedError:  # over Spark Connect nothing is collected
            return []
        rows, largest, buckets = (found.value(name) for name in ("rows", "bucket_rows", "buckets"))
        if rows == 0 or largest == 0:
            return []
        skew = f"{largest * (buckets or self.buckets) / rows:.1f} times an even share"
        return [f"measured: the largest partition had {largest:,} of {rows:,} rows, {skew}"]


def quoted(name: str) -> Column:
    """A column by its very name, whatever is in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def build_plan(
    inputs: Mapping[str, DataFrame],
    join: ResidentJoin,
    terms: Terms,
    answers: pa.Schema,
    fields: Sequence[T.StructField],
    placing: str,
    lateness: Lateness | None,
    end_of_input: End,
    columns: tuple[str, ...] | None = None,
) -> OnlinePlan:
    """The plan of a join whose request is right: `answers` is what the join gives, `fields` what Spark shall see.

    Columns of inputs that the join does not know are left out.
    """
    first = next(iter(inputs.values()))
    streaming, spark = first.isStreaming, first.sparkSession
    if streaming:
        _check_provider(first)
    phase = [T.StructField(PHASE_COLUMN, T.StringType(), False)] if terms.with_phase else []
    output = T.StructType([*fields, *phase])
    buckets = partitions_of(inputs, terms)
    asked = terms.partitions if streaming else buckets
    out = pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in output])
    marked = streaming and end_of_input is not None
    sink = MetricsSink(spark)
    task = OnlineTask(uuid.uuid4().hex, join, terms, asked, marked, answers, out, sink, lateness)
    frames = [
        frame.select(*map(quoted, join.schemas[name].names), *([_end(name, end_of_input)] if marked else []))
        for name, frame in inputs.items()
    ]
    return OnlinePlan(tuple(frames), task, output, placing, join.spread(buckets).count, columns)


def _end(name: str, end_of_input: End) -> Column:
    """A column that is true where an input ends."""
    end = end_of_input[name] if isinstance(end_of_input, Mapping) else end_of_input
    assert end is not None  # noqa: S101  (for the type checker: asked for marked inputs only)
    return F.coalesce(end.cast("boolean"), F.lit(False)).alias(_END)


def partitions_of(inputs: Mapping[str, DataFrame], terms: Terms) -> int:
    """How many partitions were asked for; by default as many as Spark has now."""
    spark = next(iter(inputs.values())).sparkSession
    return terms.partitions or int(spark.conf.get("spark.sql.shuffle.partitions") or 2)


def check_inputs(
    inputs: Mapping[str, DataFrame], terms: Terms, end_of_input: End, lateness: Lateness | None, bands: str
) -> None:
    """`PlanError` if inputs do not go together or streams have no end; `bands` says how watermarks bound the state."""
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for name, frame in inputs.items():
        kinds[frame.isStreaming].append(name)
    if kinds[True] and kinds[False]:
        raise PlanError(
            f"{kinds[True][0]} is a stream and {kinds[False][0]} is not; give streams or batch DataFrames only, or use "
            f"dovetail.enrich to join a stream with stored data.",
            argument=kinds[True][0] if kinds[True][0] in SIDES else "inputs",
        )
    _check_end(list(inputs), end_of_input)
    if kinds[True] and end_of_input is None and terms.retain_ms is None and lateness is None:
        raise PlanError(
            f"{'two' if len(inputs) == 2 else len(inputs)} streams without an end would fill the state without bound; "
            f"give retain='2 hours' (rows that came longer ago leave), end_of_input=<column that is true on the last "
            f"row of a side>, or withWatermark on {bands}.",
            argument="retain",
        )


def _check_end(names: Sequence[str], end_of_input: End) -> None:
    if isinstance(end_of_input, Mapping):
        if set(end_of_input) != set(names) or not all(isinstance(end, Column) for end in end_of_input.values()):
            raise PlanError(
                f"end_of_input is given for {sorted(end_of_input)}; give a Column for each of {names}.",
                argument="end_of_input",
            )
    elif end_of_input is not None and not isinstance(end_of_input, Column):
        raise PlanError(
            f"end_of_input={end_of_input!r} must be a Column that is true on the last row of a side.",
            argument="end_of_input",
        )


def _check_provider(frame: DataFrame) -> None:
    provider = frame.sparkSession.conf.get(_PROVIDER, "") or ""
    if "RocksDB" not in provider:
        raise ConfigError(
            f"{_PROVIDER} is {provider!r}; state of online joins needs Spark's RocksDB provider: leave the setting out "
            f"and call dovetail.configure(spark) first, or use dovetail.session()."
        )


def with_collation_keys(frame: DataFrame, names: Iterable[str]) -> tuple[DataFrame, dict[str, str]]:
    """The frame with a column of key bytes for each collated one of these, and the names to join by in their place.

    The name has the collation, so that state of a stream is not taken up with another one.
    """
    kinds = ((name, collation_of(frame.schema[name].dataType)) for name in names if name in frame.columns)
    found = {name: f"{_COLLATED}{collation}_{name}" for name, collation in kinds if collation is not None}
    column = "`{}`".format
    keys = [collation_key(frame.sparkSession, column(n.replace("`", "``"))).alias(key) for n, key in found.items()]
    return (frame.select("*", *keys) if keys else frame), found


def watermarks(frame: DataFrame) -> dict[str, int]:
    """The columns of a stream with a watermark, and their delay in milliseconds."""
    if not frame.isStreaming:
        return {}
    found = ((field.name, (field.metadata or {}).get(_WATERMARK)) for field in frame.schema)
    return {name: int(delay) for name, delay in found if delay is not None}


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as Arrow has them."""
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in frame.schema])
