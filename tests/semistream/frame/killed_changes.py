"""Streaming queries to be killed: changes applied to a page file, and rows enriched from it meanwhile.

Run as a script with the working directory and settings as JSON (cores, partitions, memory); ends when all input is
read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.semistream.frame.killed_query import enriched, session_of

from dovetail import MasterStore

FEED = "k long, made long, op string, lsn long"


def main(place: Path, settings: dict[str, Any]) -> None:
    spark = session_of(place, settings)
    store = MasterStore.open(place / "m.pages")
    feed = spark.readStream.schema(FEED).option("maxFilesPerTrigger", 1).parquet(str(place / "feed"))
    applied = place / "changes" / "checkpoint"
    queries = [store.apply_changes(feed, sequence="lsn", checkpoint=applied, keep=50, trigger={"availableNow": True})]
    queries += enriched(spark, store, place, settings["memory"], ("per_batch", "carry"))
    (place / "started").touch()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
