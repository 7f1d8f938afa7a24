"""Chapters 3 and 4: MESHJOIN and R-MESHJOIN, their disk buffers and what an iteration costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from bench.experiment import Chart
from bench.experiments.semistream.media import Runner
from bench.experiments.semistream.points import MB, MILLION, divisor
from bench.experiments.semistream.printed import UNITS, alpha_4, eq_3_2, eq_3_3, eq_4_1, eq_4_2, eq_4_3
from bench.judge import Figures
from bench.simulation import Rate, SimulatedPages, service_rate
from dovetail.engine.clock import VirtualClock
from dovetail.engine.storage.device import Device, DeviceModel
from dovetail.joins.semistream.cost.scans import best_buffer_bytes
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS
from dovetail.joins.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.joins.semistream.sizes import Sizes

V_R, V_S, V_P = 120, 20, 8192

SECONDS_PER_BYTE = 99e-9

CHAPTER_3, CHAPTER_4 = 0.0477, 0.00195
"""Megabytes that take as long as a request, by the first printed optimum of each chapter."""

_FEWEST_ROWS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """MESHJOIN, or R-MESHJOIN if there are parts, at the source's scale; sizes in megabytes are of 2^20 bytes."""

    memory_mb: float
    buffer_mb: float
    rows: int = 3_500_000
    fudge: float = 4.8
    equal_mb: float = CHAPTER_3
    parts: int = 0

    @property
    def request_s(self) -> float:
        """Seconds of a request."""
        return self.equal_mb * MB * (SECONDS_PER_BYTE + SOURCE_COSTS.probe / V_R)

    @property
    def n_p(self) -> float:
        """Partitions of the master data."""
        return self.rows * V_R / (self.buffer_mb * MB)

    @property
    def w(self) -> float:
        """Stream rows of an iteration: (3.3), or (4.2) with what the disk buffer leaves."""
        if self.parts:
            room = (self.memory_mb - self.buffer_mb) * MB / (self.fudge * V_S + 4)
            return eq_4_2(h_s=room, n_p=self.n_p, parts=self.parts)
        pages = {"b": self.buffer_mb * MB / V_P, "n_r": self.rows * V_R / V_P}
        return eq_3_3(memory=self.memory_mb * MB, v_p=V_P, v_s=V_S, f=self.fudge, **pages)

    @property
    def loop_s(self) -> float:
        """Seconds of an iteration by (3.2) or (4.3); output is paid for each result."""
        reading = self.request_s + self.buffer_mb * MB * SECONDS_PER_BYTE
        rows = self.buffer_mb * MB / V_R
        if self.parts:
            units, sizes = UNITS | {"c_o": 0.0}, {"b": rows, "v_p": 1.0, "v_r": 1.0, "parts": float(self.parts)}
            return eq_4_3(c_io=reading, w=self.w, **sizes, **units) + self.w * SOURCE_COSTS.emit
        return eq_3_2(c_io=reading, w=self.w, b=rows, v_p=1, v_r=1, sigma=self.w / rows, **UNITS)

    @property
    def rate(self) -> float:
        """Service rate by the equations."""
        return self.w / self.loop_s


def fair(of: Mesh, divide: int) -> int:
    """The largest divisor of sizes with which an iteration still has rows enough."""
    return max(1, min(divide, int(of.w / _FEWEST_ROWS)))


