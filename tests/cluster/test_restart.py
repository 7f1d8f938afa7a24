"""Streams whose driver is killed go on from another host, with other executors, partitions, memory and Dovetail.

`CLUSTER_MOMENTS=20` kills it as many times.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests import oracle
from tests.cluster.conftest import APPLICATION
from tests.cluster.faults import CHANCE, MOMENTS, SEED
from tests.cluster.hosts import DATA, DRIVER, ROOT, WORKERS, Host, on
from tests.cluster.store import read_tables
from tests.cluster.test_families import ENRICHED, LEFT, MASTER, ONLINE, ORDERS, RIGHT, write_files

from dovetail.engine.storage import files
from dovetail.engine.storage.remote import Remote
from dovetail.joins.semistream.master.page_file.writer import write_pages

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

[source.orders]
type = "parquet"
path = "{shared}/orders"
stream = true
options = {{ maxFilesPerTrigger = 1 }}

[master.words]
type = "pages"
path = "{shared}/words.pages"

[join.carried]
type = "enrich"
stream = "orders"
master = "words"
on = "k"
how = "left"
mode = "carry"

[sink.known]
type = "parquet"
from = "carried"
path = "{shared}/known"
"""
KILLS = max(2, MOMENTS)
FILES = 2 + 3 * KILLS // 2
"""Of each source, one a micro-batch: enough to be killed in each run."""
HOSTS = (DRIVER, *WORKERS)


class Start(NamedTuple):
    """How the pipeline is started: on a host, with executors, shuffle partitions and memory, and another Dovetail."""

    host: Host
    executors: int
    partitions: int
    memory: str
    is_other: bool


def starts() -> Iterator[Start]:
    """Each on another host than the last, with other executors, partitions, and patch version of Dovetail."""
    executors, partitions = cycle((3, 1, 2)), cycle((3, 5, 2))
    for at in range(KILLS + 1):
        host = HOSTS[at % len(HOSTS)]
        yield Start(host, next(executors), next(partitions), CHANCE.choice(("4MB", "8MB")), at % 2 == 1)


LOG = DATA / "restart.log"


def start(shared: Remote, how: Start) -> subprocess.Popen[bytes]:
    """The pipeline with its driver on a host; its output goes to a file."""
    host, executors, partitions, memory, is_other = how
    settings = APPLICATION | {"spark.master": os.environ["CLUSTER_MASTER"], "spark.cores.max": str(executors)}
    settings |= {"spark.sql.shuffle.partitions": str(partitions)}
    if is_other:
        settings["spark.executorEnv.PYTHONPATH"] = os.environ["CLUSTER_OTHER"]
    table = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())
    given = [f"pipeline.spark={{ {table} }}", *(f"join.{name}.memory={memory}" for name in ("pairs", "carried"))]
    path = os.environ["CLUSTER_OTHER"] if is_other else str(ROOT / "src")
    command = ["sh", "-c", f'cat > pairs.toml && export PYTHONPATH={path} && dovetail --version && exec dovetail "$@"']
    command += ["sh", "run", "pairs.toml"]  # hosts share no directory to put it into
    command += [word for one in given for word in ("--set", one)]
    if host != DRIVER:
        command = ["nsenter", "--target", "1", "--mount", "--net", *on(host, command)]
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
    assert process.stdin
    process.stdin.write(PIPELINE.format(shared=shared).encode())
    process.stdin.close()
    return process


def commits(shared: Remote) -> int:
    """Micro-batches of both queries that are committed."""
    found = [files.names(shared / "checkpoint" / sink / "commits") for sink in ("out", "known")]
    return sum(max((1 + int(name) for name in names if name.isdigit()), default=0) for names in found)


@pytest.mark.timeout(240 + 90 * KILLS)
def test_the_driver_is_killed_and_restarted_on_another_host(
    shared: Remote, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    write_files(shared / "left", LEFT, FILES)
    write_files(shared / "right", RIGHT, FILES)
    write_files(shared / "orders", ORDERS, FILES)
    write_pages(shared / "words.pages", pa.Table.from_pylist(MASTER), key="k")
    for at, how in enumerate(starts()):
        process, is_last = start(shared, how), at == KILLS
        request.addfinalizer(lambda process=process: (process.kill(), process.wait()))
        wanted, pause_s = commits(shared) + CHANCE.randrange(1, 3), CHANCE.uniform(0.0, 2.0)
        while process.poll() is None and (is_last or commits(shared) < wanted):
            time.sleep(0.1)
        if not is_last:
            time.sleep(pause_s)
            assert process.poll() is None, LOG.read_text()[-6000:]
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        assert code == (0 if is_last else -signal.SIGKILL), LOG.read_text()[-3000:]
        with capsys.disabled():
            print(f"\nCLUSTER_SEED={SEED}, {how}: {commits(shared)} of {2 * FILES} micro-batches", flush=True)
    found = read_tables(shared / "out", [*LEFT[0], *RIGHT[0]])
    assert oracle.bag(tuple(row.values()) for row in found.to_pylist()) == ONLINE
    known = read_tables(shared / "known", ["order", "k", "word"])
    assert oracle.bag(tuple(row.values()) for row in known.to_pylist()) == ENRICHED
    versions = re.findall(r"^dovetail (\S+)$", LOG.read_text(), re.MULTILINE)
    assert len(versions) == KILLS + 1
    assert versions[0] == versions[2] != versions[1]
