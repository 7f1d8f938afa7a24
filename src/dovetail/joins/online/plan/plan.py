"""Planned online joins on Spark, of two inputs or many: from DataFrames to buckets and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.online.answers import PHASE_COLUMN, AnswerColumns
from dovetail.joins.online.bucket_join import BucketJoin, Pair
from dovetail.joins.online.bucket_rule import hot_as_python
from dovetail.joins.online.graph import SIDES, JoinGraph
from dovetail.joins.online.hot_keys import HotKey, hot_keys
from dovetail.joins.online.lateness import Lateness, lateness_of
from dovetail.joins.online.plan.available_now import end_when_done
from dovetail.joins.online.plan.batch_task import join_buckets
from dovetail.joins.online.plan.buckets import OnlineBuckets
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.request import RELOADS, Terms
from dovetail.joins.online.unmatched import is_row_number
from dovetail.spark.frames import WATERMARK, arrow_type, column_of
from dovetail.spark.hosts.batch import bucket_frame
from dovetail.spark.hosts.stateful import stateful_frame
from dovetail.spark.inputs import collation_key, collation_of
from dovetail.spark.overhead import resident_limit
from dovetail.spark.task import MetricsSink

_END = "dovetail_end_of_input"
_RELOADS = "once one input is left, memory is for rows of the others, which are reloaded from disk"
_COLLATED = "dovetail_collation_key_"
_STATE_STORE = "spark.sql.streaming.stateStore"
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
        return whole if self.columns is None else whole.select(*(column_of(name) for name in self.columns))

    def _whole(self) -> DataFrame:
        if not self.inputs[0].isStreaming:
            return bucket_frame(self.inputs, self.task, partial(join_buckets, self.task), self.buckets, self.output)
        wakes = self.task.wakes
        if wakes == "by clock":
            end_when_done(self.inputs[0].sparkSession, self.task.sink, self.task.request.wait_ms / 1e3)
        return stateful_frame(self.inputs, self.task, OnlineBuckets(self.task), self.output, wakes)

    def metrics(self) -> Metrics:
        """The metrics of the last run; for a stream, of all its micro-batches."""
        return self.task.sink.collect()

    def explain(self) -> str:
        """The join, how its rows are spread over partitions and why, and its algorithm: a line for each.

        After a run, a line more says how uneven the partitions were.
        """
        terms = self.task.request
        retain = "" if terms.retain_ms is None else f", retain={terms.retain_ms} ms"
        kept = "" if self.task.buckets else " (or as many as the checkpoint has)"
        name = "OnlineJoin" if len(self.inputs) == 2 else f"OnlineJoin of {len(self.inputs)} inputs"
        what = self.task.join.what
        name += f" {what.how}" if isinstance(what, Pair) and what.how != "inner" else ""
        return "\n".join(
            [
                f"{name}: {self.buckets} partitions{kept} of {format_bytes(terms.memory)}, owed={terms.owed}, "
                f"wait={terms.wait_ms} ms{retain}",
                self.placing,
                self.task.join.spec().explain(),
                *[_RELOADS] * (self.task.marked and terms.algorithm in RELOADS),
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
        hot = [f"hot keys: {line}" for line in self.hot_keys(found)]
        return [f"measured: the largest partition had {largest:,} of {rows:,} rows, {skew}", *hot]

    def hot_keys(self, metrics: Metrics | None = None) -> list[str]:
        """Keys of equal columns that had too many rows for one partition in the last run, and what spreads them.

        Empty if there are none, and for joins that have no `hot`: of many inputs, or by keys of a collation.
        """
        found, join = self.metrics() if metrics is None else metrics, self.task.join
        if not isinstance(join.what, Pair) or any(c.startswith(_COLLATED) for c in join.what.key_columns(0)):
            return []
        given = hot_as_python(join.what.hot, join.what.on, join.schemas["left"])
        every = hot_keys(found, join.names, found.value("buckets") or self.buckets)
        hot = [key for key in every if key.key not in given]
        return [*map(str, hot), _spreading(join.what, given, hot)] if hot else []


def _spreading(what: Pair, given: list[str], hot: list[HotKey]) -> str:
    """The treatment of hot keys beside those that were given."""
    if what.how == "full":
        return (
            "a full join keeps each key in one partition: union the left join with the left_anti join of the inputs "
            "exchanged, which take hot="
        )
    once, other = SIDES if what.how != "right" else SIDES[::-1]
    option = f"hot=[{', '.join([*given, *(key.key for key in hot)])}]"
    shares = dict(hot[0].by_side)
    turns = what.how == "inner" and shares[once] < shares[other]  # rows of a preserved side are never copied
    turn = f"; {other} has more of them, so exchange the inputs first" if turns else ""
    return f"{option} spreads {once}'s rows of them over all partitions, from a new checkpoint{turn}"


class Named(NamedTuple):
    """Output names of the answer's columns, by input and own name, and the output columns in order; None for all."""

    names: Mapping[tuple[str, str], str]
    wanted: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """The DataFrames of a join by name, and the common options of the join."""

    frames: Mapping[str, DataFrame]
    terms: Terms
    end_of_input: End
    lateness: Lateness | None

    @classmethod
    def of(cls, frames: Mapping[str, DataFrame], graph: JoinGraph, terms: Terms, end_of_input: End) -> Inputs:
        """Inputs that are joined along this tree."""
        return cls(frames, terms, end_of_input, lateness_of(graph, [watermarks(frame) for frame in frames.values()]))

    @property
    def first(self) -> DataFrame:
        """The first input, for properties that all share."""
        return next(iter(self.frames.values()))

    @property
    def partitions(self) -> int:
        """The requested number of partitions; by default as many as Spark has now."""
        return self.terms.partitions or int(self.first.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)

    def check(self, bands: str) -> None:
        """`PlanError` for mixed batch and streaming inputs, or unbounded state; `bands` is advice on watermarks."""
        kinds: dict[bool, list[str]] = {True: [], False: []}
        for name, frame in self.frames.items():
            kinds[frame.isStreaming].append(name)
        if kinds[True] and kinds[False]:
            raise PlanError(
                f"{kinds[True][0]} is a stream and {kinds[False][0]} is not; give streams or batch DataFrames only, or "
                f"use dovetail.enrich to join a stream with stored data.",
                argument=kinds[True][0] if kinds[True][0] in SIDES else "inputs",
            )
        self._check_end()
        if kinds[True] and self.end_of_input is None and self.terms.retain_ms is None and self.lateness is None:
            n = len(self.frames)
            raise PlanError(
                f"{'two' if n == 2 else n} streams without an end would fill the state without bound; give "
                f"retain='2 hours' (rows that came longer ago leave), end_of_input=<column that is true on the last "
                f"row of a side>, or withWatermark on {bands}.",
                argument="retain",
            )

    def _check_end(self) -> None:
        end, names = self.end_of_input, list(self.frames)
        if isinstance(end, Mapping):
            if set(end) != set(names) or not all(isinstance(column, Column) for column in end.values()):
                raise PlanError(
                    f"end_of_input is given for {sorted(end)}; give a Column for each of {names}.",
                    argument="end_of_input",
                )
        elif end is not None and not isinstance(end, Column):
            raise PlanError(
                f"end_of_input={end!r} must be a Column that is true on the last row of a side.",
                argument="end_of_input",
            )

    def plan(self, join: BucketJoin, placing: str, columns: Named) -> OnlinePlan:
        """The plan of a valid request; columns of inputs that the join does not need are left out."""
        terms, streaming, spec = self.terms, self.first.isStreaming, join.spec()
        answer = spec.answer(join.stored)
        spec.fit(terms.memory, list(join.stored.values()), {})  # a budget that is too small is refused here
        if streaming:
            _check_state_store(self.first)
        phase = [T.StructField(PHASE_COLUMN, T.StringType(), False)] if terms.with_phase else []
        output = T.StructType([*self._fields(answer, columns.names, join), *phase])
        asked = terms.partitions if streaming else self.partitions
        out = pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in output])
        marked = streaming and self.end_of_input is not None
        sink = MetricsSink(self.first.sparkSession)
        buckets = join.bucket_rule(self.partitions).count
        most = resident_limit(self.first.sparkSession, terms.memory, buckets) if streaming else None
        task = OnlineTask(uuid.uuid4().hex, join, terms, asked, marked, answer.schema, out, sink, self.lateness, most)
        frames = [
            frame.select(*map(column_of, join.schemas[name].names), *([self._end(name)] if marked else []))
            for name, frame in self.frames.items()
        ]
        wanted = None if columns.wanted is None else (*columns.wanted, *(field.name for field in phase))
        return OnlinePlan(tuple(frames), task, output, placing, buckets, wanted)

    def _fields(
        self, answer: AnswerColumns, names: Mapping[tuple[str, str], str], join: BucketJoin
    ) -> list[T.StructField]:
        """The columns of the answer as Spark fields; collation keys have no name of their own."""
        found, how = list[T.StructField](), join.what.how if isinstance(join.what, Pair) else "inner"
        for side, ((name, frame), taken) in enumerate(zip(self.frames.items(), answer.taken, strict=True)):
            if side == 1 and how in ("left_semi", "left_anti"):
                break
            fields = [(column, frame.schema[column]) for column in taken if not is_row_number(column)]
            missing = 1 - side in join.what.preserved and how in ("left", "right", "full")
            found += [
                T.StructField(names.get((name, c), f"{name}_{c}"), f.dataType, f.nullable or missing) for c, f in fields
            ]
        return found

    def _end(self, name: str) -> Column:
        """A column that is true where an input ends."""
        end = self.end_of_input[name] if isinstance(self.end_of_input, Mapping) else self.end_of_input
        assert end is not None  # noqa: S101  (for the type checker: asked for marked inputs only)
        return F.coalesce(end.cast("boolean"), F.lit(False)).alias(_END)


