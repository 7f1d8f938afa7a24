"""Spark Connect: a server of its own, our settings on it, Arrow functions, interval joins, and clear limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

import pyarrow as pa
import pyarrow.compute as pc
from dovetail import interval_count, interval_join, plan_interval_join
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

left = spark.sql("select id, id % 3 as k, id * 10 as start, id * 10 + 15 as end from range(30)")
right = spark.sql("select id as r, id % 3 as k, id * 25 as start, id * 25 + 5 as end from range(12)")
pairs = spark.sql('''
    select l.id, r.id as r from range(30) l join range(12) r
    on l.id % 3 = r.id % 3 and l.id * 10 < r.id * 25 + 5 and r.id * 25 < l.id * 10 + 15
''')
wanted = sorted(map(tuple, pairs.collect()))
assert len(wanted) > 5
for algorithm in ("auto", "native", "forward_scan"):
    plan = plan_interval_join(left, right, on="k", algorithm=algorithm, columns=["id", "r"])
    assert sorted(map(tuple, plan.frame().collect())) == wanted, algorithm
    try:
        plan.metrics()
    except UnsupportedError as error:
        assert "Spark Connect" in str(error)
    else:
        raise AssertionError("metrics over Connect")
    place = f"{sys.argv[1]}/{algorithm}"
    assert plan.write_parquet(place).value("rows written") == len(wanted)
    assert sorted(map(tuple, spark.read.parquet(place).collect())) == wanted
assert interval_count(left, right, on="k") == len(wanted)
assert interval_join(left, right, on="k", how="left_semi").count() == len({pair[0] for pair in wanted})
spark.stop()
print("all is well")
"""


def test_a_connect_session_runs_arrow_functions_and_says_what_it_cannot_do(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    # With SPARK_TESTING the server takes any free port and the client asks it which.
    env = os.environ | {"SPARK_TESTING": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", script, tmp_path],
        env=env, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "all is well"
