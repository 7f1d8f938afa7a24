"""Counted on one core: tables 3.2 and 3.3, DIP by duration (figure 3.34), spills, three relations (6.6 to 6.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart
from bench.experiments.interval.runs import JOINS, PADDING, Side, pairs, run, steady
from bench.experiments.interval.spread import RELATIONS, SHORT, Shape, shipped, sides_of
from bench.judge import Figures
from dovetail.joins.interval.operators import Frames

FRAME_BYTES = {"2 MB": 8_192, "32 MB": 131_072}
"""Bytes of a frame for join memories of 256 frames."""


def _fills(tuples: int, frames: Frames) -> int:
    """Spills of a sort-merge whose one left interval covers `tuples` right ones, which must all be held."""
    start = np.arange(tuples)
    left = Side("one", pa.record_batch({"_start": [0], "_end": [tuples], "id": [0]}))
    right = Side("held", pa.record_batch({"_start": start, "_end": start + tuples, "id": start}))
    return run("SM", left, right, pairs(left, right), frames=frames).spills


def memory(bench: BenchContext, printed: Sequence[tuple[str, int, int]]) -> Figures:
    """Tables 3.2 and 3.3: tuples that fill the join memory, and spills with as many and with one more."""
    rows, widths = [], []
    for held, width, due in printed:
        frames = Frames(256, FRAME_BYTES[held], width)
        rows.append((held, width, due, frames.tuples, _fills(frames.tuples, frames), _fills(frames.tuples + 1, frames)))
    for width, padding in PADDING.items():
        made = steady(100, (10, 10), tuple_bytes=width).rows
        widths.append((width, padding, 2 * width, int(made.nbytes) / int(made.num_rows)))
    more = Figures.of(widths, "widths padding output arrow").named
    found = Figures.of(rows, "held width printed ours full over", **more)
    return replace(found, rows=sum(row[2] for row in rows) * 2 + len(rows))


def who_spills(bench: BenchContext, sets: Mapping[str, tuple[int, int, int, str]]) -> Figures:
    """Which joins go to disk on the sets of one node (rate, duration, tuple, memory), with the source's frames."""
    rows, spilling, checked = [], dict[str, list[str]](), 0
    for which, (rate, duration, width, memory) in sets.items():
        side = steady(1_000, (rate, duration), tuple_bytes=width, filled=False)
        frames, spilling[which] = Frames(256, FRAME_BYTES[memory], width), []
        for name in JOINS:
            ran = run(name, side, side, pairs(side, side), frames=frames)
            value = ran.metrics.value
            spilling[which] += [name] * ran.moved
            checked += ran.pairs
            partitions = value("partitions", "left") if name == "DIP" else None
            moved = (ran.spills, ran.frames_written, ran.frames_read)
            rows.append((which, name, partitions, value("overflow_passes"), *moved))
    found = Figures.of(rows, "set join partitions passes spills written read", spilling=spilling)
    return replace(found, rows=checked)


def dip_by_duration(bench: BenchContext, durations: Sequence[int]) -> Figures:
    """Figure 3.34: partitions, passes and frames of DIP."""
    time_range, rows, checked = 500 if bench.scale == "small" else 1_000, [], 0
    for d in durations:
        side = steady(time_range, (10, d), tuple_bytes=2_296, filled=False)
        ran = run("DIP", side, side, pairs(side, side), frames=SHORT)
        value = ran.metrics.value
        moved = ran.frames + 2 * value("overflow_rows") // SHORT.tuples_per_frame
        counts = (value("partitions", "left"), value("overflow_passes", "left"), value("inner_batches"))
        rows.append((d, *counts, ran.frames_read, moved))
        checked += ran.pairs
    found = Figures.of(rows, "duration files passes batches read moved", time_range=time_range)
    return replace(found, rows=checked)


def relations(bench: BenchContext, sets: Mapping[str, Shape]) -> Figures:
    """Comparisons, tuples held and pairs of the three relations on all the data sets, by sort-merge."""
    rows, held = [], {relation: list[tuple[str, float]]() for relation in RELATIONS}
    fewer_held, fewer_compared = list[bool](), list[bool]()
    for which, shape in sets.items():
        left, right = sides_of(shape, 1_000) if shape else shipped(bench)
        ran = {r: run("SM", left, right, pairs(left, right, r), relation=r) for r in RELATIONS}
        base = ran["overlapping"]
        for relation, one in ran.items():
            rows.append((which, relation, one.pairs, one.compared, one.compared - one.pairs, one.active_peak))
            held[relation].append((which, float(one.active_peak)))
        fewer_held += [ran[r].active_peak < base.active_peak for r in RELATIONS[1:]]
        fewer_compared += [ran[r].compared < base.compared for r in RELATIONS[1:]]
    single, ten = steady(1_000, (1, 20)), steady(1_000, (10, 20))
    more = {
        "fewer_held": fewer_held,
        "fewer_compared": fewer_compared,
        "strict": run("SM", single, single, 0, relation="covers", strict=True).pairs,
        "equal": run("SM", single, ten, pairs(single, ten, "covers"), relation="covers").pairs,
    }
    found = Figures.of(rows, "data relation pairs comparisons without held", **more)
    chart = Chart("Tuples held at most", "", "tuples", held, "bar", log_y=True)
    return replace(found, shown=[chart], rows=sum(row[2] for row in rows))
