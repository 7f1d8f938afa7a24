"""Settings outside the program win over our defaults, and our joins run with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.errors import ConfigError
from dovetail.spark import launch, session
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


def test_a_program_cannot_leave_the_master_of_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = {"spark.master": "spark://host:7077"}
    monkeypatch.setattr(launch, "_elsewhere", lambda: submitted)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert launch._all_settings({})["spark.master"] == "spark://host:7077"
    assert launch._all_settings(submitted)["spark.master"] == "spark://host:7077"
    with pytest.raises(ConfigError, match=r"with master spark://host:7077, and it asks for local\[2\]. Leave"):
        launch._all_settings({"spark.master": "local[2]"})
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")  # settings in files are not spark-submit's: the program wins
    assert launch._all_settings({"spark.master": "local[2]"})["spark.master"] == "local[2]"


def test_a_session_on_a_cluster_says_what_it_took_from_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted = {"spark.master": "yarn", "spark.x.password": "hidden", "spark.y": "1"}
    monkeypatch.setattr(launch, "_elsewhere", lambda: submitted)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    given = {"spark.y": "2"}
    launch._report({"spark.z": "3"} | submitted | given, given)
    assert capsys.readouterr().err.splitlines() == [
        "dovetail: from the program: spark.y=2",
        "dovetail: from spark-submit: spark.master=yarn, spark.x.password=***",
        "dovetail: from Dovetail: spark.z=3",
        "dovetail: Python of executors: ./environment/bin/python",
    ]


def test_a_session_on_a_cluster_prints_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "_elsewhere", dict)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    options = "-Xmx1g -Djavax.net.ssl.keyStorePassword=S3CRET -Dx=1"
    settings = {
        "spark.hadoop.fs.azure.account.key.acc.blob.core.windows.net": "S3CRET",
        "spark.hadoop.fs.s3a.encryption.key": "S3CRET",
        "spark.jars.repositories": "https://user:S3CRET@repo/maven,https://S3CRET@repo/more",
        "spark.executorEnv.DB": "postgresql://u:S3CR'ET@h/db?sslkey=/k",
        "spark.executor.extraJavaOptions": options,
    }
    launch._report(settings, settings)
    printed = capsys.readouterr().err
    assert "S3CR" not in printed
    for part in ("-Xmx1g", "-Dx=1", "user:***@repo/maven", "postgresql://u:***@h/db?sslkey=/k"):
        assert part in printed


def test_a_running_session_names_no_secret_that_it_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_set_runtime", lambda spark, given: None)
    monkeypatch.setattr(session, "_current", lambda spark, key: "OLD")
    running: Any = SimpleNamespace(conf=SimpleNamespace(isModifiable=lambda key: False))
    given = {"spark.hadoop.fs.s3a.secret.key": "NEW", "spark.jars.repositories": "https://u:NEW@repo"}
    with pytest.raises(
        ConfigError, match=r"secret\.key=\*\*\* \(it is \*\*\*\), .*=https://u:\*\*\*@repo \(it is OLD\)"
    ):
        session._reuse(running, given)


def test_executors_find_a_package_that_is_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_elsewhere", dict)
    monkeypatch.setattr(launch, "archive", lambda: tmp_path / "dovetail.zip")
    found = launch._all_settings({"spark.master": "yarn"})["spark.executorEnv.PYTHONPATH"]
    assert found == "dovetail.zip"  # in their working directory
    assert launch._all_settings({"spark.master": "local"})["spark.executorEnv.PYTHONPATH"] == f"{tmp_path}/dovetail.zip"
