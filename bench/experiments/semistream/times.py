"""Chapter 5: how long rows of a stream stay in HYBRIDJOIN, MESHJOIN and INLJ, in virtual time and by the clock."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from bench.experiment import Findings, Grid, judged
from bench.experiments.semistream.media import ClockRunner, Runner, built, check, law_keys
from bench.experiments.semistream.points import HYBRID, INLJ, MESH, MILLION, Point, count, master_rows
from bench.experiments.semistream.waits import inlj_delay, round_times
from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.workloads.zipf import ZipfLaw

_ROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])
_RATES = (60, 125, 200, 500, 1000, 2000)
_PACE = 500
_STAY_S = SOURCE_COSTS.emit + SOURCE_COSTS.evict + SOURCE_COSTS.receive + SOURCE_COSTS.admit
_CLOCKED = (HYBRID, MESH, INLJ)
_SECONDS = 0.5
_MOST = {INLJ: 32}  # rows of a push: INLJ gives out answers when a push ends
_SHARES = (0.25, 0.5, 2.0, 4.0)  # of the rate that INLJ keeps up with


class _Time(Protocol):
    """The time in which rows arrive."""

    def now_ns(self) -> int: ...

    def wait_until(self, ns: int) -> None: ...

    def spend(self, answered: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Virtual:
    """The time of a simulated disk."""

    clock: VirtualClock
    load_ns: int

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def wait_until(self, ns: int) -> None:
        self.clock.advance_ns(ns - self.clock.now_ns())

    def spend(self, answered: int) -> None:
        self.clock.advance_ns(self.load_ns + round(answered * _STAY_S * 1e9))


class _Wall:
    """This machine's time, which passes by itself."""

    def __init__(self) -> None:
        self._began = time.perf_counter_ns()

    def now_ns(self) -> int:
        return time.perf_counter_ns() - self._began

    def wait_until(self, ns: int) -> None:
        time.sleep(max(0, ns - self.now_ns()) / 1e9)

    def spend(self, answered: int) -> None: ...


def _paced(
    operator: SemiStreamOperator, at: _Time, keys: I64, due: I64, most: int = 1 << 62
) -> tuple[I64, list[pa.RecordBatch]]:
    """Nanoseconds that each row stayed, and all answers: rows that have arrived are taken in between two loads."""
    waited, taken, given = np.full(len(keys), -1, np.int64), 0, list[pa.RecordBatch]()
    while taken < len(keys) or operator.waiting_rows:
        if not operator.waiting_rows and at.now_ns() < due[min(taken, len(due) - 1)]:
            at.wait_until(int(due[taken]))
        stop, answers = min(int(np.searchsorted(due, at.now_ns(), side="right")), taken + most), list[pa.RecordBatch]()
        if stop > taken:
            ids = pa.array(np.arange(taken, stop))
            answers += operator.push("stream", pa.record_batch([ids, pa.array(keys[taken:stop])], schema=_ROW))
            taken = stop
        if operator.waiting_rows:
            answers += operator.work()
        answers += operator.answers.flush()
        done = [np.asarray(batch.column(batch.schema.get_field_index("id"))) for batch in answers]
        at.spend(sum(map(len, done)))
        for some in done:
            waited[some] = at.now_ns() - due[some]
        given += answers
    return waited, given


@dataclass(frozen=True, slots=True)
class Stays:
    """Mean and longest seconds from arrival to answer, and rows per load."""

    mean_s: float
    longest_s: float
    rows_per_load: float


