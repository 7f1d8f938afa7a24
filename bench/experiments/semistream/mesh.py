"""Chapters 3 and 4: MESHJOIN and R-MESHJOIN, their disk buffers and what an iteration costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bench.experiment import Chart, Findings, Grid, by_column, close, judged, wave
from bench.experiments.semistream.media import Runner
from bench.experiments.semistream.points import MB, MILLION, divisor
from bench.experiments.semistream.printed import UNITS, alpha_4, eq_3_2, eq_3_3, eq_4_1, eq_4_2, eq_4_3
from bench.simulation import Rate, SimulatedPages, service_rate
from dovetail.engine.clock import VirtualClock
from dovetail.engine.device import Device, DeviceModel
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
    """What sizes can be divided by at most, so that an iteration has rows enough."""
    return max(1, min(divide, int(of.w / _FEWEST_ROWS)))


@lru_cache(maxsize=1024)
def count_mesh(of: Mesh, divide: int) -> Rate:
    """What the running join does with a uniform stream, counted over half a round after the first.

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


_TABLE_3_2 = ((50, 205_000, 1024), (100, 201_609, 512), (200, 193_024, 256), (400, 176_384, 128))

_MEMORY = (20, 40, 80, 160, 320)

_PRINTED_BEST = {20: 0.93, 40: 1.35, 80: 1.91, 160: 2.63}

_PRINTED_LOSS = {40: 0.4, 80: 1.17, 160: 1.78}

_BUFFERS = (0.05, 0.1, 0.25, 0.5, 0.93, 1.9, 4.0, 8.0)

_NOTE = (
    "Counted by the running join on a disk with 6 ms a request and 0.099 us a byte; the price of a request is ours, "
    f"fitted to the first printed optimum ({CHAPTER_3} MB take as long)."
)


def split(runner: Runner) -> Findings:
    """Table 3.2: what (3.3) leaves to the hash table."""
    rows, checks = [], []
    for pages, printed, chunks in _TABLE_3_2:
        w = int(eq_3_3(memory=20 * MB, b=pages, v_p=V_P, v_s=20, n_r=51_200))
        rows.append((pages, chunks, w, w * chunks, printed, float(w * chunks / printed - 1)))
        checks.append(close(f"with {pages} pages the table", w * chunks, printed, 0.003))
    heads = ("pages in the buffer", "chunks", "w", "rows in the table", "printed", "off by")
    return judged(checks, "From equation 3.3 with 51,200 pages of 8 kB.", Grid("20 MB", heads, rows))


def knee(runner: Runner) -> Findings:
    """Figure 3.3: rates over the disk buffer."""
    divide = runner.divide
    rates = [count_mesh(Mesh(memory_mb=80, buffer_mb=b), divide).per_second for b in _BUFFERS]
    by_model = [Mesh(memory_mb=80, buffer_mb=b).rate for b in _BUFFERS]
    low, knee, top = rates[0], rates[_BUFFERS.index(0.93)], max(rates)
    checks = [
        (f"from 0.05 to 0.93 MB the rate grows {knee / low:.2f} times", knee > 1.3 * low),
        (f"beyond, it grows by {top / knee - 1:.1%} at most", top < 1.05 * knee),
    ]
    grid = by_column("MESHJOIN, 80 MB", "disk buffer, MB", _BUFFERS, {"counted": rates, "equation 3.5": by_model})
    return judged(checks, _NOTE, grid.chart("rows a second"))


def best_buffers(runner: Runner) -> Findings:
    """Figure 3.4: the best buffer by memory."""
    divide, rows, checks = runner.divide, [], []
    best_by_memory: list[tuple[float, float]] = []
    for memory in _MEMORY:
        best = best_buffer(Mesh(memory_mb=memory, buffer_mb=1))
        rates = [count_mesh(Mesh(memory_mb=memory, buffer_mb=best * f), divide).per_second for f in (0.25, 1, 4)]
        if not wave(rates):
            checks.append((f"at {memory} MB the counted rate is best beside {best:.2f} MB", False))
        printed = _PRINTED_BEST.get(memory)
        if printed:
            checks.append(close(f"best buffer at {memory} MB", best, printed, 0.04))
        rows.append((memory, best, printed, *rates))
        best_by_memory.append((float(memory), best))
    heads = ("memory, MB", "best buffer, MB", "printed", "rate at a quarter of it", "at it", "at four times")
    lines: dict[str, list[tuple[float, float]]] = {"equation 3.5": best_by_memory}
    lines["printed"] = [(float(memory), best) for memory, best in _PRINTED_BEST.items()]
    chart = Chart("Best buffer", "memory, MB", "disk buffer, MB", lines)
    return judged(checks, _NOTE, chart, Grid("Best buffers", heads, rows))


