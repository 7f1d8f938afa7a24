"""Predictions of the cost models against counts: tables 4.2 to 4.11, figures 4.12 and 4.13."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid, off, percent
from bench.experiments.interval.printed import MixedEquations, PrintedMixedCost, join_estimate, join_estimate_at
from bench.experiments.interval.runs import JOINS, Ran, Side, pairs, run, statistics, steady
from bench.judge import Figures
from dovetail.joins.interval.cost import (
    CostModel,
    DisjointPartitionCost,
    ForwardScanCost,
    FrameMemory,
    IntervalStatistics,
    MixedCost,
    SortMergeCost,
    TimeSweepCost,
)
from dovetail.joins.interval.operators import Frames

RANGES = (1_000, 10_000)


def _size_errors(rate: int, duration: int, time_range: int) -> tuple[int, float, float]:
    """Pairs that the sweep returns, and the errors of (4.1) and of (4.3), as shares of the estimate."""
    side, known = steady(time_range, (rate, duration)), statistics(time_range, (rate, duration))
    found = run("TS", side, side, pairs(side, side)).pairs
    whole, single = join_estimate(known, known), join_estimate_at("single", known, known)
    return found, abs(found - whole) / whole, abs(found - single) / single


def join_size(bench: BenchContext, printed: Sequence[tuple[int, int, float]], by_duration: int) -> Figures:
    """Tables 4.2 and 4.3: errors of the estimates over both ranges; the first settings vary the duration."""
    rows, checked = [], 0
    for rate, duration, due in printed:
        near, far = (_size_errors(rate, duration, time_range) for time_range in RANGES)
        checked += near[0] + far[0]
        rows.append((rate, duration, due, far[1], near[1], far[2], near[2]))
    lines: dict[str, list[tuple[float, float]]] = {"(4.1), range 1,000": [], "(4.1), range 10,000": [], "printed": []}
    for _, duration, due, far_one, near_one, *_ in rows[:by_duration]:
        for name, value in zip(lines, (100 * near_one, 100 * far_one, due), strict=True):
            lines[name].append((duration, round(value, 4)))
    chart = Chart("Error of the join size, lambda 10", "duration", "error, %", lines, log_x=True)
    found = Figures.of(rows, "rate duration printed far near far_single near_single")
    return replace(found, shown=[chart], rows=checked)


Setting = tuple[int, int]
Printed = Sequence[tuple[int, int, Sequence[float]]]
"""Rate, duration and the printed errors in percent, in the order of `JOINS`."""
FIRST_CLASS = (5, 5)
AMPLE = FrameMemory(2**30)


def _classes(setting: Setting, mixed: bool) -> tuple[Setting, ...]:
    return (FIRST_CLASS, setting) if mixed else (setting,)


def _cpu_errors(setting: Setting, mixed: bool, time_range: int) -> tuple[dict[str, tuple[float, ...]], int]:
    """For each join the errors of the corrected equations, the printed ones and (OIP) our model; and the pairs."""
    classes = _classes(setting, mixed)
    side, known = steady(time_range, *classes), statistics(time_range, *classes)
    expected, found = pairs(side, side), {}
    for name, model in JOINS.items():
        oip = name == "OIP"
        chosen = MixedCost(model, known, known, AMPLE).slots
        slots = {"slots": chosen, "time_range": (0, time_range)} if oip else {}
        compared = run(name, side, side, expected, **slots).compared  # type: ignore[arg-type]  # OIP's own options
        costs = [kind(model, known, known, AMPLE, chosen) for kind in (MixedEquations, PrintedMixedCost, MixedCost)]
        found[name] = tuple(off(compared, cost.cpu()) for cost in costs)
    return found, expected


def cpu(bench: BenchContext, mixed: bool, printed: Printed) -> Figures:
    """Tables 4.4 and 4.5; of a union of two classes 4.8 and 4.9."""
    time_range = 10_000 if bench.scale == "full" else 1_000 if mixed else 2_000
    every, rows, checked = dict[Setting, dict[str, tuple[float, ...]]](), list[list[Cell]](), 0
    for rate, d, theirs in printed:
        every[rate, d], n = _cpu_errors((rate, d), mixed, time_range)
        checked += n * len(JOINS)
        cells: list[Cell] = [rate, d]
        for name, theirs_one in zip(JOINS, theirs, strict=True):
            cells += [f"{theirs_one:g} %", *(percent(error, 3) for error in every[rate, d][name][:2])]
        rows.append([*cells, percent(every[rate, d]["OIP"][2], 3)])
    heads = [f"{name}, {what}" for name in JOINS for what in ("printed", "ours", "as printed")]
    title = f"Error of the predicted comparisons, range {time_range:,}; ours: equations with their slips removed"
    grid = Grid(title, ["lambda", "d", *heads, "OIP, refined"], rows)
    lines = {n: [(d, 100 * e[n][0]) for (rate, d), e in sorted(every.items()) if rate == 10] for n in JOINS}
    chart = Chart("Error of the predicted comparisons, lambda 10", "duration", "error, %", lines, log_x=True)
    named = {
        "worst": {name: max(errors[name][0] for errors in every.values()) for name in JOINS},
        "most": {name: max(row[2][place] for row in printed) / 100 for place, name in enumerate(JOINS)},
        "refined": max(errors["OIP"][2] for errors in every.values()),
        "edge": {name: 1 / time_range if name == "DIP" else 0.0 for name in JOINS},
    }
    return Figures(named, [chart, grid], checked)


IO_MEMORY = FrameMemory(8_192, 256)


def io_range(name: str, rate: int, mixed: bool, scale: str) -> int:
    """Instants: the source's 10,000; fewer where frames grow with their square (DIP) or blocks are tiny (OIP)."""
    full = scale == "full"
    if name == "DIP":
        return (1_000 if rate <= 10 else 400) * 2 if full else (500 if rate <= 10 else 250)
    if name == "OIP":
        return (100_000 if full else 8_000) // rate
    return 10_000 if full else 1_500 if mixed else 3_000


