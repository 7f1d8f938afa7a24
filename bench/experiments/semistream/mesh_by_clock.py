"""Chapters 3 to 5 by the clock: disk buffers, and what memory and iterations cost here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bench.experiment import Cell, Chart, Grid
from bench.experiments.semistream.media import ClockRunner, built, check, law_keys, measured_reads, push
from bench.experiments.semistream.points import HYBRID, JOINS, MB, MESH, MILLION, R_MESH, Point, at
from bench.judge import Figures
from bench.simulation import STREAM, Meter
from dovetail.engine.memory import MemoryBudget

_ROWS = 3_500_000


def buffers(runner: ClockRunner, axis: str, values: Sequence[float], sizes: Sequence[int]) -> Figures:
    """Rates of MESHJOIN and R-MESHJOIN over disk buffers of `sizes` rows, at every memory or number of master rows.

    R-MESHJOIN has four parts; by master rows, as many as give the same number in all. Buffers are not divided.
    """
    kb, found = [rows * 120 / 1e3 for rows in sizes], dict[str, list[list[float]]]({MESH: [], R_MESH: []})
    for value in values:
        setting = {"rows": _ROWS, "memory_mb": value} if axis == "memory_mb" else {"rows": value, "memory_mb": 100}
        parts = 4 if axis == "memory_mb" else round(8 * MILLION / value)
        for name, algorithm in ((MESH, "meshjoin"), (R_MESH, "r_meshjoin")):
            plain = Point(divide=runner.divide, algorithm=algorithm, exponent=0.0, parts=parts)
            some = [at(plain, segment=rows, **setting) for rows in sizes]
            found[name].append([runner.rate(of) for of in some])
    named: dict[str, Any] = {"kb": kb, "values": list(values), "note": runner.note}
    for short, name in (("mesh", MESH), ("r_mesh", R_MESH)):
        top = [max(rates) for rates in found[name]]
        best = [kb[rates.index(most)] for rates, most in zip(found[name], top, strict=True)]
        named |= {short: np.array(found[name]), f"best_{short}": best, f"top_{short}": np.array(top)}
    columns = {f"{n}, {size:.0f} kB": [rates[i] for rates in found[n]] for n in found for i, size in enumerate(kb)}
    return Figures(named | {"columns": columns, "grows": _grows, "shown": _listed})


def knee(runner: ClockRunner, sizes: Sequence[int]) -> Figures:
    """The same at 80 MB, and nanoseconds of reading a master row."""
    found = buffers(runner, "memory_mb", [80], sizes).named
    reads = measured_reads(runner.pages(_ROWS // runner.divide))
    per_row = [1e9 * reads.seconds(rows * 120, sequential=True) / rows for rows in sizes]
    return Figures({**found, "mesh": found["mesh"][0], "r_mesh": found["r_mesh"][0], "per_row": per_row})


def _grows(values: Sequence[float]) -> bool:
    return list(values) == sorted(values) and values[-1] > values[0]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)


_NAMES = (MESH, R_MESH, HYBRID)
_DISK_BUFFERS = ("disk buffer", "disk buffer keys")


@dataclass(frozen=True, slots=True)
class _Iteration:
    """Bytes by component at the peak, rows that could wait, and what one load and all that follows it took."""

    memory: dict[str, int]
    waiting: int
    rows: float
    seconds: float
    reading: float

    @property
    def buffer_share(self) -> float:
        """The share of the disk buffer in all memory."""
        return sum(self.memory.get(name, 0) for name in _DISK_BUFFERS) / sum(self.memory.values())


def _iteration(runner: ClockRunner, name: str) -> _Iteration:
    """The join with as many waiting rows as fit in the memory in our bytes."""
    point = replace(JOINS[name], divide=max(1, runner.divide // 4))
    pages = runner.pages(point.master_rows)
    join, budget = built(point, pages), MemoryBudget(int(point.memory_mb * MB) // point.divide, "bench")
    join = replace(join, sizes=replace(join.sizes, waiting=None))
    keys = law_keys(point.master_rows, point.exponent, scattered=False, seed=5)
    rounds, answers = 2 if point.mesh else 4, list[pa.RecordBatch]()
    with join.open(budget, {"stream": STREAM}) as operator:
        queue = operator.sizes.waiting or 1
        asked = [push(operator, keys, rounds * queue, answers)]
        meter, started = Meter(operator), time.perf_counter()
        asked.append(push(operator, keys, rounds * queue, answers))
        seconds, did, reading = time.perf_counter() - started, max(1, meter.did()["loads"]), meter.reading_s()
        answers += operator.finish()
        check(np.concatenate(asked), answers)
        runner.checked += sum(map(len, asked))
        return _Iteration(budget.at_peak(), queue, rounds * queue / did, seconds / did, reading / did)


def iteration(runner: ClockRunner) -> Figures:
    """Tables 3.2, 4.2, 4.3, 5.1 and 5.2: memory and time of an iteration."""
    found = {name: _iteration(runner, name) for name in _NAMES}
    rows = [(name, of.rows, 1e6 * of.seconds, 1e6 * of.reading, of.reading / of.seconds, of.rows / of.seconds)
            for name, of in found.items()]  # fmt: skip
    bars = {"reading": [(name, 1e6 * of.reading) for name, of in found.items()],
            "everything else": [(name, 1e6 * (of.seconds - of.reading)) for name, of in found.items()]}  # fmt: skip
    more = {
        "each": [sum(of.memory.values()) / of.waiting for of in found.values()],
        "buffers": [of.buffer_share for of in found.values()],
        "divide": max(1, runner.divide // 4),
        "note": runner.note,
    }
    heads = ("join", "rows", "us", "us of reading", "share", "rows a second")
    chart = Chart("An iteration", "join", "us", bars, kind="bar")
    shown: list[Chart | Grid] = [chart, Grid("An iteration", heads, rows), _memory_grid(found)]
    return replace(Figures.of(rows, "join rows us reading share rate", **more), shown=shown)


def _memory_grid(found: dict[str, _Iteration]) -> Grid:
    names: Sequence[str] = sorted({name for of in found.values() for name in of.memory})
    rows: list[list[Cell]] = [[name, *(of.memory.get(name, 0) / MB for of in found.values())] for name in names]
    rows.append(["in all", *(sum(of.memory.values()) / MB for of in found.values())])
    rows.append(["rows that can wait", *(of.waiting for of in found.values())])
    return Grid("Memory at its peak, MB", ("component", *found), rows)
