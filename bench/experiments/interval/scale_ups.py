"""Scale-up of the five joins: as much work for each task. Figures 3.29, 3.30, 3.32 to 3.34."""

from __future__ import annotations

from functools import partial

from bench.context import BenchContext
from bench.experiment import Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import pairs, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import JOINS, run
from bench.experiments.interval.speeds import (
    CORES,
    Work,
    chart,
    judge_scale_up,
    rows_checked,
    scale_up,
    table,
)
from dovetail.joins.interval.operators import Frames

NAMES = tuple(JOINS)
SHORT = Frames(256, 8_192, 2_296)
DURATIONS = (10, 20, 40, 70, 100, 120)
OPEN_PARTITIONS = 255


def _in_memory(bench: BenchContext) -> Findings:
    each = 10_000 if bench.scale == "small" else 200_000
    found = scale_up(bench, lambda n: _self_join(each * n, 10), NAMES, (1, 2, 4))
    checks = Checks()
    judge_scale_up(checks, found)
    doubled = {name: runs[4].seconds / runs[2].seconds for name, runs in found.items()}
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in doubled.items())
    checks.add(min(doubled.values()) >= 1.5 and max(doubled.values()) <= 2.5, f"beyond the cores it doubles ({shown})")
    title = f"Seconds, {each:,} instants of 10 intervals a task"
    return checks.findings([chart("Scale-up in memory", found)], [table(title, found)], rows_checked(found), CORES)


def _self_join(time_range: int, duration: int, width: int = 74, frames: Frames | None = None) -> Work:
    side = steady(time_range, (10, duration), tuple_bytes=width)
    return Work(side, side, frames=frames)


def _short_of_memory(each: int, duration: int, tasks: int) -> Work:
    return _self_join(each * tasks, duration, 2_296, SHORT)


def _spilling(bench: BenchContext) -> Findings:
    each = 600 if bench.scale == "small" else 10_000
    found = scale_up(bench, partial(_short_of_memory, each, 100), NAMES, (1, 2))
    checks = Checks()
    judge_scale_up(checks, {name: runs for name, runs in found.items() if name != "DIP"})
    worst = max(NAMES, key=lambda name: found[name][2].seconds)
    checks.add(worst == "DIP", f"the slowest is {worst}")
    dip = found["DIP"][2].seconds / found["DIP"][1].seconds
    checks.add(dip > 1.35, f"DIP does not scale ({dip:.2f} times as long on two tasks)")
    title = f"Seconds in 2 MB a task, {each:,} instants of 10 intervals of 100 instants, 2,296 bytes"
    grid = Grid(
        "What one task and two moved",
        ["join", "spills, 1 task", "frames, 1 task", "spills, 2 tasks", "frames, 2 tasks"],
        [[name, r[1].spills, r[1].frames, r[2].spills, r[2].frames] for name, r in found.items()],
    )
    charts = [chart("Scale-up when spilling", found)]
    return checks.findings(charts, [table(title, found), grid], rows_checked(found), CORES)


def _dip_counts(bench: BenchContext) -> Findings:
    time_range = 500 if bench.scale == "small" else 1_000
    rows, checked, passes = [], 0, {}
    for d in DURATIONS:
        side = steady(time_range, (10, d), tuple_bytes=2_296, filled=False)
        ran = run("DIP", side, side, pairs(side, side), frames=SHORT)
        value = ran.metrics.value
        passes[d] = value("overflow_passes", "left")
        moved = ran.frames + 2 * value("overflow_rows") // SHORT.tuples_per_frame
        rows.append([d, value("partitions", "left"), passes[d], value("inner_batches"), ran.frames_read, moved])
        checked += ran.pairs
    checks = Checks()
    files = [row[1] for row in rows]
    checks.add(files == [10 * d for d in DURATIONS], f"it makes rate times duration partitions ({files})")
    first = min((d for d in DURATIONS if passes[d]), default=0)
    checks.add(
        first == 40, f"up to duration 20 they have a frame each; from {first} on, rows overflow into further passes"
    )
    grows = all(a <= b for a, b in zip(list(passes.values())[:-1], list(passes.values())[1:], strict=True))
    checks.add(grows and passes[120] > passes[40], f"passes grow from {passes[40]} to {passes[120]}")
    heads = ["duration", "partitions", "overflow passes", "batches", "frames read", "frames in all"]
    lines = {"overflow passes": [(d, float(n)) for d, n in passes.items()]}
    charts = [Chart("Overflow passes of DIP", "duration", "passes", lines)]
    charts.append(Chart("Frames that DIP moves", "duration", "frames", {"frames": [(r[0], float(r[5])) for r in rows]}))
    grid = Grid(f"DIP over {time_range:,} instants of rate 10, 256 frames of three tuples", heads, rows)
    return checks.findings(charts, [grid], checked)


def _dip_scale(bench: BenchContext) -> Findings:
    each = 400 if bench.scale == "small" else 1_000
    found = {}
    for d in DURATIONS if bench.scale == "full" else DURATIONS[1::2]:
        found[f"d = {d}"] = scale_up(bench, partial(_short_of_memory, each, d), ("DIP",), (1, 2))["DIP"]
    longer = {name: runs[2].seconds / runs[1].seconds for name, runs in found.items()}
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in longer.items())
    checks = Checks()
    short = max(ratio for name, ratio in longer.items() if name in ("d = 10", "d = 20"))
    long = min(ratio for name, ratio in longer.items() if name not in ("d = 10", "d = 20"))
    checks.add(short <= 1.35, f"it scales up to duration 20 (two tasks take {short:.2f} times as long as one)")
    checks.add(long > short, f"and worse above ({shown})")
    title = f"Seconds in 2 MB a task, {each:,} instants a task"
    return checks.findings([chart("Scale-up of DIP", found)], [table(title, found)], rows_checked(found), CORES)


MEASURES = ("engine", "joins/interval", "spark", "bench/experiments/interval")
EXPERIMENTS = (
    Experiment(
        "interval-scale-up",
        "interval",
        "Carman 2020",
        ("figure 3.29", "figure 3.30"),
        "With as much work for each task, time stays flat up to the number of cores, for all five joins.",
        _in_memory,
        MEASURES,
        "measured",
    ),
    Experiment(
        "interval-scale-up-spilling",
        "interval",
        "Carman 2020",
        ("figure 3.32", "figure 3.33"),
        "When memory is short and all spill, all but DIP still scale up; DIP is far behind.",
        _spilling,
        MEASURES,
        "measured",
    ),
    Experiment(
        "interval-dip-durations",
        "interval",
        "Carman 2020",
        ("figure 3.34",),
        "DIP needs a file and a frame for each simultaneous interval: it is well up to duration 20, 200 files, and "
        "gets worse up to 120.",
        _dip_counts,
        ("engine", "joins/interval", "bench/experiments/interval"),
    ),
    Experiment(
        "interval-dip-scale-up",
        "interval",
        "Carman 2020",
        ("figure 3.34",),
        "DIP scales up to intervals of 20 instants; the longer they are beyond, the worse it does.",
        _dip_scale,
        MEASURES,
        "measured",
    ),
)
