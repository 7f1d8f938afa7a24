"""Scale-out: costs of each family measured on one core and two, and a simulation of what up to 100 executors would do.

Measured: a join over two sizes on one core gives its cost a row, what a query costs anyway, and bytes of the shuffle a
row; a job of many empty tasks gives what the driver spends on a task. The simulation schedules tasks in waves: the
driver launches them one after the other, partitions have unequal sizes, some tasks run on slow hosts, a reduce stage
begins with what the network moves, and an object store answers a limited number of requests a second. It is compared
with the same joins on two cores.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.child import run_child
from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.scale.cluster import shuffled_bytes
from bench.judge import Figures
from bench.rivals.intervals import to_sink, write_files
from bench.rivals.object_store import ObjectStore
from bench.rivals.weather import FIRST_YEAR, QUERIES
from dovetail.engine.kernels.arrays import F64
from dovetail.joins.interval.api import interval_count, interval_join
from dovetail.joins.online.api import online_join
from dovetail.joins.semistream.api import enrich
from dovetail.joins.semistream.master.page_file.writer import REMOTE_PAGE, write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.session import session
from dovetail.workloads import Exponential, RandomIntervals, Weather
from dovetail.xml.api import plan_xquery

_MEASURED_S, _PATIENCE_S = 200.0, 290.0  # of a process; there are two
_FILES: Final = 8
_EMPTY_TASKS: Final = (40, 400)
_LATENCY_S: Final = 0.02
Join = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measured:
    """One join over one input: its rows (bytes of XML), best seconds, bytes of the shuffle, requests to a store."""

    rows: float
    seconds: float
    shuffle_bytes: float
    requests: float


# ---------------------------------------------------------------------- measured, in a process of its own


def write_data(place: Path, rows: int) -> None:
    """The inputs of all joins at one size."""
    for side, seed in (("left", 1), ("right", 2)):
        table = RandomIntervals(rows, 100 * rows, Exponential(1_000), seed=seed).table()
        write_files(table.select(["id", "start", "end"]), place / f"interval-{side}", _FILES)
        keys = np.random.default_rng(seed).integers(0, rows, rows)
        write_files(pa.table({"key": keys, f"{side}_id": np.arange(rows)}), place / f"online-{side}", _FILES)
    master = np.arange(rows)
    table = pa.table({"key": master, "word": pa.array([f"word {n} of the master data" for n in master])})
    write_pages(place / "master", table, "key", unique=True)
    write_pages(place / "remote", table, "key", unique=True, page=REMOTE_PAGE)
    Weather(max(2, rows // 1_000), 2, FIRST_YEAR + 4).write(place / "weather")


def joins(spark: SparkSession, place: Path, server: ObjectStore) -> dict[str, tuple[float, Join]]:
    """The joins over the files of a directory by name, with the size of their input."""

    def read(name: str) -> DataFrame:
        return spark.read.parquet(str(place / name))

    left, right = read("interval-left"), read("interval-right")
    one, other = read("online-left"), read("online-right")
    rows = 2.0 * one.count()
    remote = MasterStore.open(f"s3a://{server.bucket}/{place.name}")
    weather = {f"/{name}": place / "weather" / name for name in ("sensors", "stations")}
    nbytes = sum(file.stat().st_size for file in (place / "weather").rglob("*.xml"))

    def drained(make: Callable[[], DataFrame]) -> Join:
        return lambda: to_sink(make)

    return {
        "interval, native": (rows, drained(partial(interval_join, left, right, route="native"))),
        "interval, ranges": (rows, drained(partial(interval_join, left, right, route="in_memory"))),
        "interval, index (counts)": (rows, partial(interval_count, left, right)),
        "enrich, local pages": (rows / 2, drained(partial(enrich, one, MasterStore.open(place / "master"), on="key"))),
        "enrich, object store": (rows / 2, drained(partial(enrich, one, remote, on="key"))),
        "online": (rows, drained(partial(online_join, one, other, on="key"))),
        "xquery": (float(nbytes), lambda: plan_xquery(spark, QUERIES["7.4"], weather).frame().collect()),
    }


def measured(place: str, sizes: Sequence[int], cores: int) -> dict[str, Any]:
    """Every join at these sizes on `cores` cores, and the seconds that the driver spends on a task.

    All of them run again and again for some minutes, and the best time of each counts: other work on the machine, and
    what a first run loads and compiles, does not.
    """
    settings: dict[str, str | int | bool] = {
        "spark.master": f"local[{cores}]",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": _FILES,
    }
    ends = time.perf_counter() + _MEASURED_S
    spark = session("dovetail bench scale-out", conf=settings)
    try:
        with ObjectStore(latency_s=_LATENCY_S) as server:
            for name, value in server.settings.items():
                spark.conf.set(name.removeprefix("spark.hadoop."), value)
            turns = [_turn(spark, Path(place) / str(size), server) for size in sizes]
            best: list[dict[str, Measured]] = [{} for _ in sizes]
            took = 0.0
            while not best[0] or time.perf_counter() + took < ends:
                began = time.perf_counter()
                for turn, known in zip(turns, best, strict=True):
                    turn(known)
                took = time.perf_counter() - began
        return {"joins": [{n: asdict(one) for n, one in known.items()} for known in best], "task_s": _task_s(spark)}
    finally:
        spark.stop()


def _turn(spark: SparkSession, place: Path, server: ObjectStore) -> Callable[[dict[str, Measured]], None]:
    """Runs every join over the files of a directory once, and keeps the best time of each."""
    for file in (found for found in (place / "remote").rglob("*") if found.is_file()):
        server.put(f"{place.name}/{file.relative_to(place / 'remote')}", file.read_bytes())
    runs = joins(spark, place, server)

    def turn(known: dict[str, Measured]) -> None:
        for name, (rows, run) in runs.items():
            before, asked = shuffled_bytes(spark), server.requests.total()
            began = time.perf_counter()
            run()
            seconds = time.perf_counter() - began
            moved, requests = float(shuffled_bytes(spark) - before), float(server.requests.total() - asked)
            best = min(seconds, known[name].seconds) if name in known else seconds
            known[name] = Measured(rows, best, moved, requests)

    return turn


def _task_s(spark: SparkSession) -> float:
    """Seconds that one more empty task costs."""
    times = []
    for n in (_EMPTY_TASKS[0], *_EMPTY_TASKS):
        began = time.perf_counter()
        spark.range(0, n, 1, n).write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter() - began)
    return max(1e-4, (times[2] - times[1]) / (_EMPTY_TASKS[1] - _EMPTY_TASKS[0]))


# ---------------------------------------------------------------------- simulated


@dataclass(frozen=True, slots=True)
class Work:
    """A join to be scheduled: `row_s` of a core for a row (a byte of XML), `fixed_s` of the driver for a query."""

    rows: float
    row_s: float
    fixed_s: float
    shuffle_row_bytes: float = 0.0
    row_requests: float = 0.0
    row_bytes: float = 100.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Executors, and what is assumed of them.

    `network` is bytes a second of an executor. `spread` is the standard deviation of the logarithm of partition sizes,
    `hot` the share of all rows that the largest partition has beside its own. Of all tasks `slow` take `slower` times
    as long. `launch_s` is the driver's time for a task, `store` the requests a second that an object store answers.
    """

    executors: int = 1
    cores: int = 4
    network: float = 1.25e9
    split_bytes: float = 128e6
    waves: int = 3
    spread: float = 0.25
    hot: float = 0.001
    slow: float = 0.02
    slower: float = 2.0
    launch_s: float = 0.003
    store: float = 5_500.0

    @property
    def slots(self) -> int:
        """Tasks at a time."""
        return self.executors * self.cores


