"""A stream whose driver is killed goes on from another host, with other executors, partitions and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import oracle
from tests.cluster.conftest import APPLICATION
from tests.cluster.hosts import DRIVER, WORKERS, Host, on
from tests.cluster.test_families import LEFT, ONLINE, RIGHT, Rows
from tests.cluster.test_faults import CHANCE, SEED

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


def write(place: Path, rows: Rows) -> None:
    place.mkdir()
    schema = pa.schema([(name, pa.int64()) for name in rows[0]])
    for at in range(FILES):
        pq.write_table(pa.Table.from_pylist(rows[at::FILES], schema=schema), place / f"{at}.parquet")


def start(shared: Path, host: Host, executors: int, partitions: int, memory: str) -> subprocess.Popen[bytes]:
    """The pipeline with its driver on a host; its output goes to a file."""
    settings = APPLICATION | {"spark.master": os.environ["CLUSTER_MASTER"], "spark.cores.max": str(executors)}
    settings |= {"spark.sql.shuffle.partitions": str(partitions)}
    table = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())
    given = (f"pipeline.spark={{ {table} }}", f"join.pairs.memory={memory}")
    command = [str(Path(sys.executable).with_name("dovetail")), "run", str(shared / "pairs.toml")]
    command += [word for one in given for word in ("--set", one)]
    if host != DRIVER:
        command = ["nsenter", "--target", "1", "--mount", "--net", *on(host, command)]
    with (shared / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def commits(shared: Path) -> int:
    return max((1 + int(file.name) for file in (shared / "checkpoint" / "out" / "commits").glob("[0-9]*")), default=0)


@pytest.mark.timeout(600)
def test_the_driver_is_killed_and_restarted_on_another_host(
    shared: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    write(shared / "left", LEFT)
    write(shared / "right", RIGHT)
    (shared / "pairs.toml").write_text(PIPELINE.format(shared=shared))
    told = []
    for run in RUNS:
        process, is_last = start(shared, *run), run == RUNS[-1]
        request.addfinalizer(lambda process=process: (process.kill(), process.wait()))
        wanted, pause_s = commits(shared) + CHANCE.randrange(1, 3), CHANCE.uniform(0.0, 1.0)
        while process.poll() is None and (is_last or commits(shared) < wanted):
            time.sleep(0.05)
        if not is_last and process.poll() is None:
            time.sleep(pause_s)
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        told.append(f"{run[0].name}: {commits(shared)} of {FILES} micro-batches")
        assert code in (0, -signal.SIGKILL), (shared / "log").read_text()[-3000:]
    assert code == 0
    found = pq.read_table(sorted((shared / "out").glob("*.parquet"))).select([*LEFT[0], *RIGHT[0]])
    assert oracle.bag(tuple(row.values()) for row in found.to_pylist()) == ONLINE
    with capsys.disabled():
        print(f"\nCLUSTER_SEED={SEED}, {'; '.join(told)}")
