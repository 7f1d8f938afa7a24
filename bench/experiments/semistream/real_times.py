"""Chapter 5 by the clock: how long rows that arrive at a given rate stay in HYBRIDJOIN, MESHJOIN and INLJ."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import MILLION, Point
from bench.experiments.semistream.judging import grid, judged
from bench.experiments.semistream.media import ClockRunner, on_stores
from bench.experiments.semistream.real_rates import HYBRID, INLJ, JOINS, MESH
from bench.experiments.semistream.timing import built, check, law_keys
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.operators.operator import SemiStreamOperator

_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])
_NAMES = (HYBRID, MESH, INLJ)
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
    with built(point, pages).open(MemoryBudget(2**34, "bench"), {"stream": _SCHEMA}) as operator:
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
            answers += operator.push("stream", pa.record_batch([ids, pa.array(keys[taken:stop])], schema=_SCHEMA))
            taken = stop
        if operator.waiting_rows:
            answers += operator.work()
        answers += operator.answers.flush()
        now = time.perf_counter() - started
        for batch in answers:
            done = np.asarray(batch.column(batch.schema.get_field_index("id")))
            waited[done] = now - due[done]
        given += answers
    check(keys, given)
    return waited


def _capacity(runner: ClockRunner) -> float:
    return runner.rate(replace(JOINS[INLJ], divide=runner.divide))


def _processing(bench: BenchContext, runner: ClockRunner) -> Findings:
    pace = _capacity(runner) / 2
    rows = [(n, *(1e3 * mean_wait(runner, name, pace, n) for name in _NAMES)) for n in _MASTER]
    slow, inlj = [row[2] / row[1] for row in rows], [row[3] for row in rows]
    checks = [
        Part(f"rows stay {min(slow):.1f} to {max(slow):.1f} times as long in MESHJOIN as in HYBRIDJOIN", min(slow) > 3),
        Part(f"INLJ takes {min(inlj):.2f} to {max(inlj):.2f} ms whatever the master data", max(inlj) < 1.5 * min(inlj)),
    ]
    lines = {name: [(row[0], row[at]) for row in rows] for at, name in enumerate(_NAMES, 1)}
    chart = Chart("Time to the match", "master rows of the source", "ms", lines, log_x=True, log_y=True)
    table = grid("Mean ms to the match, exponent 1", ("master rows", *_NAMES), rows)
    note = f"{pace:,.0f} rows a second arrive, half of what INLJ keeps up with here. {runner.note}"
    return judged(checks, note, [chart], [table])


def _waiting(bench: BenchContext, runner: ClockRunner) -> Findings:
    capacity = _capacity(runner)
    rows = [
        (share * capacity, *(1e3 * mean_wait(runner, name, share * capacity) for name in _NAMES)) for share in _SHARES
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
    lines = {name: [(row[0], row[at]) for row in rows] for at, name in enumerate(_NAMES, 1)}
    chart = Chart("Waiting, exponent 1", "rows a second that arrive", "ms", lines, log_x=True, log_y=True)
    table = grid("Mean ms that rows stay", ("rows a second", *_NAMES), rows)
    note = f"Streams of {_SECONDS:g} s, the second half counted; INLJ's backlog grows for as long. {runner.note}"
    return judged(checks, note, [chart], [table])


EXPERIMENTS = (
    *on_stores(
        "processing-time",
        ("figure 5.7 (a)", "Naeem 2011 figure 7 (a)"),
        "A row is processed in far less time by HYBRIDJOIN than by MESHJOIN, for every size of the master data; INLJ's "
        "time is constant.",
        _processing,
    ),
    *on_stores(
        "waiting-time",
        ("figure 5.7 (b)", "Naeem 2011 figure 7 (b)"),
        "Rows wait longer in MESHJOIN than in HYBRIDJOIN; in HYBRIDJOIN longer than in INLJ as long as INLJ keeps up, "
        "beyond which its backlog grows.",
        _waiting,
    ),
)
