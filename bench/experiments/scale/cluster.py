"""The smallest real distribution: two executors, each a process of its own, give what one process gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.child import run_child
from bench.context import BenchContext
from bench.judge import Figures
from bench.rivals.intervals import overlap_counts, write_files
from bench.rivals.weather import FIRST_YEAR, QUERIES
from dovetail.errors import DataError
from dovetail.joins.interval.api import interval_join
from dovetail.joins.online.api import online_join
from dovetail.joins.semistream.api import enrich
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.session import session
from dovetail.spark.status import each
from dovetail.workloads import Exponential, RandomIntervals, Weather
from dovetail.xml.api import plan_xquery

ROWS = {"small": 20_000, "full": 200_000}
_PATIENCE_S = 600.0
_TESTING = {"SPARK_TESTING": "1"}
"""Spark starts such a cluster for tests only."""
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
        write_files(table.select(["id", "start", "end"]), place / f"interval-{side}", _FILES)
        keys = np.random.default_rng(seed).integers(0, rows, rows)
        write_files(pa.table({"key": keys, f"{side}_id": np.arange(rows)}), place / f"online-{side}", _FILES)
    master = np.arange(rows // 2)
    write_pages(place / "master", pa.table({"key": master, "word": pa.array([f"word {n}" for n in master])}), "key")
    Weather(4, 2, FIRST_YEAR + 4).write(place / "weather")


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
            read("online-left"), MasterStore.open(place / "master"), on="key", memory="4MB", exchange="master"
        ),
        "online": lambda: online_join(
            read("online-left"), read("online-right"), on="key", memory="4MB", partitions=_PARTITIONS
        ),
        "xquery": lambda: plan_xquery(spark, QUERIES["7.6"], weather, partitions=2).frame(),
    }


def ask(spark: SparkSession, place: Path) -> Ran:
    """Every join twice; the answers of the second one, the better time of both, and the bytes of one."""
    found = {}
    for family, make in joins(spark, place).items():
        seconds, moved, answer = float("inf"), 0, (0, "")
        for _ in range(2):
            before, began = shuffled_bytes(spark), time.perf_counter()
            answer = _summed(make())
            seconds = min(seconds, time.perf_counter() - began)
            moved = shuffled_bytes(spark) - before
        found[family] = Asked(*answer, seconds, moved)
    return Ran(found, {name: tasks for name, tasks, _ in _executors(spark)})


def _summed(frame: DataFrame) -> tuple[int, str]:
    """Rows, and the sum of their hashes, which does not depend on their order."""
    columns = ", ".join(f"`{name}`" for name in frame.columns)
    row = frame.agg(F.expr("count(*)"), F.expr(f"sum(cast(xxhash64({columns}) as decimal(38, 0)))")).first()
    return (int(row[0]), str(row[1])) if row else (0, "")


def shuffled_bytes(spark: SparkSession) -> int:
    """Bytes written to the shuffle so far."""
    return sum(nbytes for _, _, nbytes in _executors(spark))


def _executors(spark: SparkSession) -> list[tuple[str, int, int]]:
    """The processes that run tasks: name, tasks ended, and bytes written to the shuffle, from Spark's own store."""
    context: Any = spark.sparkContext
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    some = each(scala.statusStore().executorList(False))
    return [(one.id(), int(one.completedTasks()), int(one.totalShuffleWrite())) for one in some]


def ask_in_cluster(place: str) -> dict[str, Any]:
    """In a process of its own, since one process holds one Spark: what the joins give in a cluster."""
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
        return asdict(ask(spark, Path(place)))
    finally:
        spark.stop()


def expected(place: Path) -> dict[str, int]:
    """The number of answers of each join, without Spark."""
    left, right = (pq.read_table(place / f"interval-{side}") for side in ("left", "right"))
    pairs = int(overlap_counts(left, right).sum())
    keys = [pq.read_table(place / f"online-{side}")["key"].to_numpy() for side in ("left", "right")]
    counts = [np.bincount(some, minlength=len(some)) for some in keys]
    readings = Weather(4, 2, FIRST_YEAR + 4).readings()
    year = np.asarray(readings["date"]).astype("datetime64[Y]").astype(int) + 1970
    high = (np.asarray(readings["data_type"]) == "TMAX") & (year == 2000)
    return {
        "interval, operators": pairs,
        "interval, bins": pairs,
        "semi-stream": int(np.sum(keys[0] < len(keys[0]) // 2)),
        "online": int(counts[0] @ counts[1]),
        "xquery": 3 * int(high.sum()),
    }


def compared(local: Ran, cluster: Ran, wanted: dict[str, int]) -> None:
    """DataError if a join gave other answers in the cluster, or another number than it has."""
    for family, rows in wanted.items():
        here, there = local.families[family], cluster.families[family]
        if not here.rows == there.rows == rows:
            raise DataError(f"{family}: {here.rows:,} answers here, {there.rows:,} in the cluster, {rows:,} expected.")
        if here.checksum != there.checksum:
            raise DataError(f"{family}: the cluster gave other rows than one process did.")


def figures(local: Ran, cluster: Ran, wanted: dict[str, int]) -> Figures:
    """The executors that worked, and the bytes of the shuffle, once the answers were found to be the same."""
    compared(local, cluster, wanted)
    both = [(family, here, cluster.families[family]) for family, here in local.families.items()]
    rows = [(f, a.rows, a.seconds, b.seconds, a.shuffle_bytes, b.shuffle_bytes) for f, a, b in both]
    worked = [name for name, tasks in cluster.tasks.items() if name != "driver" and tasks > 0]
    more = {"worked": worked, "tasks": cluster.tasks, "joins": list(wanted), "cluster": CLUSTER}
    found = Figures.of(rows, "join rows here there shuffled_here shuffled", **more)
    return replace(found, rows=2 * sum(wanted.values()))


def two_executors(bench: BenchContext) -> Figures:
    """All joins here and in a cluster."""
    place = bench.scratch / "cluster"
    write_data(place, ROWS[bench.scale])
    here = ask(bench.spark, place)
    there = run_child(
        ask_in_cluster, str(place), scratch=bench.scratch, env=_TESTING, patience_s=_PATIENCE_S
    ).answered()
    families = {name: Asked(**asked) for name, asked in there["families"].items()}
    return figures(here, Ran(families, there["tasks"]), expected(place))
