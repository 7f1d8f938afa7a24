"""Measured on one core: forms of the result (figure 3.18), tuple widths (3.31), times over the best (5.1 to 5.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid, Part, by_column, judged, listed
from bench.experiments.interval import runs as data
from bench.experiments.interval.runs import JOINS, PADDING, Form, Ran, Side, best, pairs, run, steady, warm
from dovetail.joins.interval.operators import Frames

FORMS: dict[str, tuple[Form, int]] = {
    "count only": ("count", 1),
    "empty": ("empty", 1),
    "top 10": ("top", 10),
    "top 100": ("top", 100),
    "top 10,000": ("top", 10_000),
    "whole rows": ("rows", 1),
}
SPILLING = "spilling"
NEAR = 2.0
"""Joins that take no more than so many times the best one's time are run again."""


def forms(bench: BenchContext) -> Findings:
    """Figure 3.18."""
    side = steady(1_000 if bench.scale == "small" else 10_000, (10, 100))
    expected, n = pairs(side, side), len(JOINS)
    warm()
    seconds = {
        name: {f: best(3, name, side, side, expected, form=kind, k=k).seconds for f, (kind, k) in FORMS.items()}
        for name in JOINS
    }
    fastest = sum(min(times, key=times.__getitem__) == "count only" for times in seconds.values())
    dearer = sum(t[f"top {k}"] > t["empty"] for t in seconds.values() for k in ("10", "100", "10,000"))
    alike = max(abs(t["top 100"] / t["top 10"] - 1) for t in seconds.values())
    parts = [
        (f"counting alone is the quickest form for {fastest} of {n} joins", fastest == n),
        (f"top-k costs more than an empty result in {dearer} of {3 * n} cases", dearer == 3 * n),
        (f"top 10 and top 100 cost alike (at most {alike:.0%} apart)", alike <= 0.25),
    ]
    columns = {name: [1000 * s for s in times.values()] for name, times in seconds.items()}
    grid = by_column(f"Milliseconds for {expected:,} pairs of {side.name}", "form", FORMS, columns)
    chart = grid.chart("ms", title="Time by form of the result", x="", kind="bar", log_y=True)
    return judged(parts, "", chart, grid, rows=expected * n * len(FORMS) * 3)


def tuple_size(bench: BenchContext) -> Findings:
    """Figure 3.31."""
    time_range, checked = 1_000 if bench.scale == "small" else 10_000, 0
    warm()
    found: dict[str, dict[int, Ran]] = {name: {} for name in JOINS}
    for width in PADDING:
        side = steady(time_range, (10, 100), tuple_bytes=width)
        expected = pairs(side, side)
        for name in JOINS:
            found[name][width] = best(2, name, side, side, expected, form="top", frames=Frames(256, 8_192, width))
            checked += expected
    rises = {name: runs[2_296].seconds / runs[74].seconds for name, runs in found.items()}
    spilling = {width: sum(runs[width].moved for runs in found.values()) for width in PADDING}
    text = ", ".join(f"{n} of 5 at {width:,} bytes" for width, n in spilling.items())
    parts = [
        (f"2,296 bytes take at least 1.5 times as long as 74 ({listed(rises, '.1f')})", min(rises.values()) >= 1.5),
        (f"the joins that spill become more until all do ({text})", spilling[74] < spilling[2_296] == 5),
    ]
    rows = [
        (name, width, ran.seconds, ran.spills, ran.frames_written, ran.frames_read)
        for name, runs in found.items()
        for width, ran in runs.items()
    ]
    heads = ("join", "tuple, bytes", "seconds", "spills", "frames written", "frames read")
    grid = Grid(f"{time_range:,} instants of rate 10, duration 100, in 2 MB", heads, rows)
    lines = {name: [(width, ran.seconds) for width, ran in runs.items()] for name, runs in found.items()}
    chart = Chart("Time by tuple width in 2 MB", "bytes a tuple", "seconds", lines, log_x=True, log_y=True)
    return judged(parts, "", chart, grid, rows=checked)


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
    yield "flights", data.flights(1.0 if full else 0.25), {}
    yield "contacts", data.contacts(400_000 if full else 100_000), {}
    yield "TPC-H shipping", data.shipping(bench.scratch, 0.01 if full else 0.003), {}
    for width in (74, 296):
        side = steady(1_000, (10, 100), tuple_bytes=width)
        yield f"2 MB, {width} bytes", side, {"frames": Frames(256, 8_192, width)}
    for rate, duration in ((10, 50), (10, 100)):
        side = steady(2_000 if full else 600, (rate, duration), tuple_bytes=2_296)
        yield f"{SPILLING}, rate {rate}, duration {duration}", side, {"frames": Frames(256, 8_192, 2_296)}


