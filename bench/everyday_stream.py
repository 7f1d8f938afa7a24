"""Seconds of a micro-batch of the everyday stream-stream join: a key, a band of event times, watermarks; rows leave.

`python -m bench.everyday_stream` prints one line a rival. Each micro-batch has 40 seconds of events of both sides, rows
match within 60 seconds, and may be 20 seconds late, so that some four micro-batches are in the state. Spark's own join
has the same condition. `--rounds` repeats both in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_START_US = 1_700_000_000_000_000
_SPAN_US = 40_000_000
_NEAR = timedelta(seconds=60)
_EARLY = 1_000_000
_SCHEMA = "k long, at timestamp, {name} long, {name}_value double"
_FIRST = 6  # micro-batches before rows leave and everything is warm


def write_streams(place: Path, rows: int, batches: int, keys: int) -> None:
    """Both sides as files, one a micro-batch."""
    for side, name in enumerate("ab"):
        (place / name).mkdir()
        for batch in range(batches):
            rng = np.random.default_rng([side, batch])
            at = np.sort(_START_US + batch * _SPAN_US + rng.integers(0, _SPAN_US, rows))
            table = pa.table(
                {
                    "k": rng.integers(0, keys, rows),
                    "at": pa.array(at, pa.timestamp("us", "UTC")),
                    name: np.arange(batch * rows, (batch + 1) * rows),
                    f"{name}_value": rng.random(rows),
                }
            )
            path = place / name / f"{batch:03d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (_EARLY + batch, _EARLY + batch))  # files are read in the order of their times


def streams(spark: SparkSession, place: Path) -> list[DataFrame]:
    """A file of each side a micro-batch, with watermarks."""
    return [
        spark.readStream.schema(_SCHEMA.format(name=name))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(place / name))
        .withWatermark("at", "20 seconds")
        for name in "ab"
    ]


def ours(left: DataFrame, right: DataFrame, memory: str) -> DataFrame:
    """The online join."""
    within = ("at", "at", -_NEAR, _NEAR)
    return dovetail.online_join(left, right, on="k", within=within, owed="batch", memory=memory)


def sparks(left: DataFrame, right: DataFrame, memory: str) -> DataFrame:
    """Spark's own join of streams."""
    a, b = left.alias("a"), right.alias("b")
    near = F.expr("b.at between a.at - interval 60 seconds and a.at + interval 60 seconds")
    return a.join(b, (F.col("a.k") == F.col("b.k")) & near)


def measured(out: DataFrame, batches: int) -> tuple[list[float], int]:
    """Seconds of each micro-batch, and how many rows came out."""
    seen = [0]

    def count(frame: DataFrame, number: int) -> None:
        seen[0] += frame.count()

    with tempfile.TemporaryDirectory() as checkpoint:
        query = out.writeStream.option("checkpointLocation", checkpoint).foreachBatch(count).start()
        done: dict[int, float] = {}
        while len(done) < batches:
            error = query.exception()
            if error is not None:
                raise error
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    done[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000
            time.sleep(0.2)
        query.stop()
    return [done[number] for number in sorted(done)], seen[0]


def shown(name: str, seconds: list[float], rows: int) -> str:
    """A line of what was measured."""
    later = sorted(seconds[_FIRST:])
    spread = f"{statistics.median(later):.2f} s [{later[0]:.2f}-{later[-1]:.2f}]"
    return f"{name:8} {spread} a micro-batch, {rows} rows; all: {' '.join(f'{s:.2f}' for s in seconds)}"


def main() -> None:
    """Measure both rivals in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--memory", default="256MB")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["dovetail", "spark"])
    given = parser.parse_args()
    spark = dovetail.session("everyday stream")
    spark.sparkContext.setLogLevel("ERROR")
    rivals: dict[str, Any] = {"dovetail": ours, "spark": sparks}
    with tempfile.TemporaryDirectory() as directory:
        write_streams(Path(directory), given.rows, given.batches, given.keys)
        for _ in range(given.rounds):
            for name, join in rivals.items():
                if given.only in (None, name):
                    out = join(*streams(spark, Path(directory)), given.memory)
                    print(shown(name, *measured(out, given.batches)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
