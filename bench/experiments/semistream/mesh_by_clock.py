"""Chapters 3 to 5 by the clock: disk buffers, and what memory and iterations cost here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bench.experiment import Cell, Chart, Findings, Grid, by_column, extent, judged, listed, over, wave
from bench.experiments.semistream.media import ClockRunner, built, check, law_keys, measured_reads, push
from bench.experiments.semistream.points import HYBRID, JOINS, MB, MESH, MILLION, R_MESH, Point
from bench.simulation import STREAM, Meter
from dovetail.engine.memory import MemoryBudget

_ROWS = 3_500_000
_BUFFERS = (128, 512, 2048, 8192)  # rows of 120 bytes: 15 kB to 0.98 MB, not divided
_DEFAULT = 2048
_MEMORY = (80, 160, 320)
_PARTS = {0.5: 16, 2: 4, 8: 1}  # by million rows, so that there are as many parts in all
_Rates = dict[float, list[float]]


def _kb(rows: Sequence[int]) -> list[float]:
    return [rows_of * 120 / 1e3 for rows_of in rows]


def _joins(runner: ClockRunner, **setting: float) -> dict[str, Point]:
    mesh = Point(divide=runner.divide, algorithm="meshjoin", exponent=0.0, **setting)  # type: ignore[arg-type]  # fields of numbers
    return {MESH: mesh, R_MESH: replace(mesh, algorithm="r_meshjoin", parts=4)}


def _over_buffers(runner: ClockRunner, point: Point, buffers: Sequence[int]) -> list[float]:
    return [runner.rate(replace(point, segment=rows)) for rows in buffers]


def knee(runner: ClockRunner) -> Findings:
    """Figures 3.3, 3.6, 4.6 and 4.7: rates and reads over the disk buffer."""
    joins = _joins(runner, rows=_ROWS, memory_mb=80)
    found = {name: _over_buffers(runner, point, _BUFFERS) for name, point in joins.items()}
    reads = measured_reads(runner.pages(_ROWS // runner.divide))
    per_row = [1e9 * reads.seconds(rows * 120, sequential=True) / rows for rows in _BUFFERS]
    mesh, at = found[MESH], _BUFFERS.index(_DEFAULT)
    checks = [
        (f"from {_kb(_BUFFERS)[0]:.0f} to {_kb(_BUFFERS)[at]:.0f} kB MESHJOIN's rate grows {mesh[at] / mesh[0]:.2f}"
              " times (steep: 1.3)", mesh[at] > 1.3 * mesh[0]),
        (f"beyond it grows by {mesh[-1] / mesh[at] - 1:.1%} (flat: 5 %)", mesh[-1] < 1.05 * mesh[at]),
        (f"a master row is read in {', '.join(f'{ns:,.0f}' for ns in per_row)} ns: less in larger buffers, soon "
              "hardly any less", per_row[0] > 1.5 * per_row[at] and per_row[-1] > 0.7 * per_row[at]),
        (f"R-MESHJOIN's rate has one maximum inside: {', '.join(f'{rate:,.0f}' for rate in found[R_MESH])} rows/s",
              wave(found[R_MESH], 0.02)),
    ]  # fmt: skip
    table = by_column("80 MB, uniform keys: rows a second", "disk buffer, kB", _kb(_BUFFERS), found)
    reading = by_column("Reading a master row", "disk buffer, kB", _kb(_BUFFERS), {"read": per_row})
    note = f"Buffers are as large as said, not divided. {runner.note}"
    return judged(checks, note, table.chart("rows a second", log_x=True), reading.chart("ns", log_x=True), table)


def _best(rates: Sequence[float], buffers: Sequence[int]) -> float:
    return _kb(buffers)[rates.index(max(rates))]


def memory(runner: ClockRunner) -> Findings:
    """Figures 3.4, 3.5, 3.7, 4.5 and 4.8: best buffers by memory."""
    buffers, default = _BUFFERS[1:], _BUFFERS[1:].index(_DEFAULT)
    found: dict[str, _Rates] = {MESH: {}, R_MESH: {}}
    for megabytes in _MEMORY:
        for name, point in _joins(runner, rows=_ROWS, memory_mb=megabytes).items():
            found[name][megabytes] = _over_buffers(runner, point, buffers)
    best = {name: [_best(rates, buffers) for rates in by.values()] for name, by in found.items()}
    top = {name: [max(rates) for rates in by.values()] for name, by in found.items()}
    lost = [1 - rates[default] / max(rates) for rates in found[MESH].values()]
    gains = over(top[R_MESH], top[MESH])
    checks = [
        (f"MESHJOIN's best buffer grows with memory: {_listed(best[MESH])} kB", _grows(best[MESH])),
        (f"a default of {_kb([_DEFAULT])[0]:.0f} kB loses {_listed(100 * of for of in lost)} % (printed: below 2)",
              max(lost) < 0.02),
        (f"R-MESHJOIN's rate grows with its hash table: {_listed(top[R_MESH])} rows/s", _grows(top[R_MESH])),
        (f"R-MESHJOIN's best buffer, {_listed(best[R_MESH])} kB, is the smaller one",
              sum(best[R_MESH]) < sum(best[MESH])),
        (f"R-MESHJOIN is a little faster, {listed(gains)} times, the more so with more memory",
              min(gains) > 1 and gains[-1] > gains[0]),
    ]  # fmt: skip
    chart = by_column("Rates with the best buffer of three", "memory, MB", _MEMORY, top).chart("rows a second")
    return judged(checks, runner.note, chart, _table("memory, MB", found, buffers))


def master(runner: ClockRunner) -> Findings:
    """Table 4.4, figures 4.2, 4.8 and 4.9: best buffers by master rows."""
    buffers = _BUFFERS[1:]
    found: dict[str, _Rates] = {MESH: {}, R_MESH: {}}
    for millions, parts in _PARTS.items():
        joins = _joins(runner, rows=int(millions * MILLION), memory_mb=100)
        found[MESH][millions] = _over_buffers(runner, joins[MESH], buffers)
        found[R_MESH][millions] = _over_buffers(runner, replace(joins[R_MESH], parts=parts), buffers)
    best = {name: [_best(rates, buffers) for rates in by.values()] for name, by in found.items()}
    gains = over(*([max(rates) for rates in found[name].values()] for name in (R_MESH, MESH)))
    checks = [
        (f"the size of the master data moves MESHJOIN's best buffer: {_listed(best[MESH])} kB",
              len(set(best[MESH])) > 1),
        (f"but not R-MESHJOIN's: {_listed(best[R_MESH])} kB", len(set(best[R_MESH])) == 1),
        (f"R-MESHJOIN is faster, {listed(gains)} times, the more so with less master data",
              min(gains) > 1 and gains[0] > gains[-1]),
    ]  # fmt: skip
    chart = by_column("Best buffer of three, 100 MB", "million rows", _PARTS, best).chart("kB", log_x=True)
    return judged(checks, runner.note, chart, _table("million rows", found, buffers))


def _table(axis: str, found: dict[str, _Rates], buffers: Sequence[int]) -> Grid:
    heads = (axis, *(f"{name}, {kb:.0f} kB" for name in found for kb in _kb(buffers)))
    rows = [(value, *found[MESH][value], *found[R_MESH][value]) for value in found[MESH]]
    return Grid("Rows a second", heads, rows)


def _grows(values: Sequence[float]) -> bool:
    return list(values) == sorted(values) and values[-1] > values[0]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)


_NAMES = (MESH, R_MESH, HYBRID)
_W = 109
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


def iteration(runner: ClockRunner) -> Findings:
    """Tables 3.2, 4.2, 4.3, 5.1 and 5.2: memory and time of an iteration."""
    found = {name: _iteration(runner, name) for name in _NAMES}
    hybrid = found[HYBRID]
    each = [sum(of.memory.values()) / of.waiting for of in found.values()]
    shares = {name: of.reading / of.seconds for name, of in found.items()}
    buffers = {name: of.buffer_share for name, of in found.items()}
    checks = [
        (f"HYBRIDJOIN finishes {hybrid.rows:,.0f} rows an iteration, printed {_W}", hybrid.rows >= _W),
        (f"HYBRIDJOIN reads for {shares[HYBRID]:.0%} of an iteration, printed 77 %", shares[HYBRID] > 0.5),
        (f"R-MESHJOIN for {shares[R_MESH]:.1%}, printed below 1 %", shares[R_MESH] < 0.02),
        (f"disk buffers take {listed(buffers.values(), '.1%')} of the memory of {', '.join(_NAMES)}; printed 2 to "
         "16, 0.3 to 0.6 and 0.1 %", buffers[HYBRID] < 0.05),
    ]  # fmt: skip
    steps = [(name, of.rows, 1e6 * of.seconds, 1e6 * of.reading, of.reading / of.seconds, of.rows / of.seconds)
             for name, of in found.items()]  # fmt: skip
    heads = ("join", "rows", "us", "us of reading", "share", "rows a second")
    bars = {"reading": [(name, 1e6 * of.reading) for name, of in found.items()],
            "everything else": [(name, 1e6 * (of.seconds - of.reading)) for name, of in found.items()]}  # fmt: skip
    chart = Chart("An iteration", "join", "us", bars, kind="bar")
    note = (
        f"50 MB and 2 million rows, both divided by {max(1, runner.divide // 4)}, over the {runner.medium.name}; bytes "
        f"are what our joins reserve, {extent(each, '.0f')} a waiting row in all, where the source's maps need 164 "
        "to 172. Every answer was checked."
    )
    return judged(checks, note, chart, Grid("An iteration", heads, steps), _memory_grid(found))


def _memory_grid(found: dict[str, _Iteration]) -> Grid:
    names: Sequence[str] = sorted({name for of in found.values() for name in of.memory})
    rows: list[list[Cell]] = [[name, *(of.memory.get(name, 0) / MB for of in found.values())] for name in names]
    rows.append(["in all", *(sum(of.memory.values()) / MB for of in found.values())])
    rows.append(["rows that can wait", *(of.waiting for of in found.values())])
    return Grid("Memory at its peak, MB", ("component", *found), rows)
