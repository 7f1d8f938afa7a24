"""enrich on a cluster of several executors, and the directories that these must share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from tests.quick_java import QUICK_JAVA
from tests.semistream.frame.cases import drop_file, file_stream, page_store, rows_of

from dovetail import enrich
from dovetail.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = """
import sys
from pathlib import Path
import pyarrow as pa
from dovetail import MasterStore, enrich, plan_enrich, session
from dovetail.joins.semistream.master.page_file.writer import write_pages

place = Path(sys.argv[1])
spark = session(conf={
    "spark.master": "local-cluster[2,1,1024]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2,
    "spark.executor.memory": "1g", "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": sys.argv[2], "spark.driver.extraJavaOptions": sys.argv[2],
})
write_pages(place / "m.pages", pa.table({"k": list(range(50)), "word": [f"w{n}" for n in range(50)]}), key="k")
store = MasterStore.open(place / "m.pages")
rows = spark.range(600, numPartitions=4).selectExpr("id", "id % 60 AS k")
routes = ("none", "master")
plans = [plan_enrich(rows, store, on="k", memory="1MB", algorithm="cachejoin", exchange=r, tune="off") for r in routes]
found = plans[0].frame().unionAll(plans[1].frame()).toArrow()  # one job
expected = sorted((n, f"w{n % 60}") for n in range(600) if n % 60 < 50)
assert sorted(zip(found["id"].to_pylist(), found["word"].to_pylist())) == sorted(2 * expected)
for plan in plans:
    assert plan.metrics().value("rows") == 600
    assert plan.metrics().value("memory_peak") <= 1 << 20
rows.write.parquet(str(place / "in"))
stream = spark.readStream.schema(rows.schema).parquet(str(place / "in"))
answers = enrich(stream, store, on="k", memory="1MB", algorithm="cachejoin", tune="off", versions=str(place / "log"))
writer = answers.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
writer.option("path", str(place / "out")).trigger(availableNow=True).start().awaitTermination()
assert spark.read.parquet(str(place / "out")).count() == len(expected)
assert len(list((place / "log").glob("*/*/0.0.json"))) == 1
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
assert executors == 3, executors  # two and the driver
spark.stop()
print("all is well")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_enrich_runs_on_several_executors(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(CLUSTER)
    run = subprocess.run(
        [sys.executable, job, tmp_path, QUICK_JAVA], env=os.environ | {"SPARK_TESTING": "1"},
        capture_output=True, text=True, check=False, timeout=560,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.splitlines()[-1] == "all is well"


def test_two_stores_share_a_version_log(spark: SparkSession, tmp_path: Path) -> None:
    """Both are read in one query; each micro-batch takes the version of each store."""
    drop_file(tmp_path / "in", pa.table({"k": [1, 2, 3]}), 0)
    frame, log = file_stream(spark, tmp_path / "in"), str(tmp_path / "log")
    for name in ("a", "b"):
        store = page_store(tmp_path / f"{name}.pages", pa.table({"k": [1, 2, 3], name: [name] * 3}))
        frame = enrich(frame, store, on="k", algorithm="hybridjoin", memory="1MB", tune="off", versions=log)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    assert rows_of(spark.read.parquet(str(tmp_path / "out")).toArrow()) == {(n, "a", "b"): 1 for n in (1, 2, 3)}


def test_a_log_that_tasks_do_not_share_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The directory is taken away after planning: what a task sees whose node has another disk."""
    drop_file(tmp_path / "in", pa.table({"k": [1, 2, 3]}), 0)
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1, 2, 3], "word": ["w"] * 3}))
    asked = {"on": "k", "algorithm": "hybridjoin", "memory": "1MB", "tune": "off"}
    frame = enrich(file_stream(spark, tmp_path / "in"), store, versions=str(tmp_path / "log"), **asked)
    shutil.rmtree(tmp_path / "log")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=r"does not see what the driver wrote to .*log.* versions="):
        writer.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(PlanError, match="versions: gs://bucket/log is on a file system"):
        enrich(file_stream(spark, tmp_path / "in"), store, versions="gs://bucket/log", **asked)
