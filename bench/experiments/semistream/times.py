"""Chapter 5: how long rows of a stream stay in HYBRIDJOIN, MESHJOIN and INLJ, in virtual time and by the clock."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.by_clock import HYBRID, INLJ, JOINS, MESH
from bench.experiments.semistream.judging import grid, judged
from bench.experiments.semistream.media import ClockRunner, built, check, law_keys, on_stores
from bench.experiments.semistream.points import MILLION, Point, count, counted, divisor, master_rows
from bench.simulation import SOURCE_UNITS
from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.semistream.cost import round_times
from dovetail.joins.semistream.cost.inlj import inlj_delay
from dovetail.joins.semistream.operators.base import SemiStreamOperator
from dovetail.workloads.zipf import ZipfLaw

_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Stays:
    """Mean and longest seconds from arrival to answer, and rows per load."""

    mean_s: float
    longest_s: float
    rows_per_load: float


@lru_cache(maxsize=256)
def stays(point: Point, arrivals_per_s: float, seconds: float) -> Stays:
    """What rows of a stream of so many a second go through in so many seconds, of which the first half warms up."""
    join = point.join()
    clock = join.pages.device.clock
    if not isinstance(clock, VirtualClock):
        raise DataError("times at a rate of arrival need a simulated disk.")
    n = int(arrivals_per_s * seconds)
    law = ZipfLaw(point.master_rows, point.exponent, "integral")
    keys = law.ranks(np.random.default_rng(7), n) - 1
    with join.open(MemoryBudget(2**40, "simulation"), {"stream": _SCHEMA}) as operator:
        waited = _paced_virtually(operator, clock, keys, 1e9 / arrivals_per_s, point.segment)
        late = waited[n // 2 :] / 1e9
        if late.min() < 0:
            raise DataError(f"{int((late < 0).sum())} rows of {n} were never answered.")
        return Stays(float(late.mean()), float(late.max()), n / operator.counts["loads"])


def _paced_virtually(operator: SemiStreamOperator, clock: VirtualClock, keys: I64, gap_ns: float, segment: int) -> I64:
    """Nanoseconds that each row stayed: rows that have arrived are taken in between two loads."""
    due = (np.arange(len(keys)) * gap_ns).astype(np.int64)
    waited, taken = np.full(len(keys), -1, np.int64), 0
    load_ns = round(segment * SOURCE_UNITS.probe * 1e9)
    while taken < len(keys) or operator.waiting_rows:
        if not operator.waiting_rows and clock.now_ns() < due[min(taken, len(due) - 1)]:
            clock.advance_ns(int(due[taken]) - clock.now_ns())
        stop = int(np.searchsorted(due, clock.now_ns(), side="right"))
        answers = []
        if stop > taken:
            ids = pa.array(np.arange(taken, stop))
            answers += list(operator.push("stream", pa.record_batch([ids, pa.array(keys[taken:stop])], schema=_SCHEMA)))
            taken = stop
        answers += [*operator.work(), *operator.flush()]
        done = np.concatenate([np.asarray(batch.column(0)) for batch in answers]) if answers else np.zeros(0, np.int64)
        clock.advance_ns(load_ns + round(len(done) * SOURCE_UNITS.stay * 1e9))
        waited[done] = clock.now_ns() - due[done]
    return waited


_RATES = (60, 125, 200, 500, 1000, 2000)

_PACE = 500


def _seconds(bench: BenchContext) -> float:
    return 300.0 if bench.scale == "full" else 60.0


def _note(divide: int) -> str:
    size = "the source's sizes" if divide == 1 else f"a {divide}th of the source's master data and memory"
    return (
        f"HYBRIDJOIN's times are those of the running join in virtual time, at {size}; MESHJOIN's and INLJ's are by "
        "their models."
    )


def _processing(bench: BenchContext) -> Findings:
    divide, sizes, rows = divisor(bench), master_rows(bench), []
    for n in sizes:
        point = Point(divide=divide, rows=n)
        mesh = replace(point, algorithm="meshjoin").predicted()
        mine = stays(point, _PACE, _seconds(bench)).mean_s
        room = point.join().sizes.waiting or 1
        full = room / count(point).per_second  # Little's law: that many wait
        rows.append((n, mine, round_times(mesh, _PACE).to_match_s, full, round_times(mesh).to_match_s))
    inlj = [1 / replace(Point(divide=divide, rows=n), algorithm="inlj").predicted().mu for n in sizes]
    slow = [row[2] / row[1] for row in rows]
    fast = [row[4] / row[3] for row in rows]
    checks = [
        Part(f"at {_PACE} rows a second rows stay {min(slow):.0f} to {max(slow):.0f} times as long in MESHJOIN",
              min(slow) > 3),
        Part(f"INLJ takes {1e3 * inlj[0]:.1f} ms whatever the master data", max(inlj) < 1.01 * min(inlj)),
        Part(f"with a stream that is never short a match takes MESHJOIN {min(fast):.2f} to {max(fast):.2f} times "
              "HYBRIDJOIN's time", min(fast) > 1),
    ]  # fmt: skip
    names = (f"HYBRIDJOIN, {_PACE}/s", f"MESHJOIN, {_PACE}/s", "HYBRIDJOIN, saturated", "MESHJOIN, saturated")
    lines = {name: [(row[0], row[i]) for row in rows] for i, name in enumerate(names, 1)}
    chart = Chart("Time to the match", "master rows", "seconds", lines, log_x=True, log_y=True)
    heads = (
        "master rows",
        f"HYBRIDJOIN, {_PACE}/s",
        f"MESHJOIN, {_PACE}/s",
        "HYBRIDJOIN, saturated",
        "MESHJOIN, saturated",
    )
    return judged(checks, _note(divide), [chart], [grid("Mean seconds to the match, exponent 1", heads, rows)])


def _waiting(bench: BenchContext) -> Findings:
    divide, rows = divisor(bench), []
    point = Point(divide=divide)
    mesh, inlj = (replace(point, algorithm=name).predicted() for name in ("meshjoin", "inlj"))
    for pace in _RATES:
        mine = stays(point, pace, _seconds(bench))
        delay = inlj_delay(inlj, pace)
        backlog = delay if delay < 1e9 else _seconds(bench) * (1 - inlj.mu / pace) / 2
        rows.append((pace, mine.mean_s, mine.longest_s, mesh.w / pace, round_times(mesh, pace).residence_s, backlog))
    below = [row for row in rows if row[0] < inlj.mu]
    above = [row for row in rows if row[0] > inlj.mu]
    checks = [
        Part("rows wait longer in MESHJOIN than in HYBRIDJOIN at every rate, "
              f"{min(r[4] / r[1] for r in rows):.0f} times at least", all(r[4] > r[1] for r in rows)),
        Part(f"below INLJ's capacity of {inlj.mu:.0f} rows a second they wait longer in HYBRIDJOIN than in INLJ",
              all(r[1] > r[5] for r in below)),
        Part("above it INLJ's backlog grows with time and with the rate",
              all(b[5] > a[5] for a, b in itertools.pairwise(above))),
    ]  # fmt: skip
    names = {1: "HYBRIDJOIN", 4: "MESHJOIN, a round", 3: "MESHJOIN, a step (printed)", 5: "INLJ"}
    lines = {name: [(row[0], row[i]) for row in rows] for i, name in names.items()}
    chart = Chart("Waiting, exponent 1", "rows a second that arrive", "seconds", lines, log_x=True, log_y=True)
    heads = ("rows a second", "HYBRIDJOIN, mean s", "longest", "MESHJOIN, a step", "a round", "INLJ")
    note = (
        f"{_note(divide)} INLJ's above its capacity is the mean backlog of {_seconds(bench):.0f} s. The source puts "
        "the crossing at 150 rows a second and counts one step of MESHJOIN, where a row stays for a round."
    )
    return judged(checks, note, [chart], [grid("Seconds that rows stay", heads, rows)])


_ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])

_TIMED_JOINS = (HYBRID, MESH, INLJ)

_SECONDS = 0.5

_MOST = {INLJ: 32}  # rows of a push: INLJ gives out answers when a push ends

_SHARES = (0.25, 0.5, 2.0, 4.0)  # of the rate that INLJ keeps up with

_MASTER = (MILLION // 2, 2 * MILLION, 4 * MILLION)

F64 = npt.NDArray[np.float64]


def mean_wait(runner: ClockRunner, name: str, per_second: float, rows: int = 2 * MILLION) -> float:
    """Mean seconds from arrival to answer, of rows that arrive in the second half of the time."""
    point: Point = replace(JOINS[name], divide=runner.divide, rows=rows)
    pages = runner.pages(point.master_rows)
    n = max(40, int(per_second * _SECONDS))
    keys = law_keys(point.master_rows, point.exponent, scattered=False, seed=7)(n)
    with built(point, pages).open(MemoryBudget(2**34, "bench"), {"stream": _ROWS}) as operator:
        _paced(operator, keys[:32], np.zeros(32), 32)  # what is loaded at first use
        waited = _paced(operator, keys, np.arange(n) / per_second, _MOST.get(name, 1 << 15))
    runner.checked += n
    return float(waited[n // 2 :].mean())


def _paced(operator: SemiStreamOperator, keys: I64, due: F64, most: int) -> F64:
    """Seconds that each row stayed; rows that have arrived are taken in between two steps of the join."""
    waited, taken, given = np.full(len(keys), np.nan), 0, list[pa.RecordBatch]()
    started = time.perf_counter()
    while taken < len(keys) or operator.waiting_rows:
        now = time.perf_counter() - started
        stop = min(int(np.searchsorted(due, now, side="right")), taken + most)
        if stop == taken and not operator.waiting_rows:
            time.sleep(max(0.0, float(due[taken]) - now))
            continue
        answers: list[pa.RecordBatch] = []
        if stop > taken:
            ids = pa.array(np.arange(taken, stop))
            answers += operator.push("stream", pa.record_batch([ids, pa.array(keys[taken:stop])], schema=_ROWS))
            taken = stop
        if operator.waiting_rows:
            answers += operator.work()
        answers += operator.flush()
        now = time.perf_counter() - started
        for batch in answers:
            done = np.asarray(batch.column(batch.schema.get_field_index("id")))
            waited[done] = now - due[done]
        given += answers
    check(keys, given)
    return waited


def _capacity(runner: ClockRunner) -> float:
    return runner.rate(replace(JOINS[INLJ], divide=runner.divide))


def _processing_by_clock(bench: BenchContext, runner: ClockRunner) -> Findings:
    pace = _capacity(runner) / 2
    rows = [(n, *(1e3 * mean_wait(runner, name, pace, n) for name in _TIMED_JOINS)) for n in _MASTER]
    slow, inlj = [row[2] / row[1] for row in rows], [row[3] for row in rows]
    checks = [
        Part(f"rows stay {min(slow):.1f} to {max(slow):.1f} times as long in MESHJOIN as in HYBRIDJOIN", min(slow) > 3),
        Part(f"INLJ takes {min(inlj):.2f} to {max(inlj):.2f} ms whatever the master data", max(inlj) < 1.5 * min(inlj)),
    ]
    lines = {name: [(row[0], row[at]) for row in rows] for at, name in enumerate(_TIMED_JOINS, 1)}
    chart = Chart("Time to the match", "master rows of the source", "ms", lines, log_x=True, log_y=True)
    table = grid("Mean ms to the match, exponent 1", ("master rows", *_TIMED_JOINS), rows)
    note = f"{pace:,.0f} rows a second arrive, half of what INLJ keeps up with here. {runner.note}"
    return judged(checks, note, [chart], [table])


def _waiting_by_clock(bench: BenchContext, runner: ClockRunner) -> Findings:
    capacity = _capacity(runner)
    rows = [
        (share * capacity, *(1e3 * mean_wait(runner, name, share * capacity) for name in _TIMED_JOINS))
        for share in _SHARES
    ]
    below, above = (
        [row for row, share in zip(rows, _SHARES, strict=True) if (share < 1) is low] for low in (True, False)
    )
    checks = [
        Part(f"rows wait longer in MESHJOIN than in HYBRIDJOIN at every rate, {min(r[2] / r[1] for r in rows):.1f} "
              "times at least", all(r[2] > r[1] for r in rows)),
        Part(f"below INLJ's capacity of {capacity:,.0f} rows a second they wait longer in HYBRIDJOIN than in INLJ",
              all(r[1] > r[3] for r in below)),
        Part("above it INLJ's backlog grows with the rate, beyond HYBRIDJOIN's waits",
              above[-1][3] > above[0][3] and all(r[3] > r[1] for r in above)),
    ]  # fmt: skip
    lines = {name: [(row[0], row[at]) for row in rows] for at, name in enumerate(_TIMED_JOINS, 1)}
    chart = Chart("Waiting, exponent 1", "rows a second that arrive", "ms", lines, log_x=True, log_y=True)
    table = grid("Mean ms that rows stay", ("rows a second", *_TIMED_JOINS), rows)
    note = f"Streams of {_SECONDS:g} s, the second half counted; INLJ's backlog grows for as long. {runner.note}"
    return judged(checks, note, [chart], [table])


EXPERIMENTS = (
    counted(
        "hybrid-processing-time",
        ("figure 5.7 (a)", "Naeem 2011 figure 7 (a)"),
        "A row is processed in far less time "
        "by HYBRIDJOIN than by MESHJOIN, for every size of the master data; INLJ's time is constant.",
        _processing,
    ),
    counted(
        "hybrid-waiting-time",
        ("figure 5.7 (b)", "Naeem 2011 figure 7 (b)"),
        "Rows wait longer in MESHJOIN than in "
        "HYBRIDJOIN; in HYBRIDJOIN longer than in INLJ below 150 rows a second only, above which INLJ's backlog "
        "grows.",
        _waiting,
    ),
    *on_stores(
        "processing-time",
        ("figure 5.7 (a)", "Naeem 2011 figure 7 (a)"),
        "A row is processed in far less time by HYBRIDJOIN than by MESHJOIN, for every size of the master data; INLJ's "
        "time is constant.",
        _processing_by_clock,
    ),
    *on_stores(
        "waiting-time",
        ("figure 5.7 (b)", "Naeem 2011 figure 7 (b)"),
        "Rows wait longer in MESHJOIN than in HYBRIDJOIN; in HYBRIDJOIN longer than in INLJ as long as INLJ keeps up, "
        "beyond which its backlog grows.",
        _waiting_by_clock,
    ),
)
