"""What wide tuples cost in a small join memory: figure 3.31."""

from __future__ import annotations

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import PADDING, pairs, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import JOINS, Ran, best, warm
from dovetail.joins.interval.operators import Frames


def _tuple_size(bench: BenchContext) -> Findings:
    time_range = 1_000 if bench.scale == "small" else 10_000
    warm()
    found: dict[str, dict[int, Ran]] = {name: {} for name in JOINS}
    checked = 0
    for width in PADDING:
        side = steady(time_range, (10, 100), tuple_bytes=width)
        expected = pairs(side, side)
        for name in JOINS:
            found[name][width] = best(2, name, side, side, expected, form="top", frames=Frames(256, 8_192, width))
            checked += expected
    rises = {name: runs[2_296].seconds / runs[74].seconds for name, runs in found.items()}
    shown = ", ".join(f"{name} {ratio:.1f}" for name, ratio in rises.items())
    checks = Checks()
    checks.add(min(rises.values()) >= 1.5, f"2,296 bytes take at least 1.5 times as long as 74 ({shown})")
    spilling = {width: sum(runs[width].moved for runs in found.values()) for width in PADDING}
    text = ", ".join(f"{n} of 5 at {width:,} bytes" for width, n in spilling.items())
    checks.add(spilling[74] < spilling[2_296] == 5, f"the joins that spill become more until all do ({text})")
    rows: list[list[Cell]] = [
        [name, width, round(ran.seconds, 4), ran.spills, ran.frames_written, ran.frames_read]
        for name, runs in found.items()
        for width, ran in runs.items()
    ]
    heads = ["join", "tuple, bytes", "seconds", "spills", "frames written", "frames read"]
    grid = Grid(f"{time_range:,} instants of rate 10, duration 100, in 2 MB", heads, rows)
    lines = {name: [(width, ran.seconds) for width, ran in runs.items()] for name, runs in found.items()}
    chart = Chart("Time by tuple width in 2 MB", "bytes a tuple", "seconds", lines, log_x=True, log_y=True)
    return checks.findings([chart], [grid], checked)


EXPERIMENTS = (
    Experiment(
        name="interval-tuple-size",
        family="interval",
        source="Carman 2020",
        places=("figure 3.31",),
        claim="In a join memory of 2 MB, time rises sharply with the width of tuples, because spilling begins.",
        run=_tuple_size,
        measures=("engine", "joins/interval", "bench/experiments/interval"),
        ground="measured",
    ),
)
