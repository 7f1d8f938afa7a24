"""Interval joins whose result does not fit the memory they are given."""

from __future__ import annotations

from bench.case import Scale
from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.rivals import interval_child
from bench.experiments.rivals.limited import heap
from bench.experiments.rivals.limits import Contest, short_memory, told

SIZES: dict[Scale, tuple[int, int]] = {"small": (28_000, 128), "full": (120_000, 1_024)}
"""Rows a side, and MiB that a library may have."""
DOOMED = ("polars", "polars-bio", "bioframe", "pyjanitor")
"""Libraries that build their result in memory."""
NEEDS = {"polars": "polars", "polars-bio": "polars_bio", "bioframe": "bioframe", "pyjanitor": "janitor"}


def _run(bench: BenchContext) -> Findings:
    rows, mib = SIZES[bench.scale]
    due = interval_child.pairs_due(rows)
    contest = Contest(interval_child.__name__, list(interval_child.JOINS), mib, bench, [str(rows)], NEEDS)
    what = f"{due:,} pairs of two inputs of {rows:,} rows, written to Parquet, with {mib} MiB"
    note = (
        f"Ours runs with 32 MB a task beside a Java heap of {heap(mib)} MiB. The limit is the system's for libraries "
        "of one process, counted from when they have loaded their input."
    )
    return told(contest.fates(), DOOMED, due, f"{due:,} pairs to Parquet, {mib} MiB", what, note)


EXPERIMENTS = (
    short_memory(
        "interval",
        "An interval join that keeps to a budget finishes where its result is larger than memory; a library that "
        "builds its result in memory does not.",
        _run,
        "joins/interval",
    ),
)