def over_best(bench: BenchContext) -> Findings:
    """Figures 5.1 to 5.4."""
    warm()
    every, checked, rows = dict[str, dict[str, float]](), 0, list[list[Cell]]()
    for label, side, options in _settings(bench):
        expected = pairs(side, side)
        times, runs = _times(side, expected, {"form": "top", **options})
        quickest = min(times.values())
        every[label] = {name: s / quickest for name, s in times.items()}
        rows.append([label, quickest, *every[label].values()])
        checked += runs * expected
    wins = Counter(min(ratios, key=ratios.__getitem__) for ratios in every.values())
    numbered = {n: [(i, ratios[n]) for i, ratios in enumerate(every.values(), 1)] for n in JOINS}
    charts = [
        Chart("Time over the best, by setting", "setting", "ratio", numbered, log_y=True),
        Chart("Settings won", "", "settings", {"won": [(n, float(wins[n])) for n in JOINS]}, "bar"),
    ]
    ours: list[Cell] = [f"ours, of {len(every)}", *(wins[name] for name in JOINS)]
    tables = [
        Grid("Fastest how often", ("", *JOINS), [("printed, of 63", 0, 0, 17, 3, 43), ours]),
        Grid("Time over the best join's", ("setting", "best, s", *JOINS), rows),
    ]
    note = f"{len(every)} settings here, 63 in the source; on one core, without Spark, the 100 longest overlaps."
    return judged(_ratio_parts(every, wins), note, *charts, *tables, rows=checked)


def _times(side: Side, expected: int, options: dict[str, Any]) -> tuple[dict[str, float], int]:
    """The best time of every join, of those near the best out of three, and the number of runs."""
    times = {name: run(name, side, side, expected, **options).seconds for name in JOINS}
    near = [name for name in JOINS if times[name] <= NEAR * min(times.values())]
    for name in near:
        times[name] = min(times[name], best(2, name, side, side, expected, **options).seconds)
    return times, len(JOINS) + 2 * len(near)


def _ratio_parts(every: dict[str, dict[str, float]], wins: Counter[str]) -> list[Part]:
    n, worst = len(every), {name: max(ratios[name] for ratios in every.values()) for name in JOINS}
    slower = {name: max(ratios[name] / ratios["TS"] for ratios in every.values()) for name in ("SM", "FS")}
    spilling = [ratios for label, ratios in every.items() if label.startswith(SPILLING)]
    others = max(r for ratios in spilling for name, r in ratios.items() if name != "DIP")
    far = min(worst["DIP"], worst["OIP"])
    return [
        (f"the sweep is the fastest in {wins['TS']} of {n} settings (source 43 of 63)", wins["TS"] > n / 2),
        (f"FS wins {wins['FS']} and DIP {wins['DIP']} (source: none)", wins["FS"] + wins["DIP"] == 0),
        (f"the sweep is at most {worst['TS']:.2f} times the best (source 1.2)", worst["TS"] <= 1.2),
        (f"SM takes at most {slower['SM']:.2f} times the sweep's time (source 1.26)", slower["SM"] <= 1.26),
        (f"FS takes at most {slower['FS']:.2f} times the sweep's time (source 1.35)", slower["FS"] <= 1.35),
        (f"DIP is up to {worst['DIP']:.1f}, OIP up to {worst['OIP']:.1f} times the best", far >= 5),
        ("when all spill DIP is the slowest", all(max(r, key=r.__getitem__) == "DIP" for r in spilling)),
        (f"and the others are within 1.38 of the best ({others:.2f})", others <= 1.38),
    ]
