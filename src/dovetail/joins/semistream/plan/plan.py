"""A planned enrichment: the algorithm that was chosen and why, the DataFrame it gives, and what it measured."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.profile import load_profile
from dovetail.engine.storage.files import access_of
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.semistream.cost.choose import Choice, choose
from dovetail.joins.semistream.decision import (
    Decision,
    Sample,
    Wiring,
    check_store,
    decide,
    sample_of,
    setting_for,
    smallest,
    specification,
)
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.pages import Pages, probed
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.buckets import BUCKET, bucketed_rows
from dovetail.joins.semistream.plan.columns import (
    KEY,
    Columns,
    named_request,
    pair_check,
    plan_columns,
    ranged_request,
)
from dovetail.joins.semistream.plan.condition import Conditioned, pair_request
from dovetail.joins.semistream.plan.task import EnrichTask, enrich_rows, stream_names
from dovetail.joins.semistream.request import DeadLetter, Request, key_pairs, sets_aside
from dovetail.joins.semistream.sizes import width_of
from dovetail.joins.semistream.versions import VersionLog, default_log, keeps_versions, log_of
from dovetail.spark.frames import arrow_type, is_connect, parallelism
from dovetail.spark.hosts.batch import exchange_by_id, mapped_frame, task_frame
from dovetail.spark.places import place_of, require_seen, require_shared_directory
from dovetail.spark.task import MetricsSink

_SAMPLED = 20_000  # keys of a batch DataFrame from which its skew is estimated


@dataclass(frozen=True, slots=True)
class EnrichPlan:
    """An enrichment that is planned but not run: `frame` is the lazy DataFrame.

    >>> products = spark.createDataFrame([(7, "lamp"), (8, "mat")], "product int, name string")
    >>> store = dovetail.MasterStore.build(products, f"{place}/products.pages", key="product")
    >>> orders = spark.createDataFrame([(1, 7), (2, 9)], "order_id int, product int")
    >>> dovetail.plan_enrich(orders, store, on="product", algorithm="hybridjoin", tune="off").frame().count()
    1
    """

    columns: Columns
    task: EnrichTask
    decision: Decision
    specification: str
    sink: MetricsSink
    condition: Conditioned | None = None

    @property
    def request(self) -> Request:
        """The checked options."""
        return self.task.request if self.condition is None else self.condition.request

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame; streaming if the input is."""
        return self._pairs() if self.condition is None else self.condition.frame(self._pairs(), self.task)

    def _pairs(self) -> DataFrame:
        rows = self.columns.frame
        if self.task.request.mode == "carry":
            return self._carried(rows)
        if self.task.request.exchange == "master":
            rows = self._routed(rows)
        if isinstance(self.task.request.on_miss, DeadLetter):
            # A task has another number: Spark may run several partitions of the join in one, after a coalesce.
            rows = rows.withColumn(f"{KEY}part", F.spark_partition_id())
        return task_frame(rows, enrich_rows, self.task, self.sink, self.columns.output)

    def _carried(self, rows: DataFrame) -> DataFrame:
        from dovetail.joins.semistream.plan.carry import carried_frame  # brings pandas, which nothing else here needs

        max_wait_ms = int(self.task.request.max_wait_s * 1000)
        return carried_frame(rows, self.task, max_wait_ms, self.columns.output)

    def _routed(self, rows: DataFrame) -> DataFrame:
        """Rows in the partition of the task that reads their slice of the master data."""
        buckets = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
        fields = [T.StructField(BUCKET, T.IntegerType()), *rows.schema.fields]
        bucketed = mapped_frame(rows, partial(bucketed_rows, self.task, buckets), fields)
        return exchange_by_id(bucketed, buckets, F.col(BUCKET)).drop(BUCKET)

    def without_dead_letters(self) -> EnrichPlan:
        """The same plan for a further query over the rows, which writes no dead letters."""
        misses = self.request.on_miss
        if not isinstance(misses, DeadLetter):
            return self
        request = replace(self.request, on_miss=replace(misses, written=False))
        if self.condition is not None:
            return replace(self, condition=replace(self.condition, request=request))
        return replace(self, task=replace(self.task, request=request))

    def metrics(self) -> Metrics:
        """The metrics of the last run, with measured and predicted service rate; for a stream, of all its batches."""
        found = self.sink.collect()
        rate = measured_rate(found)
        if rate is not None:
            price = self.decision.price
            expected = predicted_rate(found) or (None if price is None else price.rate)
            predicted = "" if expected is None else f", {expected:,.0f} predicted"
            found.note(f"service rate of a task: {rate:,.0f} rows/s measured{predicted}")
        return found

    def explain(self) -> str:
        """Algorithm and why, memory split, predicted service rate, the measured one after a run, and the losers."""
        request, task = self.request, self.task
        streams = self.columns.frame.isStreaming
        version = "newest" if streams or task.version is None else task.version
        lines = [
            f"Enrich: how={request.how}, mode={request.mode}, memory={format_bytes(request.memory)} per task, "
            f"on_miss={request.on_miss}, freshness={request.freshness}, exchange={request.exchange}"
            + (", null_safe" if request.null_safe else "")
            + (f", as_of={request.as_of}" if request.mode == "carry" else "")
            + (f", condition={request.condition}" if request.condition is not None else "")
            + (f", overlap={request.overlap}" if request.withins else ""),
            self.specification,
            *task.store.explain().splitlines(),
            f"version: {version}; versions of micro-batches are kept in {task.log.path}",
            f"sizes: {self.decision.origin}" + (", again from the first rows of each worker" if task.learns else ""),
        ]
        return "\n".join([*lines, *self._prices()])

    def _prices(self) -> list[str]:
        skew = self.decision.skew
        lines = [skew.explain() if skew else "skew: not sampled; Zipf's law with exponent 1 is assumed"]
        price = self.decision.price
        if price is not None and price.prediction is not None:
            parts = [f"{name} {format_bytes(int(size))}" for name, size in price.prediction.memory if size >= 1]
            lines.append(f"memory: {', '.join(parts)}")
        if price is not None:
            lines.append(f"predicted service rate of a task: {price.rate:,.0f} rows/s ({load_profile().explain()})")
        lines += self._measured()
        choice = self.decision.choice or self._choice()
        plain = self.decision.algorithm == "hash_join"
        head = "prices: a plain hash join runs in place of these semi-stream joins" if plain else "prices:"
        return [*lines, *([head] if choice else []), *(f"  {x}" for x in _table(choice))]

    def _measured(self) -> list[str]:
        try:
            metrics = self.sink.collect()
        except UnsupportedError:  # over Spark Connect nothing comes back
            return []
        rate, expected = measured_rate(metrics), predicted_rate(metrics)
        predicted = "" if expected is None else f" ({expected:,.0f} predicted by tasks from their first rows)"
        return [] if rate is None else [f"measured service rate of a task: {rate:,.0f} rows/s{predicted}"]

    def _choice(self) -> Choice | None:
        """The prices of all algorithms, if one was named."""
        task = self.task
        pages = task.store.at(task.version)
        try:
            setting, _ = setting_for(task.request, pages, _stream_schema(self.columns), None)
            return choose(setting)
        except PlanError:
            return None
        finally:
            pages.close()