@lru_cache(maxsize=256)
def stays(point: Point, arrivals_per_s: float, seconds: float) -> Stays:
    """What rows of a stream of so many a second go through in so many seconds, of which the first half warms up."""
    join, n = point.join(), int(arrivals_per_s * seconds)
    clock = join.pages.device.clock
    if not isinstance(clock, VirtualClock):
        raise DataError("times at a rate of arrival need a simulated disk.")
    at = _Virtual(clock, round(point.segment * SOURCE_COSTS.probe * 1e9))
    keys = ZipfLaw(point.master_rows, point.exponent, "integral").ranks(np.random.default_rng(7), n) - 1
    due = int64s((np.arange(n) * (1e9 / arrivals_per_s)).astype(np.int64))
    with join.open(MemoryBudget(2**40, "simulation"), {"stream": _ROW}) as operator:
        late = _paced(operator, at, keys, due)[0][n // 2 :] / 1e9
        if late.min() < 0:
            raise DataError(f"{int((late < 0).sum())} rows of {n} were never answered.")
        return Stays(float(late.mean()), float(late.max()), n / operator.counts["loads"])


def mean_wait(runner: ClockRunner, name: str, per_second: float, rows: int = 2 * MILLION) -> float:
    """By the clock: mean seconds from arrival to answer, of rows that arrive in the second half of the time."""
    point = runner.point(name, rows=rows)
    pages, n = runner.pages(point.master_rows), max(40, int(per_second * _SECONDS))
    keys = law_keys(point.master_rows, point.exponent, scattered=False, seed=7)(n)
    with built(point, pages).open(MemoryBudget(2**34, "bench"), {"stream": _ROW}) as operator:
        _paced(operator, _Wall(), keys[:32], np.zeros(32, np.int64), 32)  # what is loaded at first use
        due = int64s((np.arange(n) * (1e9 / per_second)).astype(np.int64))
        waited, given = _paced(operator, _Wall(), keys, due, _MOST.get(name, 1 << 15))
    check(keys, given)
    runner.checked += n
    return float(waited[n // 2 :].mean()) / 1e9


def _seconds(runner: Runner) -> float:
    return 300.0 if runner.bench.scale == "full" else 60.0


_BY_MODEL = (
    "HYBRIDJOIN's times are those of the running join in virtual time; MESHJOIN's and INLJ's are by their models."
)


def processing(runner: Runner) -> Findings:
    """Figure 5.7 (a)."""
    sizes, rows = master_rows(runner.bench), []
    for n in sizes:
        point, mesh = runner.point(HYBRID, rows=n), runner.point(MESH, rows=n).predicted()
        mine = stays(point, _PACE, _seconds(runner)).mean_s
        full = (point.join().sizes.waiting or 1) / count(point).per_second  # Little's law: that many wait
        rows.append((n, mine, round_times(mesh, _PACE).to_match_s, full, round_times(mesh).to_match_s))
    inlj = [1 / runner.point(INLJ, rows=n).predicted().mu for n in sizes]
    slow, fast = [row[2] / row[1] for row in rows], [row[4] / row[3] for row in rows]
    parts = [
        (f"at {_PACE} rows a second rows stay {min(slow):.0f} to {max(slow):.0f} times as long in MESHJOIN",
         min(slow) > 3),
        (f"INLJ takes {1e3 * inlj[0]:.1f} ms whatever the master data", max(inlj) < 1.01 * min(inlj)),
        (f"with a stream that is never short a match takes MESHJOIN {min(fast):.2f} to {max(fast):.2f} times "
         "HYBRIDJOIN's time", min(fast) > 1),
    ]  # fmt: skip
    names = (f"HYBRIDJOIN, {_PACE}/s", f"MESHJOIN, {_PACE}/s", "HYBRIDJOIN, saturated", "MESHJOIN, saturated")
    grid = Grid("Mean seconds to the match, exponent 1", ("master rows", *names), rows)
    chart = grid.chart("seconds", title="Time to the match", log_x=True, log_y=True)
    return judged(parts, f"{_BY_MODEL} {runner.note}", chart, grid)


def waiting(runner: Runner) -> Findings:
    """Figure 5.7 (b)."""
    rows, seconds = [], _seconds(runner)
    point, mesh, inlj = runner.point(HYBRID), runner.point(MESH).predicted(), runner.point(INLJ).predicted()
    for pace in _RATES:
        mine, delay = stays(point, pace, seconds), inlj_delay(inlj, pace)
        backlog = delay if delay < 1e9 else seconds * (1 - inlj.mu / pace) / 2
        rows.append((pace, mine.mean_s, mine.longest_s, mesh.w / pace, round_times(mesh, pace).residence_s, backlog))
    below, above = ([row for row in rows if (row[0] < inlj.mu) is low] for low in (True, False))
    parts = [
        ("rows wait longer in MESHJOIN than in HYBRIDJOIN at every rate, "
         f"{min(r[4] / r[1] for r in rows):.0f} times at least", all(r[4] > r[1] for r in rows)),
        (f"below INLJ's capacity of {inlj.mu:.0f} rows a second they wait longer in HYBRIDJOIN than in INLJ",
         all(r[1] > r[5] for r in below)),
        ("above it INLJ's backlog grows with time and with the rate",
         all(b[5] > a[5] for a, b in itertools.pairwise(above))),
    ]  # fmt: skip
    heads = ("rows a second", "HYBRIDJOIN, mean s", "longest", "MESHJOIN, a step", "a round", "INLJ")
    grid = Grid("Seconds that rows stay", heads, rows)
    names = {"HYBRIDJOIN": 1, "MESHJOIN, a round": 4, "MESHJOIN, a step (printed)": 3, "INLJ": 5}
    note = (
        f"{_BY_MODEL} {runner.note} INLJ's above its capacity is the mean backlog of {seconds:.0f} s. The source puts "
        "the crossing at 150 rows a second and counts one step of MESHJOIN, where a row stays for a round."
    )
    chart = grid.chart("seconds", names, title="Waiting, exponent 1", log_x=True, log_y=True)
    return judged(parts, note, chart, grid)


def _capacity(runner: ClockRunner) -> float:
    return runner.rate(runner.point(INLJ))


def processing_by_clock(runner: ClockRunner) -> Findings:
    """Figure 5.7 (a), by the clock."""
    pace, sizes = _capacity(runner) / 2, (MILLION // 2, 2 * MILLION, 4 * MILLION)
    rows = [(n, *(1e3 * mean_wait(runner, name, pace, n) for name in _CLOCKED)) for n in sizes]
    slow, inlj = [row[2] / row[1] for row in rows], [row[3] for row in rows]
    parts = [
        (f"rows stay {min(slow):.1f} to {max(slow):.1f} times as long in MESHJOIN as in HYBRIDJOIN", min(slow) > 3),
        (f"INLJ takes {min(inlj):.2f} to {max(inlj):.2f} ms whatever the master data", max(inlj) < 1.5 * min(inlj)),
    ]
    grid = Grid("Mean ms to the match, exponent 1", ("master rows", *_CLOCKED), rows)
    note = f"{pace:,.0f} rows a second arrive, half of what INLJ keeps up with here. {runner.note}"
    return judged(parts, note, grid.chart("ms", title="Time to the match", log_x=True, log_y=True), grid)


def waiting_by_clock(runner: ClockRunner) -> Findings:
    """Figure 5.7 (b), by the clock."""
    capacity = _capacity(runner)
    paces = [share * capacity for share in _SHARES]
    rows = [(pace, *(1e3 * mean_wait(runner, name, pace) for name in _CLOCKED)) for pace in paces]
    below, above = ([row for row in rows if (row[0] < capacity) is low] for low in (True, False))
    parts = [
        (f"rows wait longer in MESHJOIN than in HYBRIDJOIN at every rate, {min(r[2] / r[1] for r in rows):.1f} "
         "times at least", all(r[2] > r[1] for r in rows)),
        (f"below INLJ's capacity of {capacity:,.0f} rows a second they wait longer in HYBRIDJOIN than in INLJ",
         all(r[1] > r[3] for r in below)),
        ("above it INLJ's backlog grows with the rate, beyond HYBRIDJOIN's waits",
         above[-1][3] > above[0][3] and all(r[3] > r[1] for r in above)),
    ]  # fmt: skip
    grid = Grid("Mean ms that rows stay", ("rows a second that arrive", *_CLOCKED), rows)
    note = f"Streams of {_SECONDS:g} s, the second half counted; INLJ's backlog grows for as long. {runner.note}"
    return judged(parts, note, grid.chart("ms", title="Waiting, exponent 1", log_x=True, log_y=True), grid)
