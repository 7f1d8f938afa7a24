"""Chapter 5: how long rows of a stream stay in HYBRIDJOIN, MESHJOIN and INLJ, in virtual time and by the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from bench.experiments.semistream.media import ClockRunner, Runner, built, check, law_keys
from bench.experiments.semistream.points import HYBRID, INLJ, MESH, MILLION, Point, count, master_rows
from bench.judge import Figures
from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS, Prediction
from dovetail.joins.semistream.operators.meshjoin import MeshCycle
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.workloads.zipf import ZipfLaw

_ROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])
_RATES = (60, 125, 200, 500, 1000, 2000)
_PACE = 500
_STAY_S = SOURCE_COSTS.emit + SOURCE_COSTS.evict + SOURCE_COSTS.receive + SOURCE_COSTS.admit
_SECONDS = 0.5
_MOST = {INLJ: 32}  # rows of a push: INLJ gives out answers when a push ends


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
        self.clock.advance_ns(max(0, ns - self.clock.now_ns()))

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
    """Nanoseconds that each row stayed, and all answers: rows that have arrived are taken in between two loads.

    MESHJOIN loads when a chunk of its stream is full, which is what rows of a slow stream wait for.
    """
    waited, taken, given = np.full(len(keys), -1, np.int64), 0, list[pa.RecordBatch]()
    chunk = operator.chunk_rows if isinstance(operator, MeshCycle) else 0
    while taken < len(keys) or operator.waiting_rows:
        if taken < len(keys) and (chunk or not operator.waiting_rows):
            at.wait_until(int(due[min(len(keys), taken + max(1, chunk)) - 1]))
        stop, answers = min(int(np.searchsorted(due, at.now_ns(), side="right")), taken + most), list[pa.RecordBatch]()
        if stop > taken:
            ids = pa.array(np.arange(taken, stop))
            answers += operator.push("stream", pa.record_batch([ids, pa.array(keys[taken:stop])], schema=_ROW))
            taken = stop
        if operator.waiting_rows and (not chunk or taken == len(keys)):
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
    """Times that rows stay in a join that has settled: `arrivals_per_s` rows a second, for `seconds` seconds."""
    join, n = point.join(), int(arrivals_per_s * seconds)
    clock = join.pages.device.clock
    if not isinstance(clock, VirtualClock):
        raise DataError("times at a rate of arrival need a simulated disk.")
    at = _Virtual(clock, round(point.segment * SOURCE_COSTS.probe * 1e9))
    keys = ZipfLaw(point.master_rows, point.exponent, "integral").ranks(np.random.default_rng(7), n) - 1
    due = int64s((np.arange(n) * (1e9 / arrivals_per_s)).astype(np.int64))
    with join.open(MemoryBudget(2**40, "simulation"), {"stream": _ROW}) as operator:
        late = _paced(operator, at, keys, due)[0][_settled(operator, n)] / 1e9
        if late.min() < 0:
            raise DataError(f"{int((late < 0).sum())} rows of {n} were never answered.")
        return Stays(float(late.mean()), float(late.max()), n / operator.counts["loads"])


ROUNDS = 3
"""Rounds of MESHJOIN that a stream lasts at least; rows that arrive in the second one count."""


def _settled(operator: SemiStreamOperator, rows: int) -> slice:
    """The rows that count: of MESHJOIN those of the round before the last, which is not paced; else the second half."""
    return slice(rows // 3, 2 * rows // 3) if isinstance(operator, MeshCycle) else slice(rows // 2, rows)


def mean_wait(runner: ClockRunner, name: str, per_second: float, rows: int = 2 * MILLION) -> float:
    """By the clock: mean seconds from arrival to answer, of rows that arrive once the join has settled."""
    point = runner.point(name, rows=rows)
    pages, n = runner.pages(point.master_rows), max(40, int(per_second * _SECONDS))
    join = built(point, pages)
    n = max(n, int(ROUNDS * (join.sizes.waiting or 0))) if point.mesh else n
    keys = law_keys(point.master_rows, point.exponent, scattered=False, seed=7)(n)
    with join.open(MemoryBudget(2**34, "bench"), {"stream": _ROW}) as operator:
        _paced(operator, _Wall(), keys[:32], np.zeros(32, np.int64), 32)  # what is loaded at first use
        due = int64s((np.arange(n) * (1e9 / per_second)).astype(np.int64))
        waited, given = _paced(operator, _Wall(), keys, due, _MOST.get(name, 1 << 15))
        settled = _settled(operator, n)
    check(keys, given)
    runner.checked += n
    return float(waited[settled].mean()) / 1e9


def _seconds(runner: Runner) -> float:
    return 300.0 if runner.bench.scale == "full" else 60.0


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Seconds of one step, to the match, and until a tuple leaves, at a given arrival rate."""

    step_s: float
    to_match_s: float
    residence_s: float


