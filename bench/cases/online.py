"""Two streams joined with each other through Spark, from their first row to their last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from bench.case import Outcome, Params, Prepare, Run
from bench.context import BenchContext, settings
from dovetail.errors import DovetailError
from dovetail.joins.online.api import plan_online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDES = ("left", "right")
_ROW_GROUP = 50_000  # so that Spark can split the file of a large micro-batch
_PATIENCE_S = 600.0
_LOOK_S = 0.2  # what is timed does not depend on it; looking costs the query some of its processors
_EARLY = 1_000_000
Joined: TypeAlias = "tuple[DataFrame, Callable[[], dict[str, float]]]"
Join: TypeAlias = Callable[["DataFrame", "DataFrame", Params], Joined]


@dataclass(frozen=True, slots=True)
class Sides:
    """Two streams, a file of each a micro-batch: how many, and the rows of one of a side.

    `matches` are the pairs of both, counted another way. The first `untimed` micro-batches start and warm the query.
    """

    batches: int
    table: Callable[[BenchContext, int, int, int], pa.Table]
    matches: Callable[[BenchContext, Params], int]
    watermark: str | None = None
    untimed: int = 1

    def files(self, bench: BenchContext, rows: int) -> Path:
        """Both sides as files; they are read in the order of their times."""

        def make() -> Path:
            place = bench.fresh()
            for side, name in enumerate(SIDES):
                (place / name).mkdir()
                for batch in range(self.batches):
                    path = place / name / f"{batch:03d}.parquet"
                    pq.write_table(self.table(bench, side, batch, rows), path, row_group_size=_ROW_GROUP)
                    os.utime(path, (_EARLY + batch, _EARLY + batch))
            return place

        return bench.once(("online files", self.batches, rows), make)

    def stream(self, bench: BenchContext, place: Path, side: int) -> DataFrame:
        """One side as a stream."""
        schema = from_arrow_schema(self.table(bench, side, 0, 1).schema)
        reader = bench.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(place / SIDES[side]))
        return stream.withWatermark("at", self.watermark) if self.watermark else stream

    def joined(self, join: Join, conf: dict[str, str] | None = None) -> Prepare:
        """A rival that joins both streams from their first row to their last, in a new query each time.

        `conf` are Spark's while the query runs.
        """

        @contextmanager
        def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
            place, whole = self.files(bench, int(params["batch_rows"])), self.matches(bench, params)

            def turn() -> Outcome:
                left, right = (self.stream(bench, place, side) for side in (0, 1))
                frame, further = join(left, right, params)
                with settings(bench.spark, conf or {}):
                    try:
                        found = _run(frame, bench.fresh(), whole, self.untimed)
                    finally:
                        _forget_state(bench.spark)
                return Outcome(found.answer, found.seconds, {**found.figures, **further()})

            yield turn

        return prepare


# Keys of which each has about one row a side, all rows kept to the end.


BATCHES = 6


def side_rows(bench: BenchContext, side: int, batch: int, rows: int) -> pa.Table:
    """A micro-batch of one side: keys of which each has about one row a side, a number of its own, and a figure."""
    rng = np.random.default_rng([bench.seed, side, batch])
    key = rng.integers(0, BATCHES * rows, rows)
    name = SIDES[side]
    numbers = np.arange(batch * rows, (batch + 1) * rows)
    return pa.table({"key": key, f"{name}_id": numbers, f"{name}_value": rng.random(rows)})


def matches(bench: BenchContext, params: Params) -> int:
    """How many pairs the two streams have."""
    rows = int(params["batch_rows"])

    def count() -> int:
        counts = [np.zeros(BATCHES * rows, np.int64), np.zeros(BATCHES * rows, np.int64)]
        for side in (0, 1):
            for batch in range(BATCHES):
                keys = side_rows(bench, side, batch, rows)["key"].to_numpy()
                counts[side] += np.bincount(keys, minlength=BATCHES * rows)
        return int(counts[0] @ counts[1])

    return bench.once(("matches", rows), count)


LASTING = Sides(BATCHES, side_rows, matches)


def _forget_state(spark: SparkSession) -> None:
    """Give back the state of queries that have ended, which Spark keeps for minutes: a heap holds that of few."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def _run(frame: DataFrame, place: Path, whole: int, untimed: int) -> Outcome:
    """The query until all rows have come: rows that the sink counted, seconds of the timed micro-batches."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(place))
    query = writer.trigger(processingTime="0 seconds").start()
    seen: dict[int, Any] = {}
    end = time.monotonic() + _PATIENCE_S
    try:
        while query.isActive and time.monotonic() < end and _answered(seen) < whole:
            time.sleep(_LOOK_S)
            seen |= {progress["batchId"]: progress for progress in query.recentProgress}
        failure = query.exception()
    finally:
        query.stop()
    if failure is not None:
        raise DovetailError(f"the query failed: {failure}")
    done = [progress for _, progress in sorted(seen.items())]
    timed = [p for p in done[untimed:] if p["numInputRows"] or p["sink"]["numOutputRows"] > 0]
    seconds = sum(float(p["durationMs"]["triggerExecution"]) for p in timed) / 1e3
    rows = sum(int(p["numInputRows"]) for p in timed)
    state = max((sum(int(s["memoryUsedBytes"]) for s in p["stateOperators"]) for p in done), default=0)
    figures = {
        "rows_per_s": rows / max(seconds, 1e-9),
        "first_results": float(max(0, done[0]["sink"]["numOutputRows"])),
        "none_in_first_batch": float(done[0]["sink"]["numOutputRows"] <= 0),
        "state_mib": state / 2**20,
        **_each([float(p["durationMs"]["triggerExecution"]) / 1e3 for p in timed]),
    }
    return Outcome(_answered(seen), seconds, figures)


def _each(seconds: Sequence[float]) -> dict[str, float]:
    """Seconds of a micro-batch: median and longest, and whether the last quarter takes as long as the first."""
    if not seconds:
        return {}
    quarter = max(1, len(seconds) // 4)
    grown = median(seconds[-quarter:]) / median(seconds[:quarter])
    return {"batch_s": median(seconds), "longest_batch_s": max(seconds), "last_over_first": grown}


def _answered(seen: dict[int, Any]) -> int:
    return sum(max(0, int(progress["sink"]["numOutputRows"])) for progress in seen.values())


def dovetail(left: DataFrame, right: DataFrame, params: Params) -> Joined:
    """DINER, to the end of both inputs."""
    last = BATCHES * int(params["batch_rows"]) - 1
    ends = {name: F.col(f"{name}_id") == last for name in SIDES}
    plan = plan_online_join(left, right, on="key", memory=params["memory"], end_of_input=ends)

    def further() -> dict[str, float]:
        found, budget = plan.metrics(), plan.task.request.memory
        blocks = found.value("blocks_flushed", "left") + found.value("blocks_flushed", "right")
        return {"peak_of_budget": found.value("memory_peak") / budget, "blocks_flushed": float(blocks)}

    return plan.frame(), further


def stream_stream(left: DataFrame, right: DataFrame, params: Params) -> Joined:
    """Spark's own inner join of two streams, whose state keeps every row of both."""
    return left.join(right, "key"), dict


