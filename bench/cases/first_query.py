"""The first query of a fresh session, in a process of its own; workers import this module: it imports little."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAEMONS = {"plain": "pyspark.daemon", "warm": "dovetail.spark.daemon"}
# 2 tasks x (i % 500, i) for i < 5000: each key has 10 values in the multimap and is probed 10 times.
_ROWS, _KEYS, _TASKS = 10_000, 500, 2
EXPECTED_MATCHES = _TASKS * _KEYS * (_ROWS // _TASKS // _KEYS) ** 2


def first_queries(kind: str, cores: int = 2) -> dict[str, float]:
    """In a new process: start a session and run a hash join of 10,000 rows in it, twice.

    `kernel_s` is the longest first call of the kernels in a task.
    """
    from dovetail.spark.session import session

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dovetail-cold-") as directory:
        conf: dict[str, str | int | float] = {
            "spark.master": f"local[{cores}]",
            "spark.ui.enabled": False,
            "spark.local.dir": str(Path(directory)),
        }
        spark = session(conf={**conf, "spark.python.daemon.module": _DAEMONS[kind]})
        started = time.perf_counter()
        matches, kernel_s = query(spark)
        first = time.perf_counter()
        query(spark)
        second = time.perf_counter()
        spark.stop()
    times = {"session_s": started - began, "first_query_s": first - started, "second_query_s": second - first}
    return {"matches": matches, "kernel_s": kernel_s, **times}


def _opened(kind: str) -> SparkSession:
    """Our session, or Spark's own as its users start it, with the same cores and partitions and without a page."""
    conf = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    conf["spark.sql.shuffle.partitions"] = "2"
    if kind == "dovetail":
        from dovetail.spark.session import session

        return session("cold", conf=conf)
    from pyspark.sql import SparkSession

    from dovetail.spark.java import find_java

    os.environ |= {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    builder = SparkSession.builder.appName("cold")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def first_map(kind: str, params: dict[str, int]) -> dict[str, float]:
    """In a new process: session and first query together, rows that go through Python; and each of the two."""
    began = time.perf_counter()
    spark = _opened(kind)
    started = time.perf_counter()
    rows = spark.range(0, params["rows"], 1, 2).mapInArrow(_passed_on, "id long").count()
    ended = time.perf_counter()
    spark.stop()
    return {"answer": rows, "seconds": ended - began, "session_s": started - began, "first_query_s": ended - started}


def _passed_on(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def first_online(kind: str, params: dict[str, int]) -> dict[str, float]:
    """In a new process: the first micro-batch of two streams joined by key, by our join or by Spark's own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    spark, place = _opened(kind), Path(tempfile.mkdtemp())
    for side in ("left", "right"):
        (place / side).mkdir()
        rows = pa.table({"key": range(params["rows"]), f"{side}_id": range(params["rows"])})
        pq.write_table(rows, place / side / "0.parquet")
    left, right = (
        spark.readStream.schema(f"key long, {side}_id long").parquet(str(place / side)) for side in ("left", "right")
    )
    if kind == "dovetail":
        from dovetail.joins.online.api import online_join

        joined = online_join(left, right, on="key", retain="1 hour", owed="batch")
    else:
        joined = left.join(right, "key")
    writer = joined.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = [progress for progress in query.recentProgress if progress["numInputRows"]]
    seconds = float(done[0]["durationMs"]["triggerExecution"]) / 1e3
    answer = sum(max(0, int(progress["sink"]["numOutputRows"])) for progress in query.recentProgress)
    spark.stop()
    return {"answer": answer, "seconds": seconds}


def first_count(kind: str, params: dict[str, int]) -> dict[str, float]:
    """In a new process: the first `interval_count`, once the session is up."""
    from dovetail.joins.interval.api import interval_count

    spark = _opened(kind)
    rows = spark.range(params["rows"]).selectExpr("id", "id as start", "id + 10 as end")
    began = time.perf_counter()
    answer = interval_count(rows, rows)
    seconds = time.perf_counter() - began
    spark.stop()
    return {"answer": answer, "seconds": seconds}


def query(spark: SparkSession) -> tuple[int, float]:
    """The matches of all tasks and the longest time that one of them spent in kernels."""
    rows = spark.range(0, _ROWS, 1, _TASKS).mapInArrow(_joined_with_itself, "matches long, seconds double").collect()
    return sum(row.matches for row in rows), max(row.seconds for row in rows)


def _joined_with_itself(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    rows = pa.Table.from_batches(batches).column("id").to_numpy()
    before = time.perf_counter()
    from dovetail.engine.kernels.multimap import HashMultimap

    table = HashMultimap()
    table.insert(rows % _KEYS, rows)
    matches = len(table.probe(rows % _KEYS)[0])
    seconds = time.perf_counter() - before
    yield pa.RecordBatch.from_pydict({"matches": [matches], "seconds": [seconds]})
