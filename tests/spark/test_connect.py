"""Spark Connect: a server of its own, our settings on it, every family of joins, and clear limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.quick_java import QUICK_JAVA


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_joins_run_over_connect_and_say_what_they_cannot_do(tmp_path: Path) -> None:
    # With SPARK_TESTING the server takes any free port and the client asks it which.
    env = os.environ | {"SPARK_TESTING": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", Path(__file__).with_name("connect_job.py"), tmp_path, QUICK_JAVA],
        env=env, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "all is well"