_STATE = "org.apache.spark.sql.execution.streaming.state"
_SPARKS_FORMAT = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "1"}
_STORES = {
    "RocksDB": {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"} | _SPARKS_FORMAT,
    "RocksDB, changes only": {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"},
    "Java's memory": {"spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider"}
    | _SPARKS_FORMAT,
}
"""Where Spark's join keeps its state: as Spark sets RocksDB up, as our session does, and in Java's memory."""
OURS, THEIRS, IN_JAVA = "dovetail", "spark's stream-stream join", "spark's join, state in Java's memory"
ours = LASTING.joined(dovetail)


def sparks(store: str) -> Prepare:
    """Spark's own join with its state in a store."""
    return LASTING.joined(stream_stream, _STORES[store])


# The everyday join: a key, a band of event times, watermarks; rows leave, so that some four micro-batches are in state.

_START_US, _SPAN_US, _NEAR = 1_700_000_000_000_000, 40_000_000, timedelta(seconds=60)


def timed_rows(bench: BenchContext, side: int, batch: int, rows: int) -> pa.Table:
    """A micro-batch of one side: 40 seconds of events, of as many keys as rows."""
    rng, name = np.random.default_rng([side, batch]), SIDES[side]
    at = np.sort(_START_US + batch * _SPAN_US + rng.integers(0, _SPAN_US, rows))
    columns = {"key": rng.integers(0, rows, rows), "at": pa.array(at, pa.timestamp("us", "UTC"))}
    return pa.table({**columns, f"{name}_id": np.arange(batch * rows, (batch + 1) * rows)})


def near_matches(batches: int, bench: BenchContext, params: Params) -> int:
    """Pairs of one key within a minute: keys are laid one after another on one line of time."""
    rows, lines = int(params["batch_rows"]), []
    span = (batches + 4) * _SPAN_US
    for side in (0, 1):
        tables = [timed_rows(bench, side, batch, rows) for batch in range(batches)]
        both = pa.concat_tables(tables)
        lines.append(both["key"].to_numpy() * span + both["at"].cast(pa.int64()).to_numpy() - _START_US)
    left, right, near = np.sort(lines[0]), lines[1], _NEAR // timedelta(microseconds=1)
    return int((np.searchsorted(left, right + near, "right") - np.searchsorted(left, right - near, "left")).sum())


EVERYDAY, LONG = (Sides(n, timed_rows, partial(near_matches, n), watermark="20 seconds", untimed=6) for n in (10, 40))


def everyday(left: DataFrame, right: DataFrame, params: Params) -> Joined:
    """Our join, whose answers come in the micro-batch of their rows."""
    within = ("at", "at", -_NEAR, _NEAR)
    plan = plan_online_join(left, right, on="key", within=within, owed="batch", memory=params["memory"])
    return plan.frame(), dict


def sparks_everyday(left: DataFrame, right: DataFrame, params: Params) -> Joined:
    """Spark's own join of streams with the same condition."""
    near = F.expr("r.at between l.at - interval 60 seconds and l.at + interval 60 seconds")
    return left.alias("l").join(right.alias("r"), (F.col("l.key") == F.col("r.key")) & near), dict


# Keys that meet in their own micro-batch only, so that the answer is the same whatever has expired.


def fleeting_rows(bench: BenchContext, side: int, batch: int, rows: int) -> pa.Table:
    """A micro-batch of one side: every key once on each side."""
    keys = np.random.default_rng([bench.seed, side, batch]).permutation(rows) + batch * rows
    return pa.table({"key": keys, f"{SIDES[side]}_id": np.arange(batch * rows, (batch + 1) * rows)})


FLEETING = Sides(40, fleeting_rows, lambda bench, params: 40 * int(params["batch_rows"]), untimed=6)


def retained(retain: str, left: DataFrame, right: DataFrame, params: Params) -> Joined:
    """Our join whose rows leave the state so long after they came."""
    plan = plan_online_join(left, right, on="key", retain=retain, owed="batch", memory=params["memory"])
    return plan.frame(), dict


def everyday_streams(join: str, batches: int) -> Prepare:
    """The everyday join by one of these functions, over `batches` micro-batches."""
    return {10: EVERYDAY, 40: LONG}[batches].joined(globals()[join])


def fleeting_streams(retain: str) -> Prepare:
    """Our join over keys that meet once, whose rows leave the state."""
    return FLEETING.joined(partial(retained, retain))
