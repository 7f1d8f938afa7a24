"""Growth of online joins: both inputs doubled, in memory that holds them and in memory that does not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.cases.interval_overlap import sink_rows
from bench.context import BenchContext
from bench.experiment import Experiment, Findings
from bench.experiments.scale.growth import Prepared, curves, found, sizes
from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.api import online_join

FIRST = {"small": 5_000, "full": 62_500}
AMPLE, SHORT = "32MB", "1MB"
_FILES = 4


def side_keys(rows: int, side: int) -> I64:
    """Keys of one side, each of which about one row a side has."""
    return np.random.default_rng([rows, side]).integers(0, rows, rows)


def pairs(rows: int) -> int:
    """The size of the join."""
    left, right = (np.bincount(side_keys(rows, side), minlength=rows) for side in (0, 1))
    return int(left @ right)


def _prepared(memory: str, bench: BenchContext, rows: int) -> Prepared:
    frames = []
    for side, name in enumerate(("left", "right")):
        place, keys = bench.scratch / f"online-{rows}-{name}", side_keys(rows, side)
        if not place.exists():
            place.mkdir()
            table = pa.table({"key": keys, f"{name}_id": np.arange(rows), f"{name}_value": keys * 0.5})
            each = -(-rows // _FILES)
            for n in range(_FILES):
                pq.write_table(table.slice(n * each, each), place / f"{n}.parquet")
        frames.append(bench.spark.read.parquet(str(place)))

    def run() -> int:
        online_join(frames[0], frames[1], on="key", memory=memory).write.format("noop").mode("overwrite").save()
        return sink_rows(bench.spark)

    return Prepared(float(rows), pairs(rows), run)


def _run(bench: BenchContext) -> Findings:
    ways = {f"{memory} a bucket": partial(_prepared, memory) for memory in (AMPLE, SHORT)}
    what = "DINER over two inputs whose rows have about one partner, to the end of both"
    return found(curves(bench, ways, sizes(FIRST[bench.scale])), "rows a side", what)


EXPERIMENTS = (
    Experiment(
        name="scale-online",
        family="scale",
        source="our own",
        places=("growth of online joins",),
        claim=(
            "An online join of inputs twice as long takes about twice as long, in memory and where most rows wait on "
            "disk for the end."
        ),
        run=_run,
        measures=("engine", "joins/online", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
)
