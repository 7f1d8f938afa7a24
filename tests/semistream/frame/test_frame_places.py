"""enrich on a cluster of several executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.quick_java import QUICK_JAVA

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
    "spark.executor.extraJavaOptions": sys.argv[2], "spark.driver.extraJavaOptions": sys.argv[2],
})
write_pages(place / "m.pages", pa.table({"k": list(range(50)), "word": [f"w{n}" for n in range(50)]}), key="k")
store = MasterStore.open(place / "m.pages")
rows = spark.range(600, numPartitions=4).selectExpr("id", "id % 60 AS k")
routes = ("none", "master")
plans = [plan_enrich(rows, store, on="k", memory="1MB", algorithm="cachejoin", route=r, tune="off") for r in routes]
found = plans[0].frame().unionAll(plans[1].frame()).toArrow()  # one job
expected = sorted((n, f"w{n % 60}") for n in range(600) if n % 60 < 50)
assert sorted(zip(found["id"].to_pylist(), found["word"].to_pylist())) == sorted(2 * expected)
for plan in plans:
    assert plan.metrics().value("rows") == 600
    assert plan.metrics().value("memory_peak") <= 1 << 20
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
