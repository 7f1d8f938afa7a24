"""Growth of interval joins: twice the rows over twice the time, so that every row has as many partners."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.cases.interval_overlap import overlap_counts, sink_rows
from bench.context import BenchContext
from bench.experiment import Experiment, Findings
from bench.experiments.scale.growth import Prepared, curves, found, sizes
from dovetail.joins.interval.api import interval_count, interval_join
from dovetail.workloads import Exponential, RandomIntervals

FIRST = {"small": 10_000, "full": 62_500}
_MEAN, _STEP = 1_000, 100  # lengths, and instants from one start to the next: some 20 partners a row
_FILES = 4


def _table(rows: int, seed: int) -> pa.Table:
    return RandomIntervals(rows, _STEP * rows, Exponential(_MEAN), seed=seed).table().select(["id", "start", "end"])


def _frames(bench: BenchContext, rows: int) -> tuple[list[DataFrame], int]:
    """Both inputs in Spark's cache, and the number of their pairs."""
    tables = [_table(rows, seed) for seed in (1, 2)]
    frames = []
    for side, table in zip("lr", tables, strict=True):
        place = bench.scratch / f"intervals-{rows}-{side}"
        place.mkdir(exist_ok=True)
        each = -(-rows // _FILES)
        for n in range(_FILES):
            pq.write_table(table.slice(n * each, each), place / f"{n}.parquet")
        frames.append(bench.spark.read.parquet(str(place)).cache())
        frames[-1].count()
    return frames, int(overlap_counts(tables[0], tables[1]).sum())


def _prepared(joined: bool, bench: BenchContext, rows: int) -> Prepared:
    (left, right), pairs = _frames(bench, rows)

    def run() -> int:
        if not joined:
            return interval_count(left, right)
        interval_join(left, right).write.format("noop").mode("overwrite").save()
        return sink_rows(bench.spark)

    return Prepared(float(rows), pairs, run, lambda: [frame.unpersist(blocking=True) for frame in (left, right)])


def _run(bench: BenchContext) -> Findings:
    ways = {"all pairs": partial(_prepared, True), "their number": partial(_prepared, False)}
    return found(
        curves(bench, ways, sizes(FIRST[bench.scale])), "rows a side", "Overlap join with about 20 pairs a row"
    )


EXPERIMENTS = (
    Experiment(
        name="scale-interval",
        family="scale",
        source="our own",
        places=("growth of interval joins",),
        claim="With as many partners a row, an interval join over twice the rows takes about twice as long.",
        run=_run,
        measures=("engine", "joins/interval", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
)
