"""Streaming queries to be killed: for each of some places directories of files joined online, to Parquet.

Run as a script with a directory for all, the way to owe, the numbers of cores and of partitions, how many times the
smallest budget is given, and the places; goes on until it is killed or a query fails.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import Feed

from dovetail import online_join, online_multijoin, session


def joined(spark: SparkSession, feed: Feed, owed: str, larger: int) -> DataFrame:
    """The join of two inputs, or of three if there is a third, which has every key once."""
    left, right = feed.streams(spark, last=True)
    keys, end = feed.key_stream(spark), F.col("last")
    if keys is None:
        return online_join(left, right, on="k", memory=f"{32 * larger}KB", owed=owed, end_of_input=end, with_phase=True)
    inputs, on = {"a": left, "b": right, "c": keys}, [("a.k", "b.k"), ("b.k", "c.k")]
    out = online_multijoin(inputs, on=on, memory=f"{96 * larger}KB", owed=owed, end_of_input=end, with_phase=True)
    return out.select(F.col("a_k").alias("k"), "a", "b", "_phase")


def main(home: Path, owed: str, cores: int, partitions: int, larger: int, places: list[Path]) -> None:
    spark = session(
        "killed",
        conf={
            "spark.master": f"local[{cores}]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": partitions,
            "spark.driver.memory": "1g", "spark.local.dir": str(home / "local"),
        },
    )  # fmt: skip
    queries = []
    for place in places:
        writer = (
            joined(spark, Feed(place), owed, larger)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(place / "checkpoint"))
        )
        queries.append(writer.option("path", str(place / "out")).trigger(processingTime="0 seconds").start())
    (home / "started").touch()
    while not (failed := [q.exception() for q in queries if q.exception() is not None]):
        time.sleep(0.2)
    raise SystemExit(str(failed[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]), [Path(place) for place in sys.argv[6:]])