def _io_run(name: str, classes: tuple[Setting, ...], time_range: int) -> tuple[Ran, float, float]:
    """The run, and the frames by the equations and by our model (OIP by blocks, DIP with overflow)."""
    side = steady(time_range, *classes, tuple_bytes=2_296, filled=False)
    known = statistics(time_range, *classes, tuple_bytes=2_296)
    model = MixedEquations(JOINS[name], known, known, IO_MEMORY)
    options: dict[str, Any] = {}
    if name == "OIP":  # it reads blocks of a size that follows from its bytes, here some frames
        options = {"slots": model.slots, "time_range": (0, time_range), "budget": "1MB"}
    ran = run(name, side, side, pairs(side, side), frames=Frames(256, 8_192, 2_296), **options)
    ours = MixedCost(JOINS[name], known, known, IO_MEMORY, model.slots).io()
    if name == "DIP":
        ours += overflow_frames(DisjointPartitionCost(known, known, IO_MEMORY))
    return ran, model.io(), ours


def overflow_frames(cost: DisjointPartitionCost) -> float:
    """Frames that DIP writes and reads again because a pass opens at most F_M - 1 partitions; not in its equations."""
    return 2 * sum(_overflow(cost, x, frames) for x, frames in ((cost.r, cost.f_r), (cost.s, cost.f_s)))


def _overflow(cost: DisjointPartitionCost, x: IntervalStatistics, frames: int) -> float:
    passes = cost.n_partitions(x) / (cost.memory.frames - 1)
    return frames * sum(1 - p / passes for p in range(1, math.ceil(passes)))


def _counted(name: str, ran: Ran) -> tuple[float, float]:
    """Frames that the equations are about, and those that our model is about.

    OIP's equations are about its outer input alone. DIP's leave out its overflow files, written and read.
    """
    if name == "OIP":
        outer = ran.metrics.value("frames_written", "left") + ran.metrics.value("frames_read", "left")
        return outer, outer
    return ran.frames, ran.frames + 2 * ran.metrics.value("overflow_rows") / 3


