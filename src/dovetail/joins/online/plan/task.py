"""The task of an online join: what is joined, how rows are spread, and what Spark gets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.packing import CHUNK_BYTES, as_schema
from dovetail.errors import DataError
from dovetail.joins.online.bucket_join import BucketJoin, Pair
from dovetail.joins.online.bucket_rule import BucketRule, MultiBucketRule
from dovetail.joins.online.events import Event
from dovetail.joins.online.hot_keys import KeyCounter
from dovetail.joins.online.lateness import Lateness
from dovetail.joins.online.request import Terms
from dovetail.spark.hosts.exchange import Exchange
from dovetail.spark.hosts.stateful import Wakes
from dovetail.spark.task import MetricsSink, state_partitions

CHANGE_COLUMN = "_change_type"
"""Names of the column by which change feeds mark inserted rows; other rows cannot be joined."""


@dataclass(frozen=True, slots=True)
class OnlineTask:
    """One planned online join as its tasks see it.

    Without `buckets`, a stream has as many as its checkpoint has partitions. With `marked` the last column of each
    input says where it ends. `answers` are the columns of the join's result, `output` those that Spark gets. The joins
    that stay in the resident process of an executor may hold `resident_bytes`.
    """

    plan: str
    join: BucketJoin
    request: Terms
    buckets: int | None
    marked: bool
    answers: pa.Schema
    output: pa.Schema
    sink: MetricsSink
    lateness: Lateness | None = None
    resident_bytes: int | None = None

    chunk_bytes: ClassVar[int] = CHUNK_BYTES

    @property
    def calls_all(self) -> bool:
        """Rows that leave by their retention must come out of partitions that get no rows, too."""
        return bool(self.join.what.preserved) and self.request.retain_ms is not None

    @property
    def wakes(self) -> Wakes:
        """When buckets of a stream are called without rows: for work in pauses, or to give unmatched rows."""
        if self.join.what.preserved and self.lateness is not None:
            return "by watermark"
        return "by clock" if self.request.reacts else "never"

    def bucket_rule(self) -> BucketRule | MultiBucketRule:
        """Which buckets rows belong to, the same in every micro-batch and after every restart."""
        return self.join.bucket_rule(self.buckets or state_partitions())

    def exchange(self) -> AbstractContextManager[Exchange]:
        """The buckets of rows; rows without a key are in none."""
        return nullcontext(self.bucket_rule())

    def key_counter(self) -> KeyCounter:
        """Counts the keys that `hot` can name: equal columns of two inputs."""
        join = self.join
        columns = [
            join.what.key_columns(side) if isinstance(join.what, Pair) else () for side in range(len(join.names))
        ]
        return KeyCounter(join.inputs, columns, isinstance(join.what, Pair) and join.what.null_safe)

    def take_rows(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the types of the join; `DataError` for updates and deletions."""
        name = self.join.names[side]
        rows = as_schema(batch, self.join.schemas[name])
        _check_appended(name, rows)
        return rows


def _check_appended(name: str, rows: pa.RecordBatch) -> None:
    """`DataError` for updated or deleted rows: results cannot be retracted."""
    if CHANGE_COLUMN not in rows.schema.names:
        return
    kinds = set(pc.unique(rows.column(CHANGE_COLUMN)).to_pylist()) - {"insert", None}
    if kinds:
        raise DataError(
            f"{name} has rows with {CHANGE_COLUMN} {sorted(map(str, kinds))}; online joins take rows that are only "
            f"added: filter the input by {CHANGE_COLUMN} = 'insert', or drop that column to join each row as a new one."
        )


def counts_by_side(name: str, sides: Sequence[str], counts: Sequence[int]) -> Metrics:
    """Rows of each side under one name."""
    metrics = Metrics()
    for side, n in zip(sides, counts, strict=True):
        metrics.add(name, int(n), side)
    return metrics


def step_metrics(report: dict[str, Any], events: Sequence[Event]) -> Metrics:
    """The counters of a step."""
    metrics = Metrics()
    for name, n in report["counts"].items():
        what, _, side = name.partition(" ")
        unit = "rows" if what.startswith("results") else what.partition("_")[0]
        metrics.add(what, n, side or None, unit=unit)
    for name, n in report["peaks"].items():
        metrics.peak(name, n, unit="ns" if name == "handover_delay" else "bytes")
    if report["replayed"]:
        metrics.add("joins_rebuilt", 1, unit="joins")
    metrics.add("units_of_pause", sum(e.units * e.times for e in events if e.kind == "idle"), unit="units")
    return metrics
