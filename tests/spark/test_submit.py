"""What a user sets outside the program wins over our defaults, and our joins run with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.spark.java import find_java

PROGRAM = """
import json
import dovetail

spark = dovetail.session({app!r})
keys = json.loads({keys!r})
found = {{key: spark.conf.get(key, None) or spark.sparkContext.getConf().get(key) for key in keys}}
left = spark.createDataFrame([(i, i + 3) for i in range(50)], "s long, e long")
right, bounds = left.toDF("s2", "e2"), {{"left_interval": ("s", "e"), "right_interval": ("s2", "e2")}}
plan = dovetail.plan_interval_join(left, right, algorithm="dip", **bounds)
print(json.dumps({{"settings": found, "pairs": plan.frame().count(), "left": dovetail.configure(spark)}}))
spark.stop()
"""
SUBMITTED = {
    "spark.sql.shuffle.partitions": "7",
    "spark.python.daemon.module": "pyspark.daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.app.name": "mine",
}
IN_FILE = {
    "spark.python.unix.domain.socket.enabled": "false",
    "spark.sql.shuffle.partitions": "9",
    "spark.ui.port": "0",
}


def submitted(tmp_path: Path, app: str | None, options: list[str], env: dict[str, str]) -> dict[str, object]:
    keys = sorted(SUBMITTED | IN_FILE)
    (tmp_path / "program.py").write_text(PROGRAM.format(app=app, keys=json.dumps(keys)))
    spark_submit = Path(sys.executable).with_name("spark-submit")
    places = {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path)}
    command = [str(spark_submit), "--master", "local[2]", *options, str(tmp_path / "program.py")]
    done = subprocess.run(command, env={**os.environ, **places, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["pairs"] == sum(abs(a - b) < 3 for a in range(50) for b in range(50))
    return dict(answer)


@pytest.mark.sampled(4)  # it starts a Spark of its own
@pytest.mark.parametrize("app", [None, "shop"])
def test_what_spark_submit_is_given_wins(tmp_path: Path, app: str | None) -> None:
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in IN_FILE.items()))
    options = [word for key, value in SUBMITTED.items() for word in ("--conf", f"{key}={value}")]
    answer = submitted(tmp_path, app, options, {"SPARK_CONF_DIR": str(tmp_path)})
    named = {} if app is None else {"spark.app.name": app}  # Spark's own rule: a name in the program wins
    assert answer["settings"] == {**IN_FILE, **SUBMITTED, **named}
    said = [str(line).partition(" ")[0] for line in answer["left"]]  # type: ignore[attr-defined]  # a list of lines
    assert said == [
        "spark.sql.execution.arrow.pyspark.enabled",
        "spark.python.unix.domain.socket.enabled",
        "spark.python.daemon.module",
    ]
