"""The estimate of the number of pairs against the pairs that joins return: tables 4.2 and 4.3."""

from __future__ import annotations

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import pairs, statistics, steady
from bench.experiments.interval.judge import Checks, percent
from bench.experiments.interval.runs import run
from dovetail.joins.interval.cost import join_estimate, join_estimate_at

BY_DURATION = {(10, 1): 0.00, (10, 5): 0.02, (10, 10): 0.05, (10, 50): 0.25, (10, 100): 0.50}
BY_RATE = {(1, 10): 0.05, (5, 10): 0.05, (10, 10): 0.05, (50, 10): 0.05, (100, 10): 0.05}
RANGES = (1_000, 10_000)


def _errors(rate: int, duration: int, time_range: int) -> tuple[int, float, float]:
    """Pairs that the sweep returns, and the errors of (4.1) and of (4.3), as shares of the estimate."""
    side, known = steady(time_range, (rate, duration)), statistics(time_range, (rate, duration))
    found = run("TS", side, side, pairs(side, side)).pairs
    whole, single = join_estimate(known, known), join_estimate_at("single", known, known)
    return found, abs(found - whole) / whole, abs(found - single) / single


def _join_size(bench: BenchContext) -> Findings:
    rows: list[list[Cell]] = []
    lines: dict[str, list[tuple[float, float]]] = {"(4.1), range 1,000": [], "(4.1), range 10,000": [], "printed": []}
    checked = 0
    as_printed = exact = 0
    settings = BY_DURATION | BY_RATE
    for (rate, duration), printed in settings.items():
        near, far = (_errors(rate, duration, time_range) for time_range in RANGES)
        checked += near[0] + far[0]
        as_printed += f"{100 * far[1]:.2f}" == f"{printed:.2f}"
        exact += near[2] == far[2] == 0.0
        rows.append([rate, duration, f"{printed:.2f} %", *(percent(e) for e in (far[1], near[1], far[2], near[2]))])
        if (rate, duration) in BY_DURATION:
            for name, value in zip(lines, (100 * near[1], 100 * far[1], printed), strict=True):
                lines[name].append((duration, round(value, 4)))
    checks = Checks()
    n = len(settings)
    checks.add(as_printed == n, f"{as_printed} of {n} printed errors are those of (4.1) at range 10,000, to the digit")
    checks.add(exact == n, f"(4.3) is exact in {exact} of {n} settings at both ranges, so far below 1 %")
    heads = ["lambda", "d", "printed", "(4.1), 10,000", "(4.1), 1,000", "(4.3), 10,000", "(4.3), 1,000"]
    note = "The captions say range 1,000 and (4.3); the printed figures fit neither, see the columns."
    chart = Chart("Error of the join size, lambda 10", "duration", "error, %", lines, log_x=True)
    return checks.findings([chart], [Grid("Error of the estimated number of pairs", heads, rows)], checked, note)


EXPERIMENTS = (
    Experiment(
        name="interval-size-error",
        family="interval",
        source="Carman 2020",
        places=("table 4.2", "table 4.3"),
        claim="The number of pairs follows from arrival rate and duration to within 1 %, for every duration and rate.",
        run=_join_size,
        measures=("engine", "joins/interval", "bench/experiments/interval"),
    ),
)
