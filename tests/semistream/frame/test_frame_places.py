"""enrich where Spark is elsewhere: over Spark Connect, and on a cluster of several executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONNECT = """
import sys
from pathlib import Path
import pyarrow as pa
from dovetail import MasterStore, dead_letter, enrich, plan_enrich, session
from dovetail.errors import UnsupportedError
from dovetail.semistream.master.write import write_pages
from dovetail.spark.connect import is_connect

place = Path(sys.argv[1])
spark = session(conf={"spark.remote": "local[1]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2})
write_pages(place / "m.pages", pa.table({"k": list(range(50)), "word": [f"w{n}" for n in range(50)]}), key="k")
store = MasterStore.open(place / "m.pages")
rows = spark.range(100).withColumnRenamed("id", "k")
plan = plan_enrich(rows, store, on="k", memory="1MB", on_miss=dead_letter(place / "letters"))
assert is_connect(plan.frame())
found = plan.frame().toArrow()
assert sorted(zip(found["k"].to_pylist(), found["word"].to_pylist())) == [(n, f"w{n}") for n in range(50)]
assert "prices:" in plan.explain()
assert spark.read.parquet(str(place / "letters")).count() == 50
try:
    plan.metrics()
except UnsupportedError as error:
    assert "Spark Connect" in str(error)
else:
    raise AssertionError("metrics should not be there")

rows.write.parquet(str(place / "in"))
stream = spark.readStream.schema("k long").parquet(str(place / "in"))
for mode in ["carry"]:
    out = enrich(stream, store, on="k", how="left", algorithm="hybridjoin", tune="off", memory="1MB", mode=mode)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(place / f"checkpoint-{mode}"))
    writer.option("path", str(place / mode)).trigger(availableNow=True).start().awaitTermination()
    answers = spark.read.parquet(str(place / mode)).toArrow()
    assert answers.num_rows == 100 and answers["word"].null_count == 50, mode
spark.stop()
print("all is well")
"""

CLUSTER = """
import sys
from pathlib import Path
import pyarrow as pa
from dovetail import MasterStore, plan_enrich, session
from dovetail.semistream.master.write import write_pages

place = Path(sys.argv[1])
spark = session(conf={
    "spark.master": "local-cluster[2,1,1024]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2,
    "spark.executor.memory": "1g", "spark.driver.memory": "1g",
})
write_pages(place / "m.pages", pa.table({"k": list(range(50)), "word": [f"w{n}" for n in range(50)]}), key="k")
store = MasterStore.open(place / "m.pages")
for route in ("none", "master"):
    rows = spark.range(1000, numPartitions=8).selectExpr("id", "id % 60 AS k")
    plan = plan_enrich(rows, store, on="k", memory="1MB", algorithm="cachejoin", route=route)
    found = plan.frame().toArrow()
    expected = sorted((n, f"w{n % 60}") for n in range(1000) if n % 60 < 50)
    assert sorted(zip(found["id"].to_pylist(), found["word"].to_pylist())) == expected, route
    assert plan.metrics().value("rows") == 1000
    assert plan.metrics().value("memory_peak") <= 1 << 20
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
assert executors == 3, executors  # two and the driver
spark.stop()
print("all is well")
"""


@pytest.mark.parametrize("script", [CONNECT, CLUSTER], ids=["connect", "local-cluster"])
@pytest.mark.timeout(600)
def test_enrich_runs_elsewhere(tmp_path: Path, script: str) -> None:
    job = tmp_path / "job.py"
    job.write_text(script)
    run = subprocess.run(
        [sys.executable, job, tmp_path], env=os.environ | {"SPARK_TESTING": "1"}, capture_output=True, text=True,
        check=False, timeout=560,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout.splitlines()[-1] == "all is well"
