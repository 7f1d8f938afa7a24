"""Streaming queries to be killed: changes applied to a page file, and rows enriched from it meanwhile.

Run as a script with the working directory and settings as JSON (cores, partitions, memory); ends when all input is
read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.quick_java import QUICK_JAVA
from tests.semistream.frame.killed_query import SCHEMA, once

from dovetail import MasterStore, enrich, session

FEED = "k long, made long, op string, lsn long"


def main(place: Path, settings: dict[str, Any]) -> None:
    spark = session(
        "killed",
        conf={
            "spark.master": f"local[{settings['cores']}]", "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": settings["partitions"],
            "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.local.dir": str(place / "local"),
        },
    )  # fmt: skip
    store = MasterStore.open(place / "m.pages")
    feed = spark.readStream.schema(FEED).option("maxFilesPerTrigger", 1).parquet(str(place / "feed"))
    applied = place / "changes" / "checkpoint"
    queries = [store.apply_changes(feed, sequence="lsn", checkpoint=applied, keep=50, trigger={"availableNow": True})]
    for mode in ("per_batch", "carry"):
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
        out = enrich(
            stream, store, on="k", how="left", algorithm="cachejoin", tune="off", memory=settings["memory"], mode=mode,
            versions=str(place / mode / "versions"),
        )  # fmt: skip
        writer = out.writeStream.foreachBatch(once(place / mode / "out"))
        writer = writer.option("checkpointLocation", str(place / mode / "checkpoint"))
        queries.append(writer.trigger(availableNow=True).start())
    (place / "started").touch()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