def default(runner: Runner) -> Findings:
    """Figures 3.5 and 3.7: what the default buffer loses."""
    divide, rows, checks = divisor(runner.bench, 2), [], []
    for memory in _MEMORY:
        default = Mesh(memory_mb=memory, buffer_mb=0.93)
        best = tuned(default)
        counted = [count_mesh(of, divide).per_second for of in (default, best)]
        loss = 100 * (1 - default.rate / best.rate)
        printed = _PRINTED_LOSS.get(memory)
        bare = 100 * loss_of(0.93, memory, CHAPTER_3)
        rows.append((memory, *counted, 100 * (1 - counted[0] / counted[1]), loss, bare, printed))
        if printed:
            checks.append((f"{loss:.2f} % is lost at {memory} MB, printed {printed} %", abs(loss - printed) < 0.4))
    worst, bare = (max(float(row[i] or 0) for row in rows) for i in (4, 5))
    checks.append((f"no more than {worst:.1f} % is lost up to 320 MB, printed: below 2 %", worst < 2))
    heads = ("memory, MB", "0.93 MB, rows/s", "best", "loss counted, %", "by 3.5, %", "reads alone, %", "printed, %")
    grid = Grid("What the default buffer costs", heads, rows)
    note = f"{_NOTE} Of the time to read and probe alone, without the steps of stream rows, {bare:.1f} % would be lost."
    return judged(checks, note, grid.chart("rows a second", {"0.93 MB": 1, "best buffer": 2}), grid)


def io(runner: Runner) -> Findings:
    """Figure 3.6: a page read in larger and larger buffers."""
    request_s = Mesh(memory_mb=80, buffer_mb=1).request_s
    costs = [1e3 * (request_s + buffer * MB * SECONDS_PER_BYTE) / (buffer * MB / V_P) for buffer in _BUFFERS]
    says = (
        f"a page costs {costs[0]:.2f} ms in a buffer of 0.05 MB, {costs[4]:.2f} in one of 0.93, {costs[-1]:.2f} in 8 MB"
    )
    checks = [(says, costs[0] > 2 * costs[4] and costs[4] < 1.15 * costs[-1])]
    chart = by_column("Reading a page", "disk buffer, MB", _BUFFERS, {"read": costs}).chart("ms a page", log_x=True)
    return judged(checks, "By construction: any device with a price per request does so.", chart)


def loop_cost(runner: Runner) -> Findings:
    """Figure 3.8: an iteration, calculated and counted."""
    divide, rows = runner.divide, []
    for memory in _MEMORY:
        of = tuned(Mesh(memory_mb=memory, buffer_mb=1))
        found = count_mesh(of, divide)
        rows.append((memory, of.loop_s, fair(of, divide) * found.rows_per_load / found.per_second))
    off = [abs(counted / calculated - 1) for _, calculated, counted in rows]
    checks = [(f"equation 3.2 is within {max(off):.1%} of what was counted (3 % was allowed)", max(off) < 0.03)]
    grid = Grid("An iteration", ("memory, MB", "equation 3.2, s", "counted, s"), rows)
    note = f"{_NOTE} Both sides have the same unit costs: it tests the counts, not a machine."
    return judged(checks, note, grid.chart("seconds"), grid)


_TABLE_4_2 = ((50, 0.31, 48.47, 1.21, 0.0005, 49.9905), (100, 0.43, 97.14, 2.42, 0.0013, 99.9913),
              (150, 0.52, 145.83, 3.64, 0.0024, 149.9924))  # fmt: skip

_TABLE_4_3 = ((25, 3_318, 11_454, 2_514, 12_851, 607_116, 5_496, 642_749),
              (68, 3_674, 25_422, 3_632, 26_819, 831_048, 7_454, 898_049),
              (125, 3_731, 53_917, 5_029, 54_476, 1_018_704, 9_136, 1_144_993))  # fmt: skip

_TABLE_4_4 = ((0.5, 134, 64), (1, 268, 32), (2, 536, 16), (4, 1072, 8), (8, 2144, 4), (16, 4288, 2))

