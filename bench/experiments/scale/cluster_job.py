"""One join of each family, asked in whichever Spark there is; as a program, in a cluster of two executors.

`python -m bench.experiments.scale.cluster_job DIRECTORY` prints what it found as JSON, on its last line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.xquery_weather import FIRST_YEAR, QUERIES
from dovetail.joins.interval.api import interval_join
from dovetail.joins.online.api import online_join
from dovetail.joins.semistream.api import enrich
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.session import session
from dovetail.spark.status import each
from dovetail.workloads import Exponential, RandomIntervals, Weather
from dovetail.xml.api import plan_xquery

CLUSTER: Final = "local-cluster[2,1,1024]"
"""Two executors with a core and 1 GiB each, every one a process of its own, beside the driver."""
_FILES = 4
_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """One join in one place: answers, their checksum, the best time, and bytes that went through the shuffle."""

    rows: int
    checksum: str
    seconds: float
    shuffle_bytes: int


@dataclass(frozen=True, slots=True)
class Ran:
    """All joins by family, and the tasks that each executor ended."""

    families: dict[str, Asked]
    tasks: dict[str, int]


def write_data(place: Path, rows: int) -> None:
    """The inputs of all four joins, as files that every process can read."""
    for side, seed in (("left", 1), ("right", 2)):
        table = RandomIntervals(rows, 100 * rows, Exponential(1_000), seed=seed).table()
        _write(place / f"interval-{side}", table.select(["id", "start", "end"]))
        keys = np.random.default_rng(seed).integers(0, rows, rows)
        _write(place / f"online-{side}", pa.table({"key": keys, f"{side}_id": np.arange(rows)}))
    master = np.arange(rows // 2)
    write_pages(place / "master", pa.table({"key": master, "word": pa.array([f"word {n}" for n in master])}), "key")
    Weather(4, 2, FIRST_YEAR + 4).write(place / "weather")


def _write(place: Path, table: pa.Table) -> None:
    place.mkdir(parents=True)
    rows = -(-table.num_rows // _FILES)
    for n in range(_FILES):
        pq.write_table(table.slice(n * rows, rows), place / f"{n}.parquet")


def joins(spark: SparkSession, place: Path) -> dict[str, Callable[[], DataFrame]]:
    """The joins by family, over the files in a directory."""

    def read(name: str) -> DataFrame:
        return spark.read.parquet(str(place / name))

    weather = {f"/{name}": place / "weather" / name for name in ("sensors", "stations")}
    return {
        "interval, operators": lambda: interval_join(
            read("interval-left"), read("interval-right"), route="in_memory", partitions=_PARTITIONS
        ),
        "interval, bins": lambda: interval_join(read("interval-left"), read("interval-right"), route="native"),
        "semi-stream": lambda: enrich(
            read("online-left"), MasterStore.open(place / "master"), on="key", memory="4MB", route="master"
        ),
        "online": lambda: online_join(
            read("online-left"), read("online-right"), on="key", memory="4MB", buckets=_PARTITIONS
        ),
        "xquery": lambda: plan_xquery(spark, QUERIES["7.6"], weather, partitions=2).frame(),
    }


def ask(spark: SparkSession, place: Path) -> Ran:
    """Every join twice; the answers of the second one, the better time of both, and the bytes of one."""
    found = {}
    for family, make in joins(spark, place).items():
        seconds, moved, answer = float("inf"), 0, (0, "")
        for _ in range(2):
            before, began = _shuffled(spark), time.perf_counter()
            answer = _summed(make())
            seconds = min(seconds, time.perf_counter() - began)
            moved = _shuffled(spark) - before
        found[family] = Asked(*answer, seconds, moved)
    return Ran(found, {name: tasks for name, tasks, _ in _executors(spark)})


def _summed(frame: DataFrame) -> tuple[int, str]:
    """Rows, and the sum of their hashes, which does not depend on their order."""
    columns = ", ".join(f"`{name}`" for name in frame.columns)
    row = frame.agg(F.expr("count(*)"), F.expr(f"sum(cast(xxhash64({columns}) as decimal(38, 0)))")).first()
    return (int(row[0]), str(row[1])) if row else (0, "")


def _shuffled(spark: SparkSession) -> int:
    return sum(nbytes for _, _, nbytes in _executors(spark))


def _executors(spark: SparkSession) -> list[tuple[str, int, int]]:
    """The processes that run tasks: name, tasks ended, and bytes written to the shuffle, from Spark's own store."""
    context: Any = spark.sparkContext
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    some = each(scala.statusStore().executorList(False))
    return [(one.id(), int(one.completedTasks()), int(one.totalShuffleWrite())) for one in some]


def main(place: Path) -> None:
    """Ask in a cluster, and print what was found."""
    settings: dict[str, str | int | bool] = {
        "spark.master": CLUSTER,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": "ERROR",
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": _PARTITIONS,
    }
    spark = session("dovetail bench cluster", conf=settings)
    try:
        ran = ask(spark, place)
    finally:
        spark.stop()
    print(json.dumps(asdict(ran)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
