"""All that works over Spark Connect works with a server whose executors are on the hosts of the cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.rivals.object_store import KEY, SECRET
from tests.cluster.conftest import APPLICATION
from tests.cluster.hosts import DATA, ROOT

from dovetail.spark.settings import SETTINGS

PORT = 15002


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server with our settings, which a client cannot set."""
    settings = {setting.key: setting.value for setting in SETTINGS} | APPLICATION | {"spark.cores.max": "2"}
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = [f"{os.environ['SPARK_HOME']}/bin/spark-submit", "--class", name]
    with (DATA / "connect.log").open("wb") as log:
        command = [*submit, "--master", os.environ["CLUSTER_MASTER"], *options]
        env = os.environ | {"SPARK_DAEMON_MEMORY": "1g"}  # the server takes this, not the memory of a driver
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        _wait_for(process)
        yield f"sc://localhost:{PORT}"
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while not _answers():
        assert process.poll() is None, (DATA / "connect.log").read_text()[-3000:]
        assert time.monotonic() < end, "the server does not answer"
        time.sleep(0.2)


def _answers() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", PORT)) == 0


def run(server: str, *command: object) -> None:
    env = os.environ | {"SPARK_REMOTE": server, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    done = subprocess.run([sys.executable, *map(str, command)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_every_family_over_spark_connect(server: str, mounted: Path) -> None:
    """With all files at s3a:, and then what is refused, and pages, letters and answers on a mounted directory."""
    families = Path(__file__).with_name("test_families.py")
    checks = ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", families]
    run(server, *checks)
    run(server, ROOT / "tests" / "spark" / "connect_job.py", mounted, "", server)