_R_MEMORY = (25, 50, 100, 150, 200, 250)
_R_NOTE = (
    "Counted on a disk with 0.25 ms a request, which the printed optimum of 0.31 MB at 50 MB implies, and 0.099 us a "
    "byte; fudge factor 8, 2 million rows unless said."
)


def _r_mesh(memory: float, rows: float = 2, parts: int = 0, buffer: float = 0.43) -> Mesh:
    n = int(rows * MILLION)
    return Mesh(memory_mb=memory, buffer_mb=buffer, rows=n, fudge=8, equal_mb=CHAPTER_4, parts=parts)


def r_tables(runner: Runner) -> Findings:
    """Tables 4.2 and 4.3: how they add up."""
    checks, shares, costs = [], [], []
    for memory, buffer, table, queue, stream, total in _TABLE_4_2:
        _, by_table, by_queue = eq_4_1(memory=memory, b=buffer, v_p=1, alpha=alpha_4(v_s=20))
        shares.append((memory, buffer, by_table, table, by_queue, queue, buffer + table + queue + stream, total))
        checks.append(close(f"the hash table at {memory} MB", by_table, table, 0.002))
    for w, *steps, total in _TABLE_4_3:
        costs.append((w, sum(steps), total, w / (sum(steps) / 1e9), steps[0] / total))
        checks.append(close(f"the sum of the row with w = {w}", sum(steps), total, 1e-5))
    share = max(float(row[4]) for row in costs)
    note = (
        f"Reading is {share:.1%} of an iteration at most in table 4.3: the file was in memory, so that rates of this "
        "chapter cannot be compared with those of later ones."
    )
    heads = ("memory, MB", "buffer", "table by 4.1", "printed", "queue by 4.1", "printed", "sum", "printed")
    heads_3 = ("w", "sum of the parts, ns", "printed", "rows a second", "share of reading")
    return judged(checks, note, Grid("Table 4.2", heads, shares), Grid("Table 4.3", heads_3, costs))


def master_size(runner: Runner) -> Findings:
    """Table 4.4 and figures 4.2 and 4.9: best buffers by master rows."""
    rows, divide = [], runner.divide
    for millions, n_p, parts in _TABLE_4_4:
        mesh, mine = best_buffer(_r_mesh(100, millions)), best_buffer(_r_mesh(100, millions, parts))
        at_printed = count_mesh(_r_mesh(100, millions, parts, 0.427), divide)
        calculated = _r_mesh(100, millions, parts, 0.427)
        rows.append((millions, mesh, mine, n_p * parts, calculated.w, at_printed.per_second, calculated.rate))
    moves, stays = ([float(row[i] or 0) for row in rows] for i in (1, 2))
    chunks, w = {row[3] for row in rows}, [float(row[4] or 0) for row in rows]
    off = max(abs(float(row[5] or 0) / float(row[6] or 1) - 1) for row in rows)
    checks = [
        (f"MESHJOIN's best buffer moves from {moves[0]:.3f} to {moves[-1]:.3f} MB", moves[-1] > 1.02 * moves[0]),
        (f"R-MESHJOIN's stays at {stays[0]:.3f} MB (printed 0.427)", max(stays) < 1.005 * min(stays)),
        ("Q_p is 8,576 in all rows of table 4.4", chunks == {8576}),
        (f"w is {w[0]:.1f} in all rows, printed 75, which does not fit in 100 MB", max(w) < 1.01 * min(w)),
    ]
    heads = ("million rows", "best, MESHJOIN, MB", "best, R-MESHJOIN", "Q_p", "w", "counted, rows/s", "by 4.4")
    note = f"{_R_NOTE} MESHJOIN's moves since its stream buffer counts. The join runs {off:.1%} from 4.4 at most."
    grid = Grid("Table 4.4, 100 MB, buffer 0.427 MB", heads, rows)
    best = {"MESHJOIN": 1, "R-MESHJOIN": 2}
    return judged(checks, note, grid.chart("MB", best, title="Best disk buffer, 100 MB", log_x=True), grid)


