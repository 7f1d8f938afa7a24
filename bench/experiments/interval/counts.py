"""Counted on one core: tables 3.2 and 3.3, DIP by duration (figure 3.34), who spills, three relations (6.6 to 6.10)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid, Part, judged
from bench.experiments.interval.runs import JOINS, PADDING, Side, pairs, run, steady
from bench.experiments.interval.spread import DURATIONS, RELATIONS, SHORT, TWO_INPUTS, shipped, two_inputs
from dovetail.joins.interval.operators import Frames

FRAME_BYTES = {"2 MB": 8_192, "32 MB": 131_072}
"""Bytes of a frame for join memories of 256 frames."""
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


def memory(bench: BenchContext) -> Findings:
    """Tables 3.2 and 3.3."""
    rows = []
    for (held, width), printed in PRINTED.items():
        frames = Frames(256, FRAME_BYTES[held], width)
        fits, spills = _fills(frames.tuples, frames), _fills(frames.tuples + 1, frames)
        rows.append((held, width, printed, frames.tuples, fits, spills))
    n, equal = len(rows), sum(row[2] == row[3] for row in rows)
    edge = sum(row[4] == 0 < row[5] for row in rows)
    parts = [
        (f"{equal} of the {n} printed capacities are 256 frames of whole tuples", equal == n),
        (f"in {edge} of {n} a sort-merge spills with one tuple more and not before", edge == n),
    ]
    widths = []
    for width, padding in PADDING.items():
        made = steady(100, (10, 10), tuple_bytes=width).rows
        widths.append((width, padding, 2 * width, int(made.nbytes) / int(made.num_rows)))
    heads = ("memory", "tuple, bytes", "printed", "ours", "spills when full", "spills with one more")
    ours = ("tuple, bytes", "padding", "output tuple", "our row in Arrow")
    tables = Grid("Tuples of the source and ours", ours, widths), Grid("Tuples that fill the join memory", heads, rows)
    return judged(parts, "", *tables, rows=sum(PRINTED.values()) * 2 + n)


def who_spills(bench: BenchContext) -> Findings:
    """Which joins go to disk on the sets of one node: counted with the source's frames."""
    parts, rows, checked = list[Part](), [], 0
    sets = {"duration": (10, 100, 74, "32 MB"), "cardinality": (100, 10, 74, "32 MB")}
    sets |= {f"record, {memory}": (10, 10, 2_296, memory) for memory in ("32 MB", "2 MB")}
    for which, (rate, duration, width, memory) in sets.items():
        side = steady(1_000, (rate, duration), tuple_bytes=width, filled=False)
        frames, spilling = Frames(256, FRAME_BYTES[memory], width), []
        for name in JOINS:
            ran = run(name, side, side, pairs(side, side), frames=frames)
            value = ran.metrics.value
            spilling += [name] * ran.moved
            checked += ran.pairs
            partitions = value("partitions", "left") if name == "DIP" else None
            moved = (ran.spills, ran.frames_written, ran.frames_read)
            rows.append((which, name, partitions, value("overflow_passes"), *moved))
        due = ["DIP", "OIP"] if which.startswith("record") else ["DIP"]
        says = f"{which}: {' and '.join(spilling) or 'none'} of the five spill (expected: {' and '.join(due)})"
        parts.append((says, spilling == due))
    heads = ("set", "join", "partitions", "overflow passes", "spills", "frames written", "frames read")
    note = "The source says nothing of rate 100, duration 10, where DIP has as many partitions; its equations do."
    return judged(parts, note, Grid("10,000 to 100,000 rows in 256 frames", heads, rows), rows=checked)


def dip_by_duration(bench: BenchContext) -> Findings:
    """Figure 3.34."""
    time_range, rows, checked = 500 if bench.scale == "small" else 1_000, [], 0
    for d in DURATIONS:
        side = steady(time_range, (10, d), tuple_bytes=2_296, filled=False)
        ran = run("DIP", side, side, pairs(side, side), frames=SHORT)
        value = ran.metrics.value
        moved = ran.frames + 2 * value("overflow_rows") // SHORT.tuples_per_frame
        counts = (value("partitions", "left"), value("overflow_passes", "left"), value("inner_batches"))
        rows.append((d, *counts, ran.frames_read, moved))
        checked += ran.pairs
    files, passes = [row[1] for row in rows], {row[0]: row[2] for row in rows}
    first = min((d for d in DURATIONS if passes[d]), default=0)
    grows = all(a <= b for a, b in pairwise(passes.values()))
    parts = [
        (f"it makes rate times duration partitions ({files})", files == [10 * d for d in DURATIONS]),
        (f"up to duration 20 they have a frame each; from {first} on, rows overflow into further passes", first == 40),
        (f"passes grow from {passes[40]} to {passes[120]}", grows and passes[120] > passes[40]),
    ]
    heads = ("duration", "partitions", "overflow passes", "batches", "frames read", "frames in all")
    grid = Grid(f"DIP over {time_range:,} instants of rate 10, 256 frames of three tuples", heads, rows)
    drawn = grid.chart("passes", {"overflow passes": 2}, title="Overflow passes of DIP")
    moved_frames = grid.chart("frames", {"frames": 5}, title="Frames that DIP moves")
    return judged(parts, "", drawn, moved_frames, grid, rows=checked)


def relations(bench: BenchContext) -> Findings:
    """Comparisons, tuples held and pairs of the three relations on all the data sets, by sort-merge."""
    rows, held = [], {relation: list[tuple[str, float]]() for relation in RELATIONS}
    fewer = []
    for which in (*TWO_INPUTS, "shipping"):
        left, right = shipped(bench) if which == "shipping" else two_inputs(bench, TWO_INPUTS[which], 1_000)
        ran = {r: run("SM", left, right, pairs(left, right, r), relation=r) for r in RELATIONS}
        base = ran["overlapping"]
        for relation, one in ran.items():
            rows.append((which, relation, one.pairs, one.compared, one.compared - one.pairs, one.active_peak))
            held[relation].append((which, float(one.active_peak)))
        fewer += [(ran[r].active_peak < base.active_peak, ran[r].compared < base.compared) for r in RELATIONS[1:]]
    n, fewer_held, fewer_compared = len(fewer), *(sum(column) for column in zip(*fewer, strict=True))
    single, ten = steady(1_000, (1, 20)), steady(1_000, (10, 20))
    strict = run("SM", single, single, 0, relation="covers", strict=True).pairs
    covers = run("SM", single, ten, pairs(single, ten, "covers"), relation="covers").pairs
    parts = [
        (f"covers and overlaps hold fewer tuples than overlapping in {fewer_held} of {n} cases", fewer_held == n),
        (f"and make fewer comparisons in {fewer_compared} of {n}", fewer_compared == n),
        ("intervals of one length cover nothing strictly, and with Table 6.2 only equal ones",
         (strict, covers) == (0, 10_000)),
    ]  # fmt: skip
    heads = ("data", "relation", "pairs", "comparisons", "without a pair", "tuples held at most")
    chart = Chart("Tuples held at most", "", "tuples", held, "bar", log_y=True)
    grid = Grid("Sort-merge, one partition", heads, rows)
    return judged(parts, "", chart, grid, rows=sum(row[2] for row in rows))
