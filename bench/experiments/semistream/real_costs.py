"""Costs calculated by the models from this machine's unit costs, against the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Chart, Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import MILLION
from bench.experiments.semistream.judging import grid, judged
from bench.experiments.semistream.media import ClockRunner, on_stores
from bench.experiments.semistream.real_model import calculated, units_of
from bench.experiments.semistream.real_rates import CACHE, HYBRID, INLJ, JOINS, MESH, OPTIMISED, R_MESH, X
from bench.experiments.semistream.timing import Timed
from dovetail.joins.semistream.cost import Prediction

_NAMES = (INLJ, MESH, R_MESH, HYBRID, X, OPTIMISED, CACHE)
_MEMORY = (50, 150, 250)
_CLOSE = 0.25
_PLACES = (
    "figure 3.8",
    "figure 4.8 (a)",
    "figure 5.8",
    "figure 6.9",
    "figure 7.5",
    "figure 8.4",
    "Naeem 2011 figure 8",
)


def _costs(bench: BenchContext, runner: ClockRunner) -> Findings:
    rows, pages = [], runner.pages(2 * MILLION // runner.divide)
    costs = units_of(pages)
    for name in _NAMES:
        for memory in _MEMORY if name != INLJ else _MEMORY[:1]:
            of = replace(JOINS[name], divide=runner.divide, memory_mb=memory)
            rows.append((name, memory, runner.count(of), calculated(of, pages, costs)))
    return _judged(runner, rows)


def _judged(runner: ClockRunner, rows: Sequence[tuple[str, float, Timed, Prediction]]) -> Findings:
    table, checks = [], []
    for name, memory, found, model in rows:
        us, by_model = 1e6 / found.per_second, 1e6 / model.mu
        w = 1 / model.loads_per_tuple
        table.append((name, memory, us, by_model, by_model / us - 1, found.rows_per_load, w))
    for name in _NAMES:
        off = [row[4] for row in table if row[0] == name]
        says = f"{name}: {min(off):+.0%} to {max(off):+.0%}" if len(off) > 1 else f"{name}: {off[0]:+.0%}"
        checks.append(Part(says, max(map(abs, off)) <= _CLOSE))
    loads = max(abs(row[6] / row[5] - 1) for row in table)
    note = (
        f"Calculated microseconds a row against the clock; {_CLOSE:.0%} was allowed. Rows per load are predicted "
        f"within {loads:.0%}; the rest is unit costs. {runner.note}"
    )
    lines = {name: [(r[2], r[3]) for r in table if r[0] == name] for name in _NAMES}
    chart = Chart("A stream row", "measured, us", "calculated, us", lines, log_x=True, log_y=True)
    heads = ("join", "memory, MB", "us a row, measured", "calculated", "off by", "rows per load", "calculated")
    return judged(checks, note, [chart], [grid("Exponent 1", heads, table)])


_CLAIM = "Calculated costs are close to measured ones, for every join."
EXPERIMENTS = on_stores("cost", _PLACES, _CLAIM, _costs)
