"""Streaming queries to be killed: files to Parquet, enriched from a page file that changes meanwhile.

Run as a script with the working directory and the modes, a query for each; ends when all input is answered.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.quick_java import QUICK_JAVA

from dovetail import MasterStore, enrich, session

SCHEMA = "id long, k long"


def main(place: Path, modes: list[str]) -> None:
    spark = session(
        "killed",
        conf={
            "spark.master": "local[2]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 1,
            "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.local.dir": str(place / "local"),
        },
    )  # fmt: skip
    store = MasterStore.open(place / "m.pages")
    queries = []
    for mode in modes:
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(place / "in"))
        out = enrich(
            stream, store, on="k", how="left", algorithm="cachejoin", tune="off", memory="512KB", mode=mode,
            versions=str(place / mode / "versions"),
        )  # fmt: skip
        writer = out.writeStream.format("parquet").option("checkpointLocation", str(place / mode / "checkpoint"))
        queries.append(writer.option("path", str(place / mode / "out")).trigger(availableNow=True).start())
    (place / "started").touch()
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
