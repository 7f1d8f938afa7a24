"""On paper: a terabyte of input on a hundred nodes, with every assumption beside the figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.scale.growth import queried, timed
from bench.judge import Figures
from dovetail.engine.host import Schedule, run_local
from dovetail.engine.profile import Cost, Profile, load_profile
from dovetail.errors import DataError
from dovetail.joins.interval.plan.choose import MOST_RANGES, price_operators
from dovetail.joins.interval.plan.statistics import Sample, SideStatistics
from dovetail.joins.interval.request import JoinOptions
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.joins.semistream.cost.choose import choose
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.setting import EntryBytes, Setting, from_profile


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, and the input they share. Network and disk are bytes a second of one node."""

    nodes: int = 100
    cores: int = 8
    network: float = 1.25e9
    disk: float = 1.0e9
    input_bytes: float = 1e12
    row_bytes: int = 100

    @property
    def tasks(self) -> int:
        """Tasks at a time."""
        return self.nodes * self.cores

    @property
    def rows(self) -> float:
        """Rows of all input."""
        return self.input_bytes / self.row_bytes


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one join in all: seconds of processors, bytes of disks and of the network, rows that come out.

    `notes` are the assumptions and what the models chose.
    """

    family: str
    cpu_s: float
    disk_bytes: float
    shuffle_bytes: float
    answers: float
    notes: Mapping[str, str]

    def seconds(self, cluster: Cluster) -> tuple[float, float, float]:
        """Wall time of processors, of disks and of the network, each alone, with work spread evenly."""
        disks, network = cluster.nodes * cluster.disk, cluster.nodes * cluster.network
        return self.cpu_s / cluster.tasks, self.disk_bytes / disks, self.shuffle_bytes / network


PARTNERS: Final = 10
_STEP = 100.0  # instants from one start to the next, of one side


def interval_bill(cluster: Cluster, profile: Profile) -> Bill:
    """Two inputs of half a terabyte whose rows have ten partners each, by ranges of time and the operators."""
    rows, length = cluster.rows / 2, PARTNERS * _STEP / 2
    span = rows * _STEP
    sample = Sample(np.empty(0), np.empty(0), np.empty(0, np.int64), int(rows))
    counts = int(rows), int(rows), 0
    side = SideStatistics(*counts, 0.0, span, span + length, length, 8 * length, cluster.row_bytes, sample)
    request = JoinOptions(memory="64MB", route="streaming").request()
    moved = 2 * rows * (cluster.row_bytes + 24)
    ranges = min(MOST_RANGES, max(cluster.tasks, math.ceil(moved / 2**28)))
    choice = price_operators(request, (side, side), ranges)
    if choice is None or choice.best.seconds is None:
        raise DataError("the planner has no price for a terabyte of intervals.")
    best, pairs = choice.best, choice.best.rows * ranges
    each = profile.shuffle_row.seconds + profile.python_to_jvm_row.seconds
    each += profile.sort.seconds * math.log2(2 * rows / ranges)
    cpu = 2 * rows * each + (best.cpu_seconds or 0.0) * ranges + pairs * profile.python_to_jvm_row.seconds
    spilled = best.frames * ranges * request.memory / 256
    notes = {
        "inputs": f"two of {rows:.3g} rows, {PARTNERS} partners a row, the longest interval 8 times the mean",
        "plan": f"{ranges:,} ranges of time, {best.label} with 64 MB a task; {'spills' if best.spills else 'no spill'}",
        "result": f"{pairs:.3g} pairs handed to Spark, not written",
    }
    return Bill("interval", cpu, cluster.input_bytes + 2 * moved + spilled, moved, pairs, notes)


def semistream_bill(cluster: Cluster, profile: Profile) -> Bill:
    """A stream of nine tenths of a terabyte over a tenth of master data, each task with its own part of both."""
    rows, master = 0.9 * cluster.rows, 0.1 * cluster.rows
    memory, here = 50 << 20, round(master / cluster.tasks)
    setting = Setting(
        memory=memory,
        distribution=Zipf(here, 1.0),
        row_bytes=float(cluster.row_bytes),
        stream_bytes=float(cluster.row_bytes),
        costs=from_profile(profile),
        entries=EntryBytes(
            waiting=36 + cluster.row_bytes, chunked=28 + cluster.row_bytes, cached_extra=32, per_segment=16
        ),
    )
    best = choose(setting).best
    if best.prediction is None:
        raise DataError("the planner has no price for a terabyte of stream rows.")
    found, loads = best.prediction, best.prediction.loads_per_tuple
    each = 1 / best.rate + profile.shuffle_row.seconds + profile.python_to_jvm_row.seconds
    moved = rows * cluster.row_bytes
    read = rows * loads * setting.read_bytes(found.segment_rows)
    notes = {
        "inputs": f"{rows:.3g} stream rows by Zipf's law, {master:.3g} master rows in page files on each task's node",
        "plan": f"rows go to the task that has their master rows ({here:,} each); {best.algorithm} with 50 MB a task, "
        f"segments of {found.segment_rows:,} rows, {found.kept_rows:,} cached, {1 / loads:,.0f} rows a load",
        "result": "one row each, handed to Spark, not written",
    }
    return Bill("semi-stream", rows * each, moved + 2 * moved + read, moved, rows, notes)


_COUNTED: Final = (1.5, 3.0)
_COUNTED_BYTES = 512 << 10


def rereads(ratio: float, counted_at: tuple[float, float] = _COUNTED) -> float:
    """How often DINER reads what it wrote, of inputs `ratio` times as large as its memory.

    Blocks meet in a nested loop, so that it is a line in the ratio: drawn through what two small runs count.
    """
    few, more = (_counted_rereads(times) for times in counted_at)
    return max(0.0, few + (more - few) * (ratio - counted_at[0]) / (counted_at[1] - counted_at[0]))


@lru_cache
def _counted_rereads(ratio: float) -> float:
    rng, rows = np.random.default_rng(1), int(ratio * _COUNTED_BYTES / 16 / 2)
    inputs = {
        side: [
            pa.record_batch({"key": keys, f"{side}_id": np.arange(len(keys))})
            for keys in np.array_split(rng.integers(0, rows, rows), 40)
        ]
        for side in ("left", "right")
    }
    run = run_local(ALGORITHMS["diner"](on=("key",)), inputs, _COUNTED_BYTES, Schedule("round_robin"))
    for _ in run:
        pass
    written, read, size, runs = (
        sum(run.metrics.value(name, side) for side in ("left", "right"))
        for name in ("blocks_flushed", "blocks_read", "bytes_flushed", "run_bytes_read")
    )
    if not written:
        raise DataError(f"an input {ratio:g} times as large as memory was not written to disk.")
    return read / written + runs / size


def online_bill(cluster: Cluster, profile: Profile) -> Bill:
    """Two streams of half a terabyte whose rows have one partner each, to the end of both, in buckets by key."""
    memory = 32 << 20
    share = cluster.input_bytes / cluster.tasks
    beyond = max(0.0, 1 - memory / share)
    times = rereads(share / memory) if beyond else 0.0
    tuples = profile.insert.seconds + profile.probe.seconds + profile.evict.seconds
    back = profile.emit.seconds + profile.python_to_jvm_row.seconds
    each = profile.shuffle_row.seconds + profile.python_to_jvm_row.seconds + tuples
    pairs = cluster.rows / 2
    spilled = cluster.input_bytes * beyond * (1 + times)
    notes = {
        "inputs": f"two of {cluster.rows / 2:.3g} rows, one partner a row, arriving as fast as they are taken",
        "plan": f"DINER in {cluster.tasks} buckets with 32 MB each; {beyond:.0%} of the rows are written once and read "
        f"{times:.1f} times, on the line through counts at {_COUNTED[0]:g} and {_COUNTED[1]:g} times the memory",
        "result": f"{pairs:.3g} pairs, handed to Spark, not written",
    }
    moved = cluster.input_bytes
    cpu = cluster.rows * (each + beyond * times * profile.probe.seconds) + pairs * back
    return Bill("online", cpu, 3 * moved + spilled, moved, pairs, notes)


def xquery_bill(cluster: Cluster, core_bytes_per_s: float) -> Bill:
    """A terabyte of XML in many files, one aggregate over it: parsed where it is read, one figure from each task."""
    cpu = cluster.input_bytes / core_bytes_per_s
    notes = {
        "inputs": "XML in files of some megabytes, on the nodes' own disks",
        "plan": f"an aggregate in {cluster.tasks} tasks at {core_bytes_per_s / 1e6:.1f} MB a second and core, as timed "
        "here between two sizes: the family has no model of its own",
        "result": "one figure from each task",
    }
    return Bill("xquery", cpu, cluster.input_bytes, 100.0 * cluster.tasks, 1.0, notes)


_STATIONS = {"small": (4, 16), "full": (16, 64)}


def core_bytes_per_s(bench: BenchContext) -> float:
    """XML bytes that one core reads a second, from the times of two sizes, so that the cost of a query drops out."""
    few, more = (timed(queried("7.4", bench, stations), "query 7.4", 3) for stations in _STATIONS[bench.scale])
    cores = bench.spark.sparkContext.defaultParallelism
    return 1e6 * (more.size - few.size) / max(1e-3, more.seconds - few.seconds) / cores


def figures(bills: list[Bill], cluster: Cluster, profile: Profile) -> Figures:
    """The bills with all that they rest on."""
    rows, times = list[list[Cell]](), [bill.seconds(cluster) for bill in bills]
    for bill, each in zip(bills, times, strict=True):
        minutes = [round(seconds / 60, 2) for seconds in (*each, max(each), sum(each))]
        rows.append([bill.family, *minutes, _tb(bill.disk_bytes), _tb(bill.shuffle_bytes), bill.answers])
    heads = ("family", "processors, min", "disks, min", "network, min", "all at once, min", "one after another, min")
    table = Grid("1 TB on 100 nodes", (*heads, "bytes of disks, TB", "bytes of the shuffle, TB", "answers"), rows)
    lines = {
        name: [(bill.family, round(each[at] / 60, 3)) for bill, each in zip(bills, times, strict=True)]
        for at, name in enumerate(("processors", "disks", "network"))
    }
    chart = Chart("Minutes of 100 nodes for 1 TB", "family", "minutes", lines, kind="bar")
    return Figures(
        {"bills": rows, "profile": profile.explain()}, [chart, table, _assumed(bills, cluster), _unit_costs(profile)]
    )


def _tb(nbytes: float) -> float:
    return float(f"{nbytes / 1e12:.3g}")


def _assumed(bills: list[Bill], cluster: Cluster) -> Grid:
    rows: list[list[Cell]] = [
        ["all", "cluster", f"{cluster.nodes} nodes of {cluster.cores} cores; every core takes one task at a time"],
        ["all", "network", f"{cluster.network / 1e9:g} GB/s a node, all nodes at once"],
        ["all", "disks", f"{cluster.disk / 1e9:g} GB/s a node in turn, read or written"],
        ["all", "input", f"{cluster.input_bytes / 1e12:g} TB, in rows of {cluster.row_bytes} bytes, but for XML"],
        ["all", "shuffle", "every byte is written once, sent once and read once; a row costs what the profile says"],
    ]
    rows += [[bill.family, what, text] for bill in bills for what, text in bill.notes.items()]
    return Grid("Assumptions", ("family", "what", "assumed or chosen"), rows)


def _unit_costs(profile: Profile) -> Grid:
    costs = [(f.name, getattr(profile, f.name)) for f in fields(profile)]
    rows: list[list[Cell]] = [[name, 1e9 * cost.seconds] for name, cost in costs if isinstance(cost, Cost)]
    pages = (("page read anywhere", profile.page_read_s(65_536)), ("page written", profile.page_write_s(65_536)))
    rows += [[f"{name}, 64 KiB", 1e9 * seconds] for name, seconds in pages]
    return Grid(f"Unit costs ({profile.explain()})", ("unit", "ns"), rows)


def bills(bench: BenchContext) -> Figures:
    """The cost of every family."""
    cluster, profile = Cluster(), load_profile()
    each = [bill(cluster, profile) for bill in (interval_bill, semistream_bill, online_bill)]
    return figures([*each, xquery_bill(cluster, core_bytes_per_s(bench))], cluster, profile)
