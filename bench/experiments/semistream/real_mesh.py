"""Chapters 3 and 4 by the clock: the disk buffers of MESHJOIN and R-MESHJOIN over stores of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid
from bench.experiments.parts import Part
from bench.experiments.semistream.axes import over, shown
from bench.experiments.semistream.counting import MILLION, Point
from bench.experiments.semistream.judging import grid, judged, ratios, wave
from bench.experiments.semistream.media import ClockRunner, on_stores
from dovetail.joins.semistream.cost.reads import measured_reads

MESH, R_MESH = "MESHJOIN", "R-MESHJOIN"
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


def _knee(bench: BenchContext, runner: ClockRunner) -> Findings:
    joins = _joins(runner, rows=_ROWS, memory_mb=80)
    found = {name: _over_buffers(runner, point, _BUFFERS) for name, point in joins.items()}
    reads = measured_reads(runner.pages(_ROWS // runner.divide))
    per_row = [1e9 * reads.seconds(rows * 120, sequential=True) / rows for rows in _BUFFERS]
    mesh, at = found[MESH], _BUFFERS.index(_DEFAULT)
    checks = [
        Part(f"from {_kb(_BUFFERS)[0]:.0f} to {_kb(_BUFFERS)[at]:.0f} kB MESHJOIN's rate grows {mesh[at] / mesh[0]:.2f}"
              " times (steep: 1.3)", mesh[at] > 1.3 * mesh[0]),
        Part(f"beyond it grows by {mesh[-1] / mesh[at] - 1:.1%} (flat: 5 %)", mesh[-1] < 1.05 * mesh[at]),
        Part(f"a master row is read in {', '.join(f'{ns:,.0f}' for ns in per_row)} ns: less in larger buffers, soon "
              "hardly any less", per_row[0] > 1.5 * per_row[at] and per_row[-1] > 0.7 * per_row[at]),
        Part(f"R-MESHJOIN's rate has one maximum inside: {', '.join(f'{rate:,.0f}' for rate in found[R_MESH])} rows/s",
              wave(found[R_MESH], 0.02)),
    ]  # fmt: skip
    chart, table = shown("80 MB, uniform keys", "disk buffer, kB", "rows a second", _kb(_BUFFERS), found, log_x=True)
    points = list(zip(_kb(_BUFFERS), per_row, strict=True))
    reading = Chart("Reading a master row", "disk buffer, kB", "ns", {"read": points}, log_x=True)
    return judged(checks, f"Buffers are as large as said, not divided. {runner.note}", [chart, reading], [table])


def _best(rates: Sequence[float], buffers: Sequence[int]) -> float:
    return _kb(buffers)[rates.index(max(rates))]


def _memory(bench: BenchContext, runner: ClockRunner) -> Findings:
    buffers, default = _BUFFERS[1:], _BUFFERS[1:].index(_DEFAULT)
    found: dict[str, _Rates] = {MESH: {}, R_MESH: {}}
    for memory in _MEMORY:
        for name, point in _joins(runner, rows=_ROWS, memory_mb=memory).items():
            found[name][memory] = _over_buffers(runner, point, buffers)
    best = {name: [_best(rates, buffers) for rates in by.values()] for name, by in found.items()}
    top = {name: [max(rates) for rates in by.values()] for name, by in found.items()}
    lost = [1 - rates[default] / max(rates) for rates in found[MESH].values()]
    gains = over(top[R_MESH], top[MESH])
    checks = [
        Part(f"MESHJOIN's best buffer grows with memory: {_listed(best[MESH])} kB", _grows(best[MESH])),
        Part(f"a default of {_kb([_DEFAULT])[0]:.0f} kB loses {_listed(100 * of for of in lost)} % (printed: below 2)",
              max(lost) < 0.02),
        Part(f"R-MESHJOIN's rate grows with its hash table: {_listed(top[R_MESH])} rows/s", _grows(top[R_MESH])),
        Part(f"R-MESHJOIN's best buffer, {_listed(best[R_MESH])} kB, is the smaller one",
              sum(best[R_MESH]) < sum(best[MESH])),
        Part(f"R-MESHJOIN is a little faster, {ratios(gains)} times, the more so with more memory",
              min(gains) > 1 and gains[-1] > gains[0]),
    ]  # fmt: skip
    lines = {name: list(zip(_MEMORY, rates, strict=True)) for name, rates in top.items()}
    chart = Chart("Rates with the best buffer of three", "memory, MB", "rows a second", lines)
    return judged(checks, runner.note, [chart], [_table("memory, MB", found, buffers)])


def _master(bench: BenchContext, runner: ClockRunner) -> Findings:
    buffers = _BUFFERS[1:]
    found: dict[str, _Rates] = {MESH: {}, R_MESH: {}}
    for millions, parts in _PARTS.items():
        joins = _joins(runner, rows=int(millions * MILLION), memory_mb=100)
        found[MESH][millions] = _over_buffers(runner, joins[MESH], buffers)
        found[R_MESH][millions] = _over_buffers(runner, replace(joins[R_MESH], parts=parts), buffers)
    best = {name: [_best(rates, buffers) for rates in by.values()] for name, by in found.items()}
    gains = over(*([max(rates) for rates in found[name].values()] for name in (R_MESH, MESH)))
    checks = [
        Part(f"the size of the master data moves MESHJOIN's best buffer: {_listed(best[MESH])} kB",
              len(set(best[MESH])) > 1),
        Part(f"but not R-MESHJOIN's: {_listed(best[R_MESH])} kB", len(set(best[R_MESH])) == 1),
        Part(f"R-MESHJOIN is faster, {ratios(gains)} times, the more so with less master data",
              min(gains) > 1 and gains[0] > gains[-1]),
    ]  # fmt: skip
    lines = {name: list(zip(_PARTS, rates, strict=True)) for name, rates in best.items()}
    chart = Chart("Best buffer of three, 100 MB", "million rows", "kB", lines, log_x=True)
    return judged(checks, runner.note, [chart], [_table("million rows", found, buffers)])


def _table(axis: str, found: dict[str, _Rates], buffers: Sequence[int]) -> Grid:
    heads = (axis, *(f"{name}, {kb:.0f} kB" for name in found for kb in _kb(buffers)))
    rows = [(value, *found[MESH][value], *found[R_MESH][value]) for value in found[MESH]]
    return grid("Rows a second", heads, rows)


def _grows(values: Sequence[float]) -> bool:
    return list(values) == sorted(values) and values[-1] > values[0]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)


EXPERIMENTS = (
    *on_stores(
        "mesh-buffer",
        ("figure 3.3", "figure 3.6", "figure 4.6", "figure 4.7"),
        "MESHJOIN's rate rises steeply with its disk buffer up to a knee and is almost flat beyond; pages cost less in "
        "larger buffers, but soon hardly any less; R-MESHJOIN has one best buffer.",
        _knee,
    ),
    *on_stores(
        "mesh-memory",
        ("figure 3.4", "figure 3.5", "figure 3.7", "figure 4.5", "figure 4.8 (b)", "figure 4.8 (c)"),
        "The best buffer grows with memory, yet a default one loses less than 2 %; R-MESHJOIN's rate grows with its "
        "hash table, its best buffer is smaller, and it is a little faster, the more so with more memory.",
        _memory,
    ),
    *on_stores(
        "mesh-master",
        ("table 4.4", "figure 4.2", "figure 4.8 (d)", "figure 4.9"),
        "The size of the master data moves MESHJOIN's best buffer, but not R-MESHJOIN's, which is a little faster, the "
        "more so with less master data.",
        _master,
    ),
)