def round_times(prediction: Prediction, arrival: float | None = None) -> RoundTimes:
    """How long tuples of the MESHJOIN family take: half a round to the match, a whole one until they leave.

    A slow stream stretches every step to the time in which its w tuples arrive, where the source counts one such
    wait only.
    Reference: Naeem 2012, 5.1.1 and 5.1.2, corrected; docs/algorithms/semistream.md, 3.1.
    """
    fill = prediction.w / arrival if arrival else 0.0
    step = max(prediction.c_loop, fill)
    return RoundTimes(step, prediction.bound_steps / 2 * step, prediction.bound_steps * step)


def inlj_delay(prediction: Prediction, arrival: float) -> float:
    """Mean seconds from arrival to answer for tuples that come at random: (1/mu)(1 + rho / (2 (1 - rho))).

    Infinite when more tuples arrive than can be answered.
    """
    load = arrival / prediction.mu
    return (1 + load / (2 * (1 - load))) / prediction.mu if load < 1 else float("inf")


def processing(runner: Runner) -> Figures:
    """Figure 5.7 (a): seconds to the match at a pace and saturated; HYBRIDJOIN in virtual time, others by models."""
    sizes, rows = master_rows(runner.bench), []
    for n in sizes:
        point, mesh = runner.point(HYBRID, rows=n), runner.point(MESH, rows=n).predicted()
        mine = stays(point, _PACE, _seconds(runner)).mean_s
        full = (point.join().sizes.waiting or 1) / count(point).per_second  # Little's law: that many wait
        rows.append((n, mine, round_times(mesh, _PACE).to_match_s, full, round_times(mesh).to_match_s))
    inlj = [1 / runner.point(INLJ, rows=n).predicted().mu for n in sizes]
    return Figures.of(rows, "rows hybrid mesh hybrid_full mesh_full", inlj=inlj, pace=_PACE, note=runner.note)


def waiting(runner: Runner) -> Figures:
    """Figure 5.7 (b): seconds that rows stay, by the rate at which they arrive."""
    rows, seconds = [], _seconds(runner)
    point, mesh, inlj = runner.point(HYBRID), runner.point(MESH).predicted(), runner.point(INLJ).predicted()
    for pace in _RATES:
        mine, delay = stays(point, pace, seconds), inlj_delay(inlj, pace)
        backlog = delay if delay < 1e9 else seconds * (1 - inlj.mu / pace) / 2
        rows.append((pace, mine.mean_s, mine.longest_s, mesh.w / pace, round_times(mesh, pace).residence_s, backlog))
    more = {"capacity": inlj.mu, "seconds": seconds, "note": runner.note}
    return Figures.of(rows, "pace hybrid longest mesh_step mesh inlj", **more)


def by_clock(runner: ClockRunner, shares: Sequence[float], master: Sequence[int]) -> Figures:
    """Mean milliseconds that rows stay, at shares of what INLJ keeps up with or over numbers of master rows."""
    capacity = runner.rate(runner.point(INLJ))
    points = [(share * capacity, rows) for share in shares for rows in master]
    rows = [(pace, n, *(1e3 * mean_wait(runner, name, pace, n) for name in (HYBRID, MESH, INLJ))) for pace, n in points]
    more = {"capacity": capacity, "seconds": _SECONDS, "note": runner.note}
    return Figures.of(rows, "pace rows hybrid mesh inlj", **more)
