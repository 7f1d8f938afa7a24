"""A streaming query to be killed: two directories of files joined online, to Parquet.

Run as a script with the working directory, the way to owe and how many rows the whole answer has; ends when they are
all there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from tests.online.frame.cases import Feed, answers

from dovetail import online_join, session


def main(place: Path, owed: str, rows: int) -> None:
    spark = session(
        "killed",
        conf={
            "spark.master": "local[2]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2,
            "spark.driver.memory": "1g", "spark.local.dir": str(place / "local"),
        },
    )  # fmt: skip
    left, right = Feed(place).streams(spark, last=True)
    out = online_join(left, right, on="k", memory="32KB", owed=owed, end_of_input=F.col("last"), with_phase=True)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    query = writer.option("path", str(place / "out")).trigger(processingTime="0 seconds").start()
    (place / "started").touch()
    while query.isActive and len(answers(place)) < rows:
        time.sleep(0.2)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
