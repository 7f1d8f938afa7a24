"""Comparisons predicted against comparisons counted: tables 4.4, 4.5 (one class) and 4.8, 4.9 (two classes)."""

from __future__ import annotations

from functools import partial

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import pairs, statistics, steady
from bench.experiments.interval.judge import Checks, off, percent
from bench.experiments.interval.runs import JOINS, MODELS, run
from dovetail.joins.interval.cost import FrameMemory, MixedCost, Variant

Setting = tuple[int, int]
SIMPLE: dict[Setting, tuple[float, ...]] = {
    (10, 1): (0.01, 0.001, 1.81, 0.00, 0.00),
    (10, 5): (0.01, 1.12, 2.33, 1.11, 0.01),
    (10, 10): (0.01, 0.57, 2.78, 0.53, 0.01),
    (10, 50): (0.01, 0.35, 7.57, 0.11, 0.01),
    (10, 100): (0.01, 0.55, 11.79, 0.06, 0.01),
    (1, 10): (0.01, 5.04, 1.90, 5.01, 0.01),
    (5, 10): (0.01, 1.09, 0.72, 1.05, 0.01),
    (50, 10): (0.01, 0.15, 3.31, 0.11, 0.01),
    (100, 10): (0.01, 0.10, 0.47, 0.06, 0.01),
}
"""Printed errors in percent, in the order of `JOINS`."""
COMPLEX: dict[Setting, tuple[float, ...]] = {
    (10, 1): (2.33, 3.53, 3.48, 1.20, 3.52),
    (10, 5): (1.11, 1.48, 2.46, 1.47, 1.47),
    (10, 10): (0.67, 3.33, 2.09, 1.26, 0.85),
    (10, 50): (0.11, 0.53, 5.20, 0.28, 0.20),
    (10, 100): (0.05, 0.09, 9.37, 0.14, 0.11),
    (1, 10): (3.68, 3.06, 1.42, 3.04, 3.04),
    (5, 10): (0.01, 5.59, 3.41, 2.10, 1.42),
    (50, 10): (3.40, 0.76, 1.44, 0.29, 0.21),
    (100, 10): (4.04, 0.36, 3.34, 0.14, 0.11),
}
FIRST_CLASS = (5, 5)
AMPLE = FrameMemory(2**30)


def _classes(setting: Setting, mixed: bool) -> tuple[Setting, ...]:
    return (FIRST_CLASS, setting) if mixed else (setting,)


def _errors(setting: Setting, mixed: bool, time_range: int) -> tuple[dict[str, tuple[float, ...]], int]:
    """For each join the errors of the corrected, the printed and (OIP) our refined model; and the pairs."""
    classes = _classes(setting, mixed)
    side, known = steady(time_range, *classes), statistics(time_range, *classes)
    expected, found = pairs(side, side), {}
    for name, model in MODELS.items():
        oip = name == "OIP"
        corrected = MixedCost(model, known, known, AMPLE)
        slots = {"slots": corrected.slots, "time_range": (0, time_range)} if oip else {}
        compared = run(name, side, side, expected, **slots).compared  # type: ignore[arg-type]  # OIP's own options
        variants: list[tuple[Variant, bool]] = [("corrected", False), ("printed", False), ("corrected", True)]
        costs = [MixedCost(model, known, known, AMPLE, v, corrected.slots, refined) for v, refined in variants]
        found[name] = tuple(off(compared, cost.cpu()) for cost in costs)
    return found, expected


def _cpu(mixed: bool, bench: BenchContext) -> Findings:
    printed = COMPLEX if mixed else SIMPLE
    time_range = 10_000 if bench.scale == "full" else 1_000 if mixed else 2_000
    rows: list[list[Cell]] = []
    checked, every = 0, {}
    for setting, theirs in printed.items():
        errors, n = _errors(setting, mixed, time_range)
        checked += n * len(JOINS)
        every[setting] = errors
        cells: list[str] = []
        for name, theirs_one in zip(JOINS, theirs, strict=True):
            cells += [f"{theirs_one:g} %", percent(errors[name][0], 3), percent(errors[name][1], 3)]
        rows.append([*setting, *cells, percent(errors["OIP"][2], 3)])
    heads = ["lambda", "d"] + [f"{name}, {what}" for name in JOINS for what in ("printed", "ours", "as printed")]
    grid = Grid(
        f"Error of the predicted comparisons, range {time_range:,}; ours: equations with their slips removed",
        [*heads, "OIP, refined"],
        rows,
    )
    checks = _judged(printed, every, mixed, time_range)
    chart = Chart(
        "Error of the predicted comparisons, lambda 10",
        "duration",
        "error, %",
        {n: [(d, 100 * e[n][0]) for (rate, d), e in sorted(every.items()) if rate == 10] for n in JOINS},
        log_x=True,
    )
    note = "OIP has as many slots as its formula gives, which need not divide the range; the source's is unknown."
    return checks.findings([chart], [grid], checked, note)


def _judged(
    printed: dict[Setting, tuple[float, ...]],
    every: dict[Setting, dict[str, tuple[float, ...]]],
    mixed: bool,
    time_range: int,
) -> Checks:
    checks = Checks()
    for place, name in enumerate(JOINS):
        worst_printed = max(theirs[place] for theirs in printed.values()) / 100
        worst = max(errors[name][0] for errors in every.values())
        edge = 1 / time_range if name == "DIP" else 0.0
        limit = max(worst_printed, edge)
        text = f"{name} at most {percent(worst, 3)} off (printed up to {percent(worst_printed)}"
        checks.add(worst <= limit, text + (f", edge term {percent(edge, 3)})" if edge > worst_printed else ")"))
    if not mixed:
        limit = max(e[n][0] for e in every.values() for n in ("DIP", "FS", "SM", "TS"))
        checks.add(limit < 0.01, f"all but OIP below 1 % everywhere ({percent(limit, 3)})")
    refined = max(errors["OIP"][2] for errors in every.values())
    checks.add(refined < 0.01, f"OIP with rows past the end in slots of their own at most {percent(refined, 3)} off")
    return checks


EXPERIMENTS = (
    Experiment(
        name="interval-cpu-error",
        family="interval",
        source="Carman 2020",
        places=("table 4.4", "table 4.5"),
        claim="The comparisons of each of the five joins follow from rate and duration: within about 5 %, "
        "OIP within 12 %.",
        run=partial(_cpu, False),
        measures=("engine", "joins/interval", "bench/experiments/interval"),
    ),
    Experiment(
        name="interval-cpu-error-mixed",
        family="interval",
        source="Carman 2020",
        places=("table 4.8", "table 4.9"),
        claim="For a union of two classes of intervals the comparisons are the sums over pairs of classes: within 6 %, "
        "OIP within 10 %.",
        run=partial(_cpu, True),
        measures=("engine", "joins/interval", "bench/experiments/interval"),
    ),
)