def io(bench: BenchContext, mixed: bool, printed: Printed) -> Figures:
    """Tables 4.6 and 4.7; of a union of two classes 4.10 and 4.11."""
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in JOINS}
    rows, ranged, spills = list[list[Cell]](), list[Ran](), list[int]()
    for rate, d, theirs in printed:
        for name, theirs_one in zip(JOINS, theirs, strict=True):
            time_range = io_range(name, rate, mixed, bench.scale)
            ran, equations, ours = _io_run(name, _classes((rate, d), mixed), time_range)
            ranged.append(ran)
            plain, whole = _counted(name, ran)
            errors[name].append((off(plain, equations), off(whole, ours)))
            spills += [ran.spills] * (name == "SM")
            figures: list[Cell] = [round(equations), round(ours), plain, round(whole), f"{theirs_one:g} %"]
            rows.append([rate, d, name, time_range, ran.spills, *figures, *(percent(e) for e in errors[name][-1])])
    heads = ["lambda", "d", "join", "range", "spills", "equations", "our model", "counted", "with overflow"]
    title = "Frames written and read, 256 frames of three tuples" + (", with a class of rate 5, duration 5" * mixed)
    grid = Grid(title, [*heads, "printed error", "error of equations", "error of our model"], rows)
    labels = [f"{rate} x {d}" for rate, d, _ in printed]
    lines = {n: [(x, 100 * e[0]) for x, e in zip(labels, errors[n], strict=True)] for n in JOINS}
    chart = Chart("Error of the predicted frames, the source's equations", "rate x duration", "error, %", lines, "bar")
    named = {
        "equations": {name: max(e for e, _ in some) for name, some in errors.items()},
        "ours": {name: max(e for _, e in some) for name, some in errors.items()},
        "most": {name: max(row[2][place] for row in printed) / 100 for place, name in enumerate(JOINS)},
        "all_spill": all(ran.moved for ran in ranged),
        "spills": spills,
        "instants": io_range("SM", 10, mixed, bench.scale),
    }
    return Figures(named, [chart, grid], sum(ran.pairs for ran in ranged))


RATE_R = 10
GRIDS = {
    "small": ((5, 10, 20, 30, 40, 60, 80), (5, 10, 20, 30, 40, 60, 80)),
    "full": (tuple(range(5, 101, 5)), tuple(range(5, 101, 5))),
}
NEAR_BORDER = 0.02
"""How near to the border, as a share of memory, a prediction may fail: the tests count fractions of frames."""


def _models(rate: int, d: int, d_r: int) -> dict[str, CostModel]:
    r, s = (statistics(_region_range(d), x, tuple_bytes=2_296) for x in ((RATE_R, d_r), (rate, d)))
    return {
        "SM": SortMergeCost(r, s, IO_MEMORY),
        "SM swapped": SortMergeCost(s, r, IO_MEMORY),
        "TS": TimeSweepCost(r, s, IO_MEMORY),
        "FS": ForwardScanCost(r, s, IO_MEMORY),
    }


def _region_range(d: int) -> int:
    """Long enough for the active tuples to reach their number and stay there."""
    return 4 * d + 100


def _observed(name: str, left: Side, right: Side, expected: int) -> bool:
    reserved = 4 if name.startswith("SM") else 5
    frames = Frames(256, 8_192, 2_296, reserved)
    return run(name.split()[0], left, right, expected, frames=frames, swapped=name.endswith("swapped")).spills > 0


def regions(bench: BenchContext, d_r: int) -> Figures:
    """Figures 4.12 and 4.13."""
    rates, durations = GRIDS[bench.scale]
    agree = far = tested = checked = 0
    wrong, seen = list[list[Cell]](), dict[tuple[int, int], dict[str, bool]]()
    for d, rate in product(durations, rates):
        left, right = steady(_region_range(d), (RATE_R, d_r)), steady(_region_range(d), (rate, d))
        expected, seen[rate, d] = pairs(left, right), {}
        for name, model in _models(rate, d, d_r).items():
            spilled = seen[rate, d][name] = _observed(name, left, right, expected)
            checked, tested = checked + expected, tested + 1
            needed, available = model.needed_frames(), model.available_frames()
            if spilled == model.spills():
                agree += 1
            else:
                far += abs(needed / available - 1) > NEAR_BORDER
                wrong.append([name, rate, d, needed, available, spilled])
    heads = ("join", "lambda_S", "d_S", "frames needed", "available", "spilled")
    points = [(rate, d, sum(spilled.values())) for (rate, d), spilled in seen.items()]
    title = f"How many of SM, SM swapped, TS, FS spill (observed); R has rate 10, duration {d_r}"
    chart = Chart(title, "rate of S", "duration of S", {"spilling": points}, "heat")
    grid = Grid("Predictions that fail", heads, wrong)
    named = {"agree": agree, "tested": tested, "far": far, "near": NEAR_BORDER, "seen": seen}
    return Figures(named, [chart, grid], checked)
