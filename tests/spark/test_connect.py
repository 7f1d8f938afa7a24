"""Spark Connect: a server in a process of its own, our settings on it, Arrow functions, and clear limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import pyarrow as pa
import pyarrow.compute as pc
from dovetail.errors import UnsupportedError
from dovetail.engine.metrics import Metrics
from dovetail.spark.connect import is_connect, require_classic
from dovetail.spark.metrics import MetricsSink
from dovetail.spark.session import configure, session

spark = session(conf={"spark.remote": "local[1]", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": 3})
assert is_connect(spark)
assert configure(spark) == []
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"

sink = MetricsSink(spark)

def doubled(batches):
    for batch in batches:
        sink.task(Metrics())
        yield pa.RecordBatch.from_pydict({"id": pc.multiply(batch.column(0), 2)})

frame = spark.range(100).mapInArrow(doubled, "id long")
assert is_connect(frame) and is_connect(frame.id)
assert frame.groupBy().sum("id").first()[0] == 9900

for attempt, words in [
    (sink.collect, "do not reach a Spark Connect client"),
    (lambda: require_classic(frame, "a route", "use another"), "a route does not work over Spark Connect; use another"),
]:
    try:
        attempt()
    except UnsupportedError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
spark.stop()
print("all is well")
"""


def test_a_connect_session_runs_arrow_functions_and_says_what_it_cannot_do(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    # With SPARK_TESTING the server takes any free port and the client asks it which.
    env = os.environ | {"SPARK_TESTING": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", script],
        env=env, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "all is well"