def measured_rate(metrics: Metrics) -> float | None:
    """Rows per second that operators served while they were running; None before a run."""
    names = {entry.name for entry in metrics.entries()}
    if not {"rows", "serving"} <= names or not metrics.value("serving"):
        return None
    return metrics.value("rows") / metrics.seconds("serving")


def predicted_rate(metrics: Metrics) -> float | None:
    """Rows per second that tasks expected once they had seen their first rows; None if no model was used."""
    if "serving_predicted" not in {entry.name for entry in metrics.entries()}:
        return None
    return metrics.value("rows") / metrics.seconds("serving_predicted")


def _table(choice: Choice | None) -> list[str]:
    return [] if choice is None else choice.explain().splitlines()


def make_plan(frame: DataFrame, store: MasterStore, request: Request) -> EnrichPlan:
    """The plan of a request; a `PlanError` for what cannot be right comes before any job."""
    if not isinstance(store, MasterStore):
        raise PlanError(
            f"the master data is a {type(store).__name__}; give a MasterStore, such as MasterStore.open(path).",
            argument="master",
        )
    if request.mode == "carry" and not frame.isStreaming:
        raise PlanError(
            "mode='carry' is for streams; a batch DataFrame has no later batch: use mode='per_batch'.", argument="mode"
        )
    if request.mode == "carry" and not keeps_versions(store):
        raise UnsupportedError(
            f"mode='carry' needs master data that keeps old versions, so that a repeated micro-batch finds the "
            f"one that it began with; {store.source} keeps only the newest. Build a page file (MasterStore.build), or "
            f"use mode='per_batch'.",
            argument="mode",
        )
    request = _placed(frame.sparkSession, request)
    _check_places(frame, store, request)
    request = ranged_request(named_request(frame, store, request), store)
    store = store if request.ranged is not None else _by_part(frame, store, request)
    store = store.with_nulls() if request.null_safe else store
    condition = None if request.condition is None else Conditioned.of(frame, store, request)
    request = request if condition is None else pair_request(request)
    columns = plan_columns(frame, store, request)
    names = stream_names(columns.n_stream)
    how, settles = "left" if sets_aside(request.on_miss) else request.how, condition is not None and condition.settles
    on = tuple(names[at] for at in columns.on)
    check = pair_check(columns, names, request, store.key)
    wiring = Wiring(on, columns.master, how, settles or sets_aside(request.on_miss), settles, check)
    columns = columns if condition is None else condition.columns(columns)
    version = store.version() if keeps_versions(store) else None
    pages = store.at(version)
    try:
        check_store(request.algorithm, pages)
        if condition is not None:
            condition.check_store(store, pages)
        decision = _decided(frame, request, wiring, pages, columns)
        line = specification(request, wiring, pages, decision.algorithm, decision.sizes).explain()
    finally:
        pages.close()
    sink = MetricsSink(frame.sparkSession)
    task = _task(frame, store, request, columns, wiring, decision, version, sink)
    return EnrichPlan(columns, task, decision, _readable(line, names, columns), sink, condition)


