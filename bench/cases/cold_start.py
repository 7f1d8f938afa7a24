"""Cold start: what the first query of a fresh session pays for kernels, with Spark's worker daemon and with ours."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run
from bench.child import run_child
from bench.context import BenchContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAEMONS = {"plain": "pyspark.daemon", "warm": "dovetail.spark.daemon"}
_PATIENCE_S = 300.0
# 2 tasks x (i % 500, i) for i < 5000: each key has 10 values in the multimap and is probed 10 times.
_ROWS, _KEYS, _TASKS = 10_000, 500, 2
EXPECTED_MATCHES = _TASKS * _KEYS * (_ROWS // _TASKS // _KEYS) ** 2


def _workers(kind: str) -> Prepare:
    """A rival whose every run is a process, a JVM and a session of its own; timed is the first query alone.

    `plain` workers are forked by Spark's own daemon and prepare kernels themselves; `warm` ones by ours. An `empty`
    cache is that of the first run ever; a `filled` one of every later run.
    """

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        def run() -> Outcome:
            environment = {}
            if params["kernel_cache"] == "empty":
                cache = tempfile.mkdtemp(dir=bench.scratch)
                environment = {"DOVETAIL_CACHE": cache, "NUMBA_CACHE_DIR": cache}
            else:
                subprocess.run([sys.executable, "-m", "dovetail.spark.warm"], check=True, capture_output=True)
            ended = run_child(first_queries, kind, scratch=bench.scratch, env=environment, patience_s=_PATIENCE_S)
            figures = dict(ended.answered())
            return Outcome(int(figures.pop("matches")), figures.pop("first_query_s"), figures)

        yield run

    return prepare


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


LATER: Params = {"kernel_cache": "filled"}
CASES = (
    Case(
        name="cold_start",
        question="What does the first query of a fresh session cost, with workers that start with compiled kernels?",
        varies=("kernel_cache",),
        points={"small": [LATER], "full": [{"kernel_cache": "empty"}, LATER]},
        rivals=(Rival("warm workers", _workers("warm")), Rival("plain workers", _workers("plain"))),
        expected=lambda bench, params: EXPECTED_MATCHES,
        baseline="plain workers",
        # With an empty cache nobody has kernels yet: those figures show what set-up saves, and claim nothing.
        bounds=(
            Bound(
                "workers inherit kernels", "warm workers", 0.1, against="plain workers", where=LATER, figure="kernel_s"
            ),
            Bound("first query not slower", "warm workers", 1.0, against="plain workers", where=LATER),
        ),
        answer="matches",
        measures=("engine", "spark"),
        small_rounds=1,
        warms_up=False,
    ),
)