IDEAL: Final[Mapping[str, Callable[[Fleet], Fleet]]] = {
    "the driver's launches": partial(replace, launch_s=0.0),
    "the network": partial(replace, network=float("inf")),
    "requests to the store": partial(replace, store=float("inf")),
    "skew and slow hosts": partial(replace, spread=0.0, hot=0.0, slow=0.0),
}
"""Limits by name, and a fleet without each."""


def simulated(work: Work, fleet: Fleet, seed: int = 0) -> float:
    """Seconds of a query: planning, a stage of map tasks, and if rows are exchanged a stage of reduce tasks."""
    rng = np.random.default_rng(seed)
    splits = max(fleet.slots, round(work.rows * work.row_bytes / fleet.split_bytes))
    has_shuffle = work.shuffle_row_bytes > 0
    half = replace(work, row_s=work.row_s / 2) if has_shuffle else work
    even = replace(fleet, spread=0.0, hot=0.0)  # files are split evenly
    done = _stage(half, even, splits, 0.0, rng)
    if has_shuffle:
        done = _stage(half, fleet, fleet.slots * fleet.waves, work.shuffle_row_bytes, rng, done)
    return work.fixed_s + done


def _stage(work: Work, fleet: Fleet, tasks: int, moved: float, rng: np.random.Generator, start: float = 0.0) -> float:
    """When the last task of a stage ends: a free core takes the next task that the driver has launched."""
    rows, slowness = _partitions(work.rows, tasks, fleet, rng), np.ones(tasks)
    slowness[rng.random(tasks) < fleet.slow] = fleet.slower
    away = 1 - 1 / fleet.executors  # of the bytes that a task fetches
    fetch_s = rows * moved * away / (fleet.network / fleet.cores)
    run_s = rows * work.row_s * slowness + fetch_s
    free = [start] * min(fleet.slots, tasks)
    launched = answered = start
    for at, seconds in enumerate(run_s.tolist()):
        launched += fleet.launch_s
        began = max(heapq.heappop(free), launched)
        if work.row_requests:  # requests of all tasks are answered in turn
            answered = max(answered, began) + rows[at] * work.row_requests / fleet.store
        heapq.heappush(free, max(began + seconds, answered if work.row_requests else 0.0))
    return max(free)


