"""Streaming queries to be killed: files to Parquet, enriched from a page file that changes meanwhile.

Run as a script with the working directory, settings as JSON (cores, partitions, memory) and the modes, a query for
each; ends when all input is answered.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import parquet
from tests.quick_java import QUICK_JAVA

from dovetail import MasterStore, enrich, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = "id long, k long"


def main(place: Path, settings: dict[str, Any], modes: list[str]) -> None:
    spark = session_of(place, settings)
    queries = enriched(spark, MasterStore.open(place / "m.pages"), place, settings["memory"], modes)
    (place / "started").touch()
    for query in queries:
        query.awaitTermination()
    spark.stop()


def session_of(place: Path, settings: dict[str, Any]) -> SparkSession:
    return session(
        "killed",
        conf={
            "spark.master": f"local[{settings['cores']}]", "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": settings["partitions"],
            "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.local.dir": str(place / "local"),
        },
    )  # fmt: skip


def enriched(
    spark: SparkSession, store: MasterStore, place: Path, memory: str, modes: Sequence[str]
) -> list[StreamingQuery]:
    """A running query for each mode, which enriches the rows of the files."""
    queries = []
    for mode in modes:
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
        out = enrich(
            stream, store, on="k", how="left", algorithm="cachejoin", tune="off", memory=memory, mode=mode,
            versions=str(place / mode / "versions"),
        )  # fmt: skip
        writer = out.writeStream.foreachBatch(once(place / mode / "out"))
        writer = writer.option("checkpointLocation", str(place / mode / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    return queries


def once(place: Path) -> Callable[[DataFrame, int], None]:
    """A sink that keeps the answers of the first whole run of a micro-batch; of later runs it notes that there was one.

    It takes its time to tell Spark that it has them: a query that is killed then runs the micro-batch again.
    """
    place.mkdir(parents=True, exist_ok=True)

    def keep(frame: DataFrame, number: int) -> None:
        answers, kept = frame.toArrow(), place / f"{number}.parquet"
        if kept.exists():
            (place / f"{number}.again").touch()
            return
        parquet.write_table(answers, place / "staged")
        (place / "staged").rename(kept)
        time.sleep(1.0)

    return keep


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
