"""Tuple widths, and how many tuples fill the join memory: tables 3.2 and 3.3."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Experiment, Findings, Grid
from bench.experiments.interval.data import PADDING, Side, pairs, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import run
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
)