@lru_cache(maxsize=1024)
def count_mesh(of: Mesh, divide: int) -> Rate:
    """Counts of the running join over a uniform stream, in half a round after the first.

    Sizes are divided by less where w would be so small that whole rows distort it.
    """
    divide = fair(of, divide)
    rows, buffer = of.rows // divide, int(of.buffer_mb * MB / V_R / divide)
    page = max(1, buffer // max(1, of.parts))
    disk = DeviceModel("the source's file", request_s=of.request_s / divide, bytes_per_s=1 / SECONDS_PER_BYTE)
    pages = SimulatedPages(rows, page, V_R, device=Device(disk, VirtualClock()))
    chunks = -(-(len(pages.starts) - 1) // max(1, of.parts)) * max(1, of.parts)
    sizes = Sizes(waiting=max(1, round(of.w / divide)) * chunks, per_segment=max(1, of.parts), parts=of.parts or None)
    kind = RMeshJoin if of.parts else MeshJoin
    rng = np.random.default_rng(5)
    join = kind(pages=pages, on=("key",), how="left_semi", sizes=sizes)
    return service_rate(join, lambda n: rng.integers(0, rows, n), sizes.waiting or 1, (sizes.waiting or 2) // 2)


def best_buffer(of: Mesh, rate: Callable[[Mesh], float] = lambda mesh: mesh.rate) -> float:
    """The buffer in megabytes with the highest rate: by golden section on its logarithm."""
    low, high = math.log(0.01), math.log(of.memory_mb / 2)
    golden = (math.sqrt(5) - 1) / 2

    def at(x: float) -> float:
        return rate(replace(of, buffer_mb=math.exp(x)))

    while high - low > 1e-6:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (left, high) if at(left) < at(right) else (low, right)
    return math.exp((low + high) / 2)


def tuned(of: Mesh) -> Mesh:
    """The same join with its best buffer."""
    return replace(of, buffer_mb=best_buffer(of))


_MEMORY = (20, 40, 80, 160, 320)
_BUFFERS = (0.05, 0.1, 0.25, 0.5, 0.93, 1.9, 4.0, 8.0)


def split(runner: Runner, printed: Sequence[Sequence[int]]) -> Figures:
    """Table 3.2: what (3.3) leaves to the hash table, by pages in the buffer."""
    rows = []
    for pages, table, chunks in printed:
        w = int(eq_3_3(memory=20 * MB, b=pages, v_p=V_P, v_s=20, n_r=51_200))
        rows.append((pages, chunks, w, w * chunks, table, float(w * chunks / table - 1)))
    return Figures.of(rows, "pages chunks w rows printed off")


def knee(runner: Runner) -> Figures:
    """Figure 3.3: rates over the disk buffer."""
    some = [Mesh(memory_mb=80, buffer_mb=b) for b in _BUFFERS]
    rows = [(of.buffer_mb, count_mesh(of, runner.divide).per_second, of.rate) for of in some]
    return Figures.of(rows, "buffer rates by_model", note=_NOTE)


def best_buffers(runner: Runner, printed: Mapping[str, float]) -> Figures:
    """Figure 3.4: the best buffer by memory, and the counted rates beside it."""
    rows, best_by_memory = list[tuple[Any, ...]](), list[tuple[float, float]]()
    for memory in _MEMORY:
        best = best_buffer(Mesh(memory_mb=memory, buffer_mb=1))
        some = [Mesh(memory_mb=memory, buffer_mb=best * part) for part in (0.25, 1, 4)]
        rates = [count_mesh(of, runner.divide).per_second for of in some]
        rows.append((memory, best, printed.get(str(memory)), *rates))
        best_by_memory.append((float(memory), best))
    lines = {"equation 3.5": best_by_memory, "printed": [(float(memory), best) for memory, best in printed.items()]}
    chart = Chart("Best buffer", "memory, MB", "disk buffer, MB", lines)
    return replace(Figures.of(rows, "memory best printed quarter at four", note=_NOTE), shown=[chart])


def default(runner: Runner, printed: Mapping[str, float]) -> Figures:
    """Figures 3.5 and 3.7: what the default buffer loses, in percent: counted, by (3.5), and by reads alone."""
    divide, rows = divisor(runner.bench, 2), []
    for memory in _MEMORY:
        default = Mesh(memory_mb=memory, buffer_mb=0.93)
        best = tuned(default)
        counted = [count_mesh(of, divide).per_second for of in (default, best)]
        loss, bare = 100 * (1 - default.rate / best.rate), 100 * loss_of(0.93, memory, CHAPTER_3)
        rows.append((memory, *counted, 100 * (1 - counted[0] / counted[1]), loss, bare, printed.get(str(memory))))
    return Figures.of(rows, "memory default best counted loss bare printed", note=_NOTE)


def io(runner: Runner) -> Figures:
    """Figure 3.6: milliseconds of a page read in larger and larger buffers."""
    request_s = Mesh(memory_mb=80, buffer_mb=1).request_s
    costs = [1e3 * (request_s + buffer * MB * SECONDS_PER_BYTE) / (buffer * MB / V_P) for buffer in _BUFFERS]
    return Figures({"buffer": _BUFFERS, "costs": costs})


def loop_cost(runner: Runner) -> Figures:
    """Figure 3.8: seconds of an iteration, calculated and counted."""
    rows = []
    for memory in _MEMORY:
        of = tuned(Mesh(memory_mb=memory, buffer_mb=1))
        found = count_mesh(of, runner.divide)
        rows.append((memory, of.loop_s, fair(of, runner.divide) * found.rows_per_load / found.per_second))
    return Figures.of(rows, "memory calculated counted", note=_NOTE)


def _r_mesh(memory: float, rows: float = 2, parts: int = 0, buffer: float = 0.43) -> Mesh:
    n = int(rows * MILLION)
    return Mesh(memory_mb=memory, buffer_mb=buffer, rows=n, fudge=8, equal_mb=CHAPTER_4, parts=parts)


def r_tables(runner: Runner, memory: Sequence[Sequence[float]], steps: Sequence[Sequence[int]]) -> Figures:
    """Tables 4.2 and 4.3: how they add up."""
    shares, costs = [], []
    for room, buffer, table, queue, stream, total in memory:
        _, by_table, by_queue = eq_4_1(memory=room, b=buffer, v_p=1, alpha=alpha_4(v_s=20))
        shares.append((int(room), buffer, by_table, table, by_queue, queue, buffer + table + queue + stream, total))
    for w, *each, total_ns in steps:
        costs.append((w, sum(each), total_ns, w / (sum(each) / 1e9), each[0] / total_ns))
    names = "memory buffer table table_printed queue queue_printed sum printed"
    return Figures.of(shares, names, **Figures.of(costs, "w ns ns_printed rate reading").named)


def master_size(runner: Runner, printed: Sequence[Sequence[float]]) -> Figures:
    """Table 4.4 and figures 4.2 and 4.9: best buffers by master rows."""
    rows = []
    for millions, n_p, parts in printed:
        mesh, mine = best_buffer(_r_mesh(100, millions)), best_buffer(_r_mesh(100, millions, int(parts)))
        calculated = _r_mesh(100, millions, int(parts), 0.427)
        counted = count_mesh(calculated, runner.divide).per_second
        rows.append((millions, mesh, mine, int(n_p * parts), calculated.w, counted, calculated.rate))
    return Figures.of(rows, "millions moves stays chunks w counted calculated", note=_R_NOTE)


def parts(runner: Runner) -> Figures:
    """Figures 4.5 to 4.7: hash table and buffer, each alone and together."""

    def run(of: Mesh) -> float:
        return count_mesh(of, runner.divide).per_second

    room = 97.0  # megabytes that 100 leave to table and queue
    sizes, free, fixed = (12, 24, 48, 97), (0.02, 0.1, 1, 2), (0.03, 0.1, 0.3, 1, 4, 16)
    named = {
        "by_table": [run(_r_mesh(share + 0.43, parts=2)) for share in sizes],
        "by_buffer": [run(_r_mesh(room + b, parts=2, buffer=b)) for b in free],
        "inside": [run(_r_mesh(100, parts=2, buffer=b)) for b in fixed],
    }
    return Figures({**named, "sizes": sizes, "free": free, "fixed": fixed, "note": _R_NOTE})


def against(runner: Runner, memory: Sequence[int], rows: Sequence[Sequence[float]]) -> Figures:
    """Figure 4.8: both joins with their best buffers."""
    divide, by_memory, by_rows = divisor(runner.bench, 2), [], []
    for room in memory:
        mesh, mine = tuned(_r_mesh(room)), tuned(_r_mesh(room, parts=4))
        found = count_mesh(mine, divide).per_second
        by_memory.append((room, mesh.buffer_mb, mine.buffer_mb, mesh.rate, mine.rate, found, found / mine.rate - 1))
    for millions, parts in rows:
        mesh, mine = tuned(_r_mesh(100, millions)), tuned(_r_mesh(100, millions, int(parts)))
        by_rows.append((millions, mesh.rate, mine.rate, 100 * (mine.rate / mesh.rate - 1)))
    sizes = Figures.of(by_rows, "millions mesh_rows mine_rows gain_rows").named
    return Figures.of(by_memory, "memory buffer r_buffer mesh mine counted off", **sizes, note=_R_NOTE)


_NOTE = (
    "Counted by the running join on a disk with 6 ms a request and 0.099 us a byte; the price of a request is ours, "
    f"fitted to the first printed optimum ({CHAPTER_3} MB take as long)."
)
_R_NOTE = (
    "Counted on a disk with 0.25 ms a request, which the printed optimum of 0.31 MB at 50 MB implies, and 0.099 us a "
    "byte; fudge factor 8, 2 million rows unless said."
)


def loss_of(buffer: float, memory: float, a: float) -> float:
    """The share of the best rate that another buffer loses."""

    def rate(b: float) -> float:
        return b * (memory - b) / (a + b)

    return 1 - rate(buffer) / rate(best_buffer_bytes(memory, a))
