"""The smallest real distribution: two executors, each a process of its own, give what one process gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.cases.interval_overlap import overlap_counts
from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid, Opinion
from bench.experiments.scale.cluster_job import CLUSTER, Asked, Ran, ask, write_data
from bench.xquery_weather import FIRST_YEAR
from dovetail.errors import DataError, DovetailError
from dovetail.workloads import Weather

ROWS = {"small": 20_000, "full": 200_000}
_PATIENCE_S = 600


def in_cluster(place: Path) -> Ran:
    """What the joins give in a cluster, which a process of its own starts: one process holds one Spark."""
    job = [sys.executable, "-m", "bench.experiments.scale.cluster_job", str(place)]
    env = os.environ | {"SPARK_TESTING": "1"}  # Spark starts such a cluster for tests only
    run = subprocess.run(  # noqa: S603  (this interpreter, and a directory of ours)
        job, env=env, capture_output=True, text=True, check=False, timeout=_PATIENCE_S
    )
    if run.returncode:
        raise DovetailError(f"the cluster failed: {run.stderr[-2000:]}")
    body = json.loads(run.stdout.splitlines()[-1])
    return Ran({name: Asked(**asked) for name, asked in body["families"].items()}, body["tasks"])


def expected(place: Path) -> dict[str, int]:
    """The number of answers of each join, without Spark."""
    left, right = (pq.read_table(place / f"interval-{side}") for side in ("left", "right"))
    pairs = int(overlap_counts(left, right).sum())
    keys = [pq.read_table(place / f"online-{side}")["key"].to_numpy() for side in ("left", "right")]
    counts = [np.bincount(some, minlength=len(some)) for some in keys]
    readings = Weather(4, 2, FIRST_YEAR + 4).readings()
    year = np.asarray(readings["date"]).astype("datetime64[Y]").astype(int) + 1970
    high = (np.asarray(readings["data_type"]) == "TMAX") & (year == 2000)
    return {
        "interval, operators": pairs,
        "interval, bins": pairs,
        "semi-stream": int(np.sum(keys[0] < len(keys[0]) // 2)),
        "online": int(counts[0] @ counts[1]),
        "xquery": 3 * int(high.sum()),
    }


def compared(local: Ran, cluster: Ran, wanted: dict[str, int]) -> None:
    """DataError if a join gave other answers in the cluster, or another number than it has."""
    for family, rows in wanted.items():
        here, there = local.families[family], cluster.families[family]
        if not here.rows == there.rows == rows:
            raise DataError(f"{family}: {here.rows:,} answers here, {there.rows:,} in the cluster, {rows:,} expected.")
        if here.checksum != there.checksum:
            raise DataError(f"{family}: the cluster gave other rows than one process did.")


def judged(local: Ran, cluster: Ran, wanted: dict[str, int]) -> Findings:
    """Holds where the answers are the same and both executors took part."""
    compared(local, cluster, wanted)
    worked = [name for name, tasks in cluster.tasks.items() if name != "driver" and tasks > 0]
    verdict: Opinion = "holds" if len(worked) == 2 else "holds in part"
    shuffled = sum(asked.shuffle_bytes for asked in cluster.families.values())
    why = (
        f"In {CLUSTER} {len(worked)} executors ended {sum(cluster.tasks.values())} tasks; rows and checksums of all "
        f"{len(wanted)} joins are those of one process, their numbers also those of an independent count. "
        f"{shuffled / 1e6:.1f} MB went through the shuffle."
    )
    rows: list[list[Cell]] = [
        [
            family,
            here.rows,
            round(here.seconds, 3),
            round(there.seconds, 3),
            here.shuffle_bytes,
            there.shuffle_bytes,
        ]
        for family, here in local.families.items()
        for there in (cluster.families[family],)
    ]
    heads = ("join", "rows", "one process, s", "cluster, s", "shuffle bytes, one process", "shuffle bytes, cluster")
    bars = {
        "one process": [(family, round(asked.seconds, 3)) for family, asked in local.families.items()],
        "two executors": [(family, round(asked.seconds, 3)) for family, asked in cluster.families.items()],
    }
    tasks: list[list[Cell]] = [[name, n] for name, n in sorted(cluster.tasks.items())]
    tables = [Grid("Joins", heads, rows), Grid("Tasks by process of the cluster", ("process", "tasks"), tasks)]
    chart = Chart("Seconds, better of two", "join", "seconds", bars, kind="bar")
    return Findings(verdict, why, [chart], tables, 2 * sum(wanted.values()))


def _run(bench: BenchContext) -> Findings:
    place = bench.scratch / "cluster"
    write_data(place, ROWS[bench.scale])
    return judged(ask(bench.spark, place), in_cluster(place), expected(place))


EXPERIMENTS = (
    Experiment(
        name="scale-cluster",
        family="scale",
        source="our own",
        places=("two executors",),
        claim="Executors that are processes of their own give the same rows as one process, in all four families.",
        run=_run,
        measures=(
            "engine",
            "joins/interval",
            "joins/semistream",
            "joins/online",
            "xml",
            "spark",
            "bench/experiments/scale",
        ),
        ground="measured",
    ),
)
