"""Measured on one core: forms of the result (figure 3.18), tuple widths (3.31), times over the best (5.1 to 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.context import BenchContext
from bench.experiments.interval import runs as data
from bench.experiments.interval.runs import JOINS, PADDING, Form, Side, best, pairs, run, steady, warm
from bench.judge import Figures
from dovetail.joins.interval.operators import Frames

FORMS: dict[str, tuple[Form, int]] = {
    "count only": ("count", 1),
    "empty": ("empty", 1),
    "top 10": ("top", 10),
    "top 100": ("top", 100),
    "top 10,000": ("top", 10_000),
    "whole rows": ("rows", 1),
}
NEAR = 2.0
"""Joins that take no more than this many times the best one's time are run again."""


def forms(bench: BenchContext) -> Figures:
    """Figure 3.18: seconds by join and form."""
    side = steady(1_000 if bench.scale == "small" else 10_000, (10, 100))
    expected = pairs(side, side)
    warm()
    seconds = {
        name: {f: best(3, name, side, side, expected, form=kind, k=k).seconds for f, (kind, k) in FORMS.items()}
        for name in JOINS
    }
    named = {"seconds": seconds, "forms": list(FORMS), "expected": expected, "data": side.name}
    return Figures(named, rows=expected * len(JOINS) * len(FORMS) * 3)


def tuple_size(bench: BenchContext) -> Figures:
    """Figure 3.31: seconds and spills by join and width, and how many joins went to disk."""
    time_range, rows, checked = 1_000 if bench.scale == "small" else 10_000, list[tuple[Any, ...]](), 0
    spilling = dict.fromkeys(PADDING, 0)
    warm()
    for width in PADDING:
        side = steady(time_range, (10, 100), tuple_bytes=width)
        expected = pairs(side, side)
        for name in JOINS:
            ran = best(2, name, side, side, expected, form="top", frames=Frames(256, 8_192, width))
            rows.append((name, width, ran.seconds, ran.spills, ran.frames_written, ran.frames_read))
            spilling[width] += ran.moved
            checked += expected
    by = {name: {row[1]: row[2] for row in rows if row[0] == name} for name in JOINS}
    more = {"by": by, "spilling": spilling, "time_range": time_range}
    return replace(Figures.of(rows, "join width seconds spills written read", **more), rows=checked)


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
        yield f"spilling, rate {rate}, duration {duration}", side, {"frames": Frames(256, 8_192, 2_296)}


def over_best(bench: BenchContext) -> Figures:
    """Figures 5.1 to 5.4: seconds over those of the best, by setting and join."""
    warm()
    every, quickest, checked = dict[str, dict[str, float]](), list[float](), 0
    for label, side, options in _settings(bench):
        expected = pairs(side, side)
        times, runs = _times(side, expected, {"form": "top", **options})
        quickest.append(min(times.values()))
        every[label] = {name: s / quickest[-1] for name, s in times.items()}
        checked += runs * expected
    return Figures({"every": every, "quickest": quickest, "joins": list(JOINS)}, rows=checked)


def _times(side: Side, expected: int, options: dict[str, Any]) -> tuple[dict[str, float], int]:
    """The best time of every join, of those near the best out of three, and the number of runs."""
    times = {name: run(name, side, side, expected, **options).seconds for name in JOINS}
    near = [name for name in JOINS if times[name] <= NEAR * min(times.values())]
    for name in near:
        times[name] = min(times[name], best(2, name, side, side, expected, **options).seconds)
    return times, len(JOINS) + 2 * len(near)
