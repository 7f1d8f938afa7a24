"""A stream whose driver is killed goes on from another host, with other executors, partitions and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import oracle
from tests.cluster.conftest import APPLICATION
from tests.cluster.hosts import DATA, DRIVER, WORKERS, Host, on
from tests.cluster.store import read_tables
from tests.cluster.test_families import LEFT, ONLINE, RIGHT, write_files
from tests.cluster.test_faults import CHANCE, SEED

from dovetail.engine import files
from dovetail.engine.remote import Remote

PIPELINE = """
[pipeline]
name = "pairs"
checkpoint = "{shared}/checkpoint"
trigger = "availableNow"

[source.left]
type = "parquet"
path = "{shared}/left"
stream = true
options = {{ maxFilesPerTrigger = 1 }}

[source.right]
type = "parquet"
path = "{shared}/right"
stream = true
options = {{ maxFilesPerTrigger = 1 }}

[join.pairs]
type = "online_join"
left = "left"
right = "right"
on = [["l_k", "r_k"]]
owed = "batch"
retain = "1 hour"

[sink.out]
type = "parquet"
from = "pairs"
path = "{shared}/out"
"""
RUNS: tuple[tuple[Host, int, int, str], ...] = (
    (DRIVER, 3, 3, "4MB"),
    (WORKERS[0], 1, 5, "8MB"),
    (WORKERS[1], 2, 2, "4MB"),
)
"""Host of the driver, executors, shuffle partitions and memory of each start."""
FILES = 8
LOG = DATA / "restart.log"


def start(shared: Remote, host: Host, executors: int, partitions: int, memory: str) -> subprocess.Popen[bytes]:
    """The pipeline with its driver on a host; its output goes to a file."""
    settings = APPLICATION | {"spark.master": os.environ["CLUSTER_MASTER"], "spark.cores.max": str(executors)}
    settings |= {"spark.sql.shuffle.partitions": str(partitions)}
    table = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())
    given = (f"pipeline.spark={{ {table} }}", f"join.pairs.memory={memory}")
    command = ["sh", "-c", 'cat > pairs.toml && exec "$@"', "sh"]  # hosts share no directory to put it into
    command += [str(Path(sys.executable).with_name("dovetail")), "run", "pairs.toml"]
    command += [word for one in given for word in ("--set", one)]
    if host != DRIVER:
        command = ["nsenter", "--target", "1", "--mount", "--net", *on(host, command)]
    with LOG.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    assert process.stdin
    process.stdin.write(PIPELINE.format(shared=shared).encode())
    process.stdin.close()
    return process


def commits(shared: Remote) -> int:
    found = files.names(shared / "checkpoint" / "out" / "commits")
    return max((1 + int(name) for name in found if name.isdigit()), default=0)


@pytest.mark.timeout(600)
def test_the_driver_is_killed_and_restarted_on_another_host(
    shared: Remote, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    write_files(shared / "left", LEFT, FILES)
    write_files(shared / "right", RIGHT, FILES)
    told = []
    for run in RUNS:
        process, is_last = start(shared, *run), run == RUNS[-1]
        request.addfinalizer(lambda process=process: (process.kill(), process.wait()))
        wanted, pause_s = commits(shared) + CHANCE.randrange(1, 3), CHANCE.uniform(0.0, 1.0)
        while process.poll() is None and (is_last or commits(shared) < wanted):
            time.sleep(0.1)
        if not is_last and process.poll() is None:
            time.sleep(pause_s)
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        told.append(f"{run[0].name}: {commits(shared)} of {FILES} micro-batches")
        assert code in (0, -signal.SIGKILL), LOG.read_text()[-3000:]
    assert code == 0
    found = read_tables(shared / "out", [*LEFT[0], *RIGHT[0]])
    assert oracle.bag(tuple(row.values()) for row in found.to_pylist()) == ONLINE
    with capsys.disabled():
        print(f"\nCLUSTER_SEED={SEED}, {'; '.join(told)}")
