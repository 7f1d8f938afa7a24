"""A pipeline file on the cluster: `dovetail run`, with the master in the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from tests import oracle
from tests.cluster.conftest import APPLICATION
from tests.cluster.hosts import DATA
from tests.cluster.store import read_tables
from tests.cluster.test_families import ENRICHED, MASTER, ORDERS, write_files

from dovetail.engine.storage.remote import Remote
from dovetail.joins.semistream.master.page_file.writer import write_pages

PIPELINE = """
[pipeline]
name = "orders"
checkpoint = "{shared}/checkpoint"
spark = {settings}

[source.orders]
type = "parquet"
path = "{shared}/in"
stream = true
schema = "order long, k long"

[master.words]
type = "pages"
path = "{shared}/words.pages"

[join.enriched]
type = "enrich"
stream = "orders"
master = "words"
on = "k"
how = "left"
memory = "4MB"

[sink.out]
type = "parquet"
from = "enriched"
path = "{shared}/out"
"""
SETTINGS = APPLICATION | {"spark.master": os.environ["CLUSTER_MASTER"], "spark.cores.max": "1"}


def run(shared: Remote) -> subprocess.CompletedProcess[str]:
    write_files(shared / "in", ORDERS, 1)
    write_pages(shared / "words.pages", pa.Table.from_pylist(MASTER), key="k")
    settings = "{" + ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in SETTINGS.items()) + "}"
    file = DATA / f"{shared.name}.toml"
    file.write_text(PIPELINE.format(shared=shared, settings=settings))
    command = [Path(sys.executable).with_name("dovetail"), "run", file, "--once"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_pipeline_runs_on_the_cluster(shared: Remote) -> None:
    done = run(shared)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"spark.master={SETTINGS['spark.master']}" in done.stderr
    found = read_tables(shared / "out", ["order", "k", "word"])
    assert oracle.bag(tuple(row.values()) for row in found.to_pylist()) == ENRICHED