def _placed(spark: SparkSession, request: Request) -> Request:
    """The request with its directories as Spark takes them, and dead letters with the access to theirs."""
    if isinstance(request.on_miss, DeadLetter):
        with suppress(PlanError):  # an address that Arrow knows, and we do not
            place = place_of(spark, request.on_miss.path)
            dead_letters = replace(request.on_miss, path=str(place), access=access_of(place))
            request = replace(request, on_miss=dead_letters)
    return request if request.versions is None else replace(request, versions=str(place_of(spark, request.versions)))


def _planned_log(spark: SparkSession, store: MasterStore, request: Request) -> VersionLog:
    access = None if request.versions is None else access_of(place_of(spark, request.versions))
    return log_of(store, request.versions, access)


def _check_places(frame: DataFrame, store: MasterStore, request: Request) -> None:
    """Refuse places that executors do not share, where they must."""
    spark, path = frame.sparkSession, getattr(store.source, "path", None)
    if path is not None:
        require_seen(spark, path)
    if isinstance(request.on_miss, DeadLetter) and request.on_miss.written:
        require_shared_directory(spark, request.on_miss.path, "dead letters")
    if frame.isStreaming:
        require_shared_directory(spark, _planned_log(spark, store, request).path, "the versions of micro-batches")


def _by_part(frame: DataFrame, store: MasterStore, request: Request) -> MasterStore:
    """The store looked up by the columns that `on` names."""
    key = [pair.right for pair in key_pairs(request, store, frame.columns)]
    if key == list(store.key):
        return store
    if request.null_safe:
        raise PlanError(
            f"null_safe=True needs the store's whole key {list(store.key)}; on= has {key} of it.", argument="null_safe"
        )
    return store.by(key)


def _decided(frame: DataFrame, request: Request, wiring: Wiring, pages: Pages, columns: Columns) -> Decision:
    schema = _stream_schema(columns)
    named = request.algorithm if request.algorithm != "auto" else smallest(pages)
    first = decide(replace(request, algorithm=named, tune="off"), wiring, pages, schema)  # before any job
    if request.algorithm != "auto" and (request.sizes is not None or request.tune != "model"):
        return first
    return decide(request, wiring, pages, schema, _sample(frame, columns, wiring, pages))