def _check_state_store(frame: DataFrame) -> None:
    """`ConfigError` unless state is kept on RocksDB, and every attempt of a micro-batch starts from the same one."""
    for name, wanted in (("providerClass", "RocksDB"), ("checkpointFormatVersion", "2")):
        found = frame.sparkSession.conf.get(f"{_STATE_STORE}.{name}") or ""
        if wanted not in found:
            raise ConfigError(
                f"{_STATE_STORE}.{name} is {found!r}; state of online joins needs Spark's RocksDB provider and "
                f"checkpoint format 2: leave the setting out and call dovetail.configure(spark) first, or use "
                f"dovetail.session()."
            )


def with_collation_keys(frame: DataFrame, names: Iterable[str]) -> tuple[DataFrame, dict[str, str]]:
    """The frame with a column of key bytes for each collated one of these, and the names to join by in their place.

    The name contains the collation, so that a stream's state is not read with another one.
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
    found = ((field.name, (field.metadata or {}).get(WATERMARK)) for field in frame.schema)
    return {name: int(delay) for name, delay in found if delay is not None}


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as Arrow has them; a `PlanError` for a type that it does not have."""

    def typed(field: T.StructField) -> pa.Field:
        try:
            return pa.field(field.name, arrow_type(field.dataType))
        except PySparkException as error:
            raise PlanError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which Spark does not give to Python; "
                "cast it first.",
                argument="columns",
            ) from error

    return pa.schema([typed(field) for field in frame.schema])
