"""Growth of enrichment: more stream rows over the same master data, and both doubled inside the same memory."""

from __future__ import annotations

from functools import partial

import pyarrow.parquet as pq

from bench.cases.interval_overlap import sink_rows
from bench.context import BenchContext
from bench.enrichment import matched, page_file, stream_rows
from bench.experiment import Experiment, Findings
from bench.experiments.scale.growth import Prepared, curves, found, sizes
from dovetail.joins.semistream.api import enrich

FIRST = {"small": 20_000, "full": 125_000}
MEMORY = "8MB"
_MASTER = {"small": 100_000, "full": 1_000_000}
_FILES = 4


def _prepared(master_rows: int | None, bench: BenchContext, rows: int) -> Prepared:
    """Stream rows in files; master rows as given, else half as many as stream rows."""
    keys = master_rows or rows // 2
    place = bench.scratch / f"stream-{rows}-{keys}"
    if not place.exists():
        place.mkdir()
        each = -(-rows // _FILES)
        for n in range(_FILES):
            table = stream_rows(bench, keys, n * each, min(rows, (n + 1) * each))
            pq.write_table(table, place / f"{n}.parquet")
    store = page_file(bench, keys)
    frame = bench.spark.read.parquet(str(place))

    def run() -> int:
        enrich(frame, store, on="key", memory=MEMORY).write.format("noop").mode("overwrite").save()
        return sink_rows(bench.spark)

    return Prepared(float(rows), matched(rows), run)


def _run(bench: BenchContext) -> Findings:
    master = _MASTER[bench.scale]
    ways = {f"{master:,} master rows": partial(_prepared, master), "half as many master rows": partial(_prepared, None)}
    what = f"Enrichment from page files with {MEMORY} a task, keys by Zipf's law"
    return found(curves(bench, ways, sizes(FIRST[bench.scale])), "stream rows", what)


EXPERIMENTS = (
    Experiment(
        name="scale-semistream",
        family="scale",
        source="our own",
        places=("growth of enrichment",),
        claim=(
            "Twice the stream takes at most about twice as long to enrich, also where the master data doubles with it "
            "and memory does not."
        ),
        run=_run,
        measures=("engine", "joins/semistream", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
)
