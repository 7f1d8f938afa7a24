"""What the first query of a fresh session costs: measured in a process of its own, with and without our daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Workers = Literal["plain", "warm"]
Cache = Literal["empty", "filled"]

# 2 tasks x (i % 500, i) for i < 5000: each key has 10 values in the multimap and is probed 10 times.
_ROWS, _KEYS, _TASKS = 10_000, 500, 2
EXPECTED_MATCHES = _TASKS * _KEYS * (_ROWS // _TASKS // _KEYS) ** 2


@dataclass(frozen=True, slots=True)
class ColdStart:
    """Seconds of one fresh process; `kernel_s` is the longest first call of the kernels in a task."""

    workers: Workers
    cache: Cache
    session_s: float
    first_query_s: float
    second_query_s: float
    kernel_s: float
    matches: int


def measure_cold_start(workers: Workers, cache: Cache, cores: int = 2) -> ColdStart:
    """The cost of starting a session and running a hash join of 10,000 rows in it, twice, in a new process.

    `plain` workers are forked by Spark's own daemon and prepare kernels themselves; `warm` ones by ours. An `empty`
    cache is that of the first run ever; a `filled` one of every later run. Check `matches == EXPECTED_MATCHES`.
    """
    with ExitStack() as cleared:
        environment = dict(os.environ)
        if cache == "empty":
            directory = cleared.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-cold-"))
            environment |= {"DOVETAIL_CACHE": directory, "NUMBA_CACHE_DIR": directory}
        else:
            _run([sys.executable, "-m", "dovetail.spark.warm"], environment)
        command = [sys.executable, "-m", "bench.coldstart", workers, cache, str(cores)]
        return ColdStart(**json.loads(_run(command, environment).splitlines()[-1]))


def _run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  (our own module)
    if done.returncode != 0:
        raise ConfigError(f"{' '.join(command[1:])} failed with code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _measure(workers: Workers, cache: Cache, cores: int) -> ColdStart:
    from dovetail.spark.session import session

    module = {"plain": "pyspark.daemon", "warm": "dovetail.spark.daemon"}[workers]
    before = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dovetail-cold-") as directory:
        spark = session(
            conf={
                "spark.master": f"local[{cores}]",
                "spark.ui.enabled": False,
                "spark.local.dir": str(Path(directory)),
                "spark.python.daemon.module": module,
            }
        )
        started = time.perf_counter()
        matches, kernel_s = _query(spark)
        first = time.perf_counter()
        _query(spark)
        second = time.perf_counter()
        spark.stop()
    return ColdStart(workers, cache, started - before, first - started, second - first, kernel_s, matches)


def _query(spark: SparkSession) -> tuple[int, float]:
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


if __name__ == "__main__":
    # The function that Spark pickles must belong to a module that workers can import, not to __main__.
    from bench import coldstart

    name, state, n_cores = sys.argv[1:]
    if name not in ("plain", "warm") or state not in ("empty", "filled"):
        raise SystemExit(f"usage: coldstart plain|warm empty|filled CORES, not {sys.argv[1:]}")
    figures = coldstart._measure(name, state, int(n_cores))  # type: ignore[arg-type]  # checked above; mypy does not narrow it
    print(json.dumps(asdict(figures)))