def parts(runner: Runner) -> Findings:
    """Figures 4.5 to 4.7: hash table and buffer, each alone and together."""
    divide = runner.divide

    def run(of: Mesh) -> float:
        return count_mesh(of, divide).per_second

    room = 97.0  # megabytes that 100 leave to table and queue
    table = [(share, run(_r_mesh(share + 0.43, parts=2))) for share in (12, 24, 48, 97)]
    free = [(b, run(_r_mesh(room + b, parts=2, buffer=b))) for b in (0.02, 0.1, 1, 2)]
    fixed = [(b, run(_r_mesh(100, parts=2, buffer=b))) for b in (0.03, 0.1, 0.3, 1, 4, 16)]
    by_table, by_buffer, inside = ([y for _, y in points] for points in (table, free, fixed))
    early, late = by_buffer[1] / by_buffer[0], by_buffer[-1] / by_buffer[-2]
    checks = [
        (f"with 8 times the hash table the rate is {by_table[-1] / by_table[0]:.2f} times as high",
              all(b > a for a, b in itertools.pairwise(by_table))),
        (f"a buffer of 0.1 MB gives {early:.3f} times the rate of one of 0.02, and one of 2 MB {late:.3f} times "
              "that of 1 MB", early > 1.03 and 0.98 < late < 1.02),
        (f"within 100 MB there is one maximum, near {fixed[inside.index(max(inside))][0]} MB", wave(inside)),
    ]  # fmt: skip
    titles: dict[str, Sequence[tuple[float, float]]] = {
        "Hash table (buffer 0.43 MB)": table,
        "Buffer beside a table of 97 MB": free,
        "Buffer inside 100 MB": fixed,
    }
    charts = [
        Chart(title, "MB", "rows a second", {"R-MESHJOIN": points}, log_x=points is not table)
        for title, points in titles.items()
    ]
    return judged(checks, _R_NOTE, *charts)


def against(runner: Runner) -> Findings:
    """Figure 4.8: both joins with their best buffers."""
    divide, by_memory, by_rows = divisor(runner.bench, 2), [], []
    for memory in _R_MEMORY:
        mesh, mine = tuned(_r_mesh(memory)), tuned(_r_mesh(memory, parts=4))
        found = count_mesh(mine, divide)
        off = found.per_second / mine.rate - 1
        by_memory.append((memory, mesh.buffer_mb, mine.buffer_mb, mesh.rate, mine.rate, found.per_second, off))
    for millions, _, parts in _TABLE_4_4:
        mesh, mine = tuned(_r_mesh(100, millions)), tuned(_r_mesh(100, millions, parts))
        by_rows.append((millions, mesh.rate, mine.rate, 100 * (mine.rate / mesh.rate - 1)))
    gains = [100 * (row[4] / row[3] - 1) for row in by_memory]
    off = max(abs(row[6]) for row in by_memory)
    first, last = by_memory[0], by_memory[-1]
    checks = [
        (f"(a) calculated and counted costs differ by {off:.1%} at most", off < 0.03),
        (f"(b) R-MESHJOIN's best buffer is {first[2]:.3f} MB against {first[1]:.3f} at 25 MB and {last[2]:.3f} "
              f"against {last[1]:.3f} at 250; printed: smaller, the more so the more memory", last[2] < last[1]),
        (f"(c) R-MESHJOIN is faster, by {gains[0]:.2f} % at 25 MB and {gains[-1]:.2f} % at 250",
              all(gain > 0 for gain in gains)),
        ("(c) and the gain grows with memory", gains[-1] > gains[0] * 1.1),
        (f"(d) it is faster by {by_rows[0][3]:.2f} % at 0.5 million rows and by {by_rows[-1][3]:.2f} % at 16",
              by_rows[0][3] > by_rows[-1][3] >= 0),
    ]  # fmt: skip
    heads = ("memory, MB", "best, MESHJOIN", "best, R-MESHJOIN", "MESHJOIN, rows/s", "R-MESHJOIN", "counted", "off by")
    grid = Grid("By memory", heads, by_memory)
    rates = grid.chart("rows a second", {"MESHJOIN": 3, "R-MESHJOIN": 4}, title="Rates with the best buffers")
    best = grid.chart("MB", {"MESHJOIN": 1, "R-MESHJOIN": 2}, title="Best buffers")
    sizes = Grid("By master rows", ("million", "MESHJOIN, rows/s", "R-MESHJOIN", "gain, %"), by_rows)
    note = f"{_R_NOTE} The gain is what MESHJOIN's stream buffer takes of memory."
    return judged(checks, note, rates, best, grid, sizes)


def loss_of(buffer: float, memory: float, a: float) -> float:
    """The share of the best rate that another buffer loses."""

    def rate(b: float) -> float:
        return b * (memory - b) / (a + b)

    return 1 - rate(buffer) / rate(best_buffer_bytes(memory, a))
