"""Two streams whose rows do not fit Java's heap."""

from __future__ import annotations

from bench.case import Params, Scale
from bench.cases.online import IN_JAVA
from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.rivals import online_child
from bench.experiments.rivals.limited import heap
from bench.experiments.rivals.limits import Contest, short_memory, told
from bench.online_streams import BATCHES, matches

SIZES: dict[Scale, int] = {"small": 80_000, "full": 200_000}
"""Rows a side and micro-batch."""
MIB, MEMORY = 512, "8MB"


def _run(bench: BenchContext) -> Findings:
    rows = SIZES[bench.scale]
    params: Params = {"batch_rows": rows, "memory": MEMORY}
    due, total = matches(bench, params), 2 * BATCHES * rows
    words = [bench.scale, str(rows), MEMORY]
    contest = Contest(online_child.__name__, list(online_child.JOINS), MIB, bench, words)
    what = f"{due:,} pairs of two streams of {total // 2:,} rows each, with a Java heap of {heap(MIB)} MiB"
    note = (
        f"Ours keeps {MEMORY} a bucket in memory; RocksDB holds state outside the heap, on disk and in native memory."
    )
    return told(contest.fates(), [IN_JAVA], due, f"{total:,} rows, heap of {heap(MIB)} MiB", what, note)


EXPERIMENTS = (
    short_memory(
        "online",
        "An online join that keeps to a budget finishes where the state of Spark's stream-stream join does not "
        "fit Java's memory.",
        _run,
        "joins/online",
        "bench/online_streams.py",
    ),
)
