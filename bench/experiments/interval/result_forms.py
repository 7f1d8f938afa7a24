"""What the form of the result costs: figure 3.18."""

from __future__ import annotations

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import pairs, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import JOINS, Form, best, warm

FORMS: dict[str, tuple[Form, int]] = {
    "count only": ("count", 0),
    "empty": ("empty", 0),
    "top 10": ("top", 10),
    "top 100": ("top", 100),
    "top 10,000": ("top", 10_000),
    "whole rows": ("rows", 0),
}


def _forms(bench: BenchContext) -> Findings:
    side = steady(1_000 if bench.scale == "small" else 10_000, (10, 100))
    expected = pairs(side, side)
    warm()
    seconds = {
        name: {
            form: best(3, name, side, side, expected, form=kind, k=max(1, k)).seconds
            for form, (kind, k) in FORMS.items()
        }
        for name in JOINS
    }
    checks = Checks()
    fastest = sum(min(times, key=lambda form: times[form]) == "count only" for times in seconds.values())
    checks.add(fastest == len(JOINS), f"counting alone is the quickest form for {fastest} of {len(JOINS)} joins")
    dearer = sum(t[f"top {k}"] > t["empty"] for t in seconds.values() for k in ("10", "100", "10,000"))
    checks.add(dearer == 3 * len(JOINS), f"top-k costs more than an empty result in {dearer} of {3 * len(JOINS)} cases")
    alike = max(abs(t["top 100"] / t["top 10"] - 1) for t in seconds.values())
    checks.add(alike <= 0.25, f"top 10 and top 100 cost alike (at most {alike:.0%} apart)")
    rows: list[list[Cell]] = [[name, *(round(1000 * s, 1) for s in times.values())] for name, times in seconds.items()]
    grid = Grid(f"Milliseconds for {expected:,} pairs of {side.name}", ["join", *FORMS], rows)
    lines = {name: [(form, s) for form, s in times.items()] for name, times in seconds.items()}
    chart = Chart("Time by form of the result", "", "seconds", lines, "bar", log_y=True)
    return checks.findings([chart], [grid], expected * len(JOINS) * len(FORMS) * 3)


EXPERIMENTS = (
    Experiment(
        name="interval-result-forms",
        family="interval",
        source="Carman 2020",
        places=("figure 3.18",),
        claim="Counting pairs is cheapest; keeping the k longest overlaps costs more than an empty result, and small k "
        "cost alike.",
        run=_forms,
        measures=("engine", "joins/interval", "bench/experiments/interval"),
        ground="measured",
    ),
)