def _partitions(rows: float, tasks: int, fleet: Fleet, rng: np.random.Generator) -> F64:
    sizes = np.exp(rng.normal(0.0, fleet.spread, tasks)) if fleet.spread else np.ones(tasks)
    sizes *= rows * (1 - fleet.hot) / sizes.sum()
    sizes[int(rng.integers(tasks))] += rows * fleet.hot
    return np.asarray(sizes, np.float64)


def limit(work: Work, fleet: Fleet, least: float = 0.1) -> str:
    """The resource without which a query would gain most; "processors" if that is less than a tenth."""
    now = simulated(work, fleet)
    gains = {name: 1 - simulated(work, without(fleet)) / now for name, without in IDEAL.items()}
    gains["planning and collecting in the driver"] = work.fixed_s / now
    name = max(gains, key=lambda each: gains[each])
    return name if gains[name] >= least else "processors"


# ---------------------------------------------------------------------- both together


def work_of(few: Measured, more: Measured, row_bytes: float) -> Work:
    """The cost a row and of a query, from two sizes on one core."""
    row_s = max(1e-12, (more.seconds - few.seconds) / (more.rows - few.rows))
    fixed = max(0.0, few.seconds - few.rows * row_s)
    return Work(more.rows, row_s, fixed, more.shuffle_bytes / more.rows, more.requests / more.rows, row_bytes)


def _found(answer: Mapping[str, Any]) -> list[dict[str, Measured]]:
    return [{name: Measured(**one) for name, one in size.items()} for size in answer["joins"]]


def scale_out(bench: BenchContext, sizes: Mapping[str, Sequence[int]], rows: float, xml_bytes: float) -> Figures:
    """Every family on 1 to 100 executors, from costs that are measured first."""
    at, place = list(sizes[bench.scale]), bench.scratch / "scale-out"
    for size in at:
        write_data(place / str(size), size)
    one, two = (
        run_child(measured, str(place), at, cores, scratch=bench.scratch, patience_s=_PATIENCE_S).answered()
        for cores in (1, 2)
    )
    few, more = _found(one)
    works = {name: work_of(few[name], more[name], 1.0 if name == "xquery" else 100.0) for name in more}
    here = Fleet(1, 2, float("inf"), spread=0.0, hot=0.0, slow=0.0, launch_s=one["task_s"], store=2 * 64 / _LATENCY_S)
    checked = {name: (simulated(work, here), _found(two)[1][name].seconds) for name, work in works.items()}
    large = {name: replace(work, rows=xml_bytes if name == "xquery" else rows) for name, work in works.items()}
    return figures(works, checked, large, Fleet(launch_s=one["task_s"]))


EXECUTORS: Final = (1, 2, 5, 10, 20, 50, 100)


def figures(
    works: Mapping[str, Work], checked: Mapping[str, tuple[float, float]], large: Mapping[str, Work], fleet: Fleet
) -> Figures:
    """Costs, the comparison with two cores, seconds and speed-up by executors, and the limit at 1, 10 and 100."""
    seconds = {name: [simulated(work, replace(fleet, executors=n)) for n in EXECUTORS] for name, work in large.items()}
    speed = {name: [(n, took[0] / took[at]) for at, n in enumerate(EXECUTORS)] for name, took in seconds.items()}
    costs: list[list[Cell]] = [
        [name, 1e6 * w.row_s, w.fixed_s, w.shuffle_row_bytes, w.row_requests] for name, w in works.items()
    ]
    checks: list[list[Cell]] = [[name, a, b, a / b] for name, (a, b) in checked.items()]
    limits: list[list[Cell]] = [
        [name, *(limit(work, replace(fleet, executors=n)) for n in (1, 10, 100))] for name, work in large.items()
    ]
    times: list[list[Cell]] = [[name, *took, took[0] / took[-1]] for name, took in seconds.items()]
    heads = ("join", "us a row (a byte of XML)", "s a query", "shuffle bytes a row", "requests a row")
    shown: list[Chart | Grid] = [
        Chart("Speed-up by executors of four cores", "executors", "speed-up", speed, log_x=True, log_y=True),
        Grid("Measured on one core", heads, costs),
        Grid("Two cores", ("join", "simulated, s", "measured, s", "ratio"), checks),
        Grid("Seconds", ("join", *(f"{n} executors" for n in EXECUTORS), "speed-up"), times),
        Grid("What limits", ("join", "1 executor", "10 executors", "100 executors"), limits),
        Grid("Assumed", ("what", "value"), [[name, value] for name, value in asdict(fleet).items()]),
    ]
    ratios = {name: a / b for name, (a, b) in checked.items()}
    return Figures({"ratios": ratios, "gain": {n: t[0] / t[-1] for n, t in seconds.items()}}, shown)
