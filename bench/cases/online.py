"""Two streams joined with each other through Spark, from their first row to their last."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run
from bench.context import BenchContext, settings
from dovetail.errors import DovetailError
from dovetail.joins.online.api import plan_online_join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 6
SIDES = ("left", "right")
_ROW_GROUP = 50_000  # so that Spark can split the file of a large micro-batch
_PATIENCE_S = 600.0
_LOOK_S = 0.2  # what is timed does not depend on it; looking costs the query some of its processors
_EARLY = 1_000_000
Joined: TypeAlias = "tuple[DataFrame, Callable[[], dict[str, float]]]"
Join: TypeAlias = Callable[["DataFrame", "DataFrame", Params], Joined]


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


def _files(bench: BenchContext, rows: int) -> Path:
    """Both sides as files, one a micro-batch."""

    def make() -> Path:
        place = Path(tempfile.mkdtemp(dir=bench.scratch))
        for side, name in enumerate(SIDES):
            (place / name).mkdir()
            for batch in range(BATCHES):
                path = place / name / f"{batch:03d}.parquet"
                pq.write_table(side_rows(bench, side, batch, rows), path, row_group_size=_ROW_GROUP)
                os.utime(path, (_EARLY + batch, _EARLY + batch))
        return place

    return bench.once(("online files", rows), make)


def joined_streams(join: Join, conf: dict[str, str] | None = None) -> Prepare:
    """A rival that joins both streams from their first row to their last, in a new query each time.

    `conf` are Spark's while the query runs.
    """

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        place, spark = _files(bench, int(params["batch_rows"])), bench.spark
        whole = matches(bench, params)

        def turn() -> Outcome:
            streams = []
            for side, name in enumerate(SIDES):
                schema = from_arrow_schema(side_rows(bench, side, 0, 1).schema)
                reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
                streams.append(reader.parquet(str(place / name)))
            frame, further = join(streams[0], streams[1], params)
            with settings(spark, conf or {}):
                try:
                    found = _run(frame, bench.scratch, whole)
                finally:
                    _forget_state(spark)
            return Outcome(found.answer, found.seconds, {**found.figures, **further()})

        yield turn

    return prepare


def _forget_state(spark: SparkSession) -> None:
    """Give back the state of queries that have ended, which Spark keeps for minutes: a heap holds that of few."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def _run(frame: DataFrame, scratch: Path, whole: int) -> Outcome:
    """The query until all rows have come: rows that the sink counted, seconds of the micro-batches after the first."""
    place = tempfile.mkdtemp(dir=scratch)
    writer = frame.writeStream.format("noop").option("checkpointLocation", place)
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
    timed = [p for p in done[1:] if p["numInputRows"] or p["sink"]["numOutputRows"] > 0]
    seconds = sum(float(p["durationMs"]["triggerExecution"]) for p in timed) / 1e3
    rows = sum(int(p["numInputRows"]) for p in timed)
    state = max((sum(int(s["memoryUsedBytes"]) for s in p["stateOperators"]) for p in done), default=0)
    figures = {
        "rows_per_s": rows / max(seconds, 1e-9),
        "first_results": float(max(0, done[0]["sink"]["numOutputRows"])),
        "none_in_first_batch": float(done[0]["sink"]["numOutputRows"] <= 0),
        "state_mib": state / 2**20,
    }
    return Outcome(_answered(seen), seconds, figures)


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


_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_IN_JAVA = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_ASIDE = "spark's join, state in RocksDB, changes only"
OURS, THEIRS, IN_JAVA = "dovetail", "spark's stream-stream join", "spark's join, state in Java's memory"
LARGE = (100_000, 250_000)


def _fits_in_java(params: Params) -> str | None:
    rows = 2 * BATCHES * int(params["batch_rows"])
    return f"{rows:,} rows are more than a heap of 1 GiB holds, Spark's own default" if rows > 1_200_000 else None


def _points(*batch_rows: int, memory: str) -> list[Params]:
    return [{"batch_rows": rows, "memory": memory} for rows in batch_rows]


def _thrice(rows: int, against: str) -> Bound:
    """Smaller micro-batches are mostly what Spark needs for any of them; the page of figures tells what is left."""
    return Bound("three times Spark's rate", OURS, 1 / 3, against=against, where={"batch_rows": rows}, scale="full")


CASES = (
    Case(
        name="online",
        question="How many rows a second of two streams are joined with each other, end to end?",
        varies=("batch_rows", "memory"),
        points={
            "small": _points(4_000, 8_000, 16_000, memory="2MB"),
            "full": _points(50_000, 100_000, 250_000, memory="32MB"),
        },
        rivals=(
            Rival(OURS, joined_streams(dovetail)),
            Rival(THEIRS, joined_streams(stream_stream, {_CHANGELOG: "false"})),  # as Spark sets it up
            Rival(_ASIDE, joined_streams(stream_stream, {_CHANGELOG: "true"})),  # as our session does
            Rival(IN_JAVA, joined_streams(stream_stream, {_PROVIDER: _IN_JAVA}), sits_out=_fits_in_java),
        ),
        expected=matches,
        baseline=OURS,
        bounds=(
            *(_thrice(rows, against) for rows in LARGE for against in (THEIRS, _ASIDE)),
            Bound("first results in the first micro-batch", OURS, 0.0, figure="none_in_first_batch"),
            Bound("inside the budget", OURS, 1.0, figure="peak_of_budget"),
        ),
        answer="pairs",
        measures=("engine", "joins/online", "spark"),
        patience_s=45.0,
        small_rounds=1,
        rounds=5,  # Java goes on compiling for some rounds, more so for us, who take less time
    ),
)