def _sample(frame: DataFrame, columns: Columns, wiring: Wiring, pages: Pages) -> Sample | None:
    """Keys of the first rows of a batch DataFrame; None for a stream."""
    if frame.isStreaming:
        return None
    named = columns.frame.toDF(*(f"c{at}" for at in range(columns.n_stream)))
    rows = named.select(*(f"c{at}" for at in columns.on)).limit(_SAMPLED).toArrow().rename_columns(list(wiring.on))
    types = [pages.schema.field(name).type for name in probed(pages)]
    fields = [
        pa.field(name, kind if pa.types.is_timestamp(kind) else rows.schema.field(name).type)
        for name, kind in zip(wiring.on, types, strict=True)
    ]
    n_rows: int | None = max(1, rows.num_rows)
    if rows.num_rows == _SAMPLED:
        n_rows = task_rows(columns.frame, width_of(_stream_schema(columns)), _SAMPLED)
    return replace(sample_of([rows.cast(pa.schema(fields))], wiring.on, pages, n_rows), once=True)


def _stream_schema(columns: Columns) -> pa.Schema:
    names = stream_names(columns.n_stream)
    types = [arrow_type(field.dataType) for field in columns.frame.schema]
    return pa.schema([pa.field(name, kind) for name, kind in zip(names, types, strict=True)])


def _task_schema(columns: Columns, wiring: Wiring, store: MasterStore) -> pa.Schema:
    """The stream's columns in tasks: timestamps that are keys as the master has them."""
    kinds = {name: store.schema.field(key).type for name, key in zip(wiring.on, store.probed, strict=True)}
    times = {name: kind for name, kind in kinds.items() if pa.types.is_timestamp(kind)}
    return pa.schema([pa.field(f.name, times.get(f.name, f.type)) for f in _stream_schema(columns)])


def _task(
    frame: DataFrame,
    store: MasterStore,
    request: Request,
    columns: Columns,
    wiring: Wiring,
    decision: Decision,
    version: str | None,
    sink: MetricsSink,
) -> EnrichTask:
    return EnrichTask(
        plan=uuid.uuid4().hex,
        store=store,
        request=request,
        decision=replace(decision, price=None, choice=None),
        wiring=wiring,
        n_stream=columns.n_stream,
        stream=_task_schema(columns, wiring, store),
        picked=columns.picked,
        output=pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in columns.output]),
        dead_letter_columns=pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in columns.stream]),
        log=_log(frame, store, request),
        version=version,
        streams=frame.isStreaming,
        learns=frame.isStreaming and request.sizes is None and (request.algorithm == "auto" or request.tune == "model"),
        sink=sink,
    )


def _log(frame: DataFrame, store: MasterStore, request: Request) -> VersionLog:
    """The version log, marked by the driver if micro-batches will read it."""
    log = _planned_log(frame.sparkSession, store, request)
    if not (frame.isStreaming or _in_micro_batch(frame)):
        return log
    if isinstance(store.source, PageFileSource):
        default_log(store).remember(log)  # so that changes of the page file keep what may be replayed
    return log.marked()


def _in_micro_batch(frame: DataFrame) -> bool:
    """Whether this is planned inside foreachBatch; unknown over Spark Connect."""
    if is_connect(frame):
        return False
    return bool(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def _readable(line: str, names: list[str], columns: Columns) -> str:
    """The line with the user's names for the stream's columns."""
    for neutral, name in zip(reversed(names), reversed(columns.frame.columns), strict=True):
        same = rf"{re.escape(neutral)} = {re.escape(name)}(?=, | and )"  # in both, and shown once
        line = re.sub(same, lambda _, name=name: name, line).replace(neutral, name)  # type: ignore[misc]
    return line


_TASK_BYTES = 128 << 20  # what Spark reads in one task, at most
_UNKNOWN_BYTES = 1 << 60  # Spark's size of unknown data is the largest number


def task_rows(frame: DataFrame, row_bytes: float, at_least: int) -> int | None:
    """Rows of one task, by Spark's statistics of the plan; None where it has none, as over Spark Connect.

    Ranges, local data and analysed tables have a row count; otherwise the estimated bytes are divided by `row_bytes`.
    There are at least `at_least` rows in all.
    """
    if is_connect(frame):
        return None
    statistics: Any = frame._jdf.queryExecution().optimizedPlan().stats()
    nbytes, counted = int(str(statistics.sizeInBytes())), statistics.rowCount()
    if counted.isDefined():
        rows = int(str(counted.get()))
    elif nbytes < _UNKNOWN_BYTES:
        rows = int(nbytes / max(1.0, row_bytes))
    else:
        return None
    tasks = max(parallelism(frame.sparkSession), -(-min(nbytes, _UNKNOWN_BYTES) // _TASK_BYTES))
    return max(1, max(rows, at_least) // tasks)
