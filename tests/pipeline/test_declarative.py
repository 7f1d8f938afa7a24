"""The functions inside Spark Declarative Pipelines: the example, run by `spark-pipelines` as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dovetail.spark.java import find_java

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example(spark: SparkSession, tmp_path: Path) -> None:
    import runpy

    data = tmp_path / "data"
    data.mkdir()
    runpy.run_path(str(EXAMPLE / "prepare.py"))["prepare"](data)
    project = Path(shutil.copytree(EXAMPLE, tmp_path / "project"))
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("${STORAGE}", f"file://{tmp_path}/storage"))
    program = Path(sys.executable).with_name("spark-pipelines")
    environment = {
        "SHOP_DATA": str(data), "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        [str(program), "run", "--spec", str(spec)],
        env=os.environ | environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    warehouse = tmp_path / "spark-warehouse"
    orders = spark.read.parquet(str(warehouse / "enriched_orders"))
    assert orders.count() == orders.where("category is not null").count() == 2_000
    assert spark.read.parquet(str(warehouse / "shipped_orders")).count() == 2_000
    assert spark.read.parquet(str(warehouse / "promoted_shipments")).count() > 0
    assert spark.read.parquet(str(warehouse / "prices")).count() == 2
