"""The first query of a fresh session, in a process of its own; workers import this module: it imports little."""

from __future__ import annotations

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
