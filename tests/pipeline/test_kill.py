"""A pipeline killed twice ends with the tables of one that was left alone; `tests.pipeline.kills` does it at length."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from tests.pipeline.kills import PIPELINE, SECRET, Killer, compare, copied, tables
from tests.semistream.master.server import Server

from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.run import Run, watch_of

SMALL = [
    "source.orders.options.rows=800",
    "source.shipments.options.rows=800",
    "source.orders.options.rows_per_batch=200",
    "source.shipments.options.rows_per_batch=200",
]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_twice(spark: SparkSession, postgres: Server, tmp_path: Path) -> None:
    postgres.execute("CREATE DATABASE alone", "CREATE DATABASE killed")
    alone, killed = (postgres.url.removesuffix("/postgres") + f"/{name}" for name in ("alone", "killed"))
    first, second = copied(PIPELINE, tmp_path / "alone"), copied(PIPELINE, tmp_path / "killed")
    pipeline = read_pipeline(first, SMALL, os.environ | {SECRET: alone})
    Run(spark, pipeline, watch_of(pipeline), once=True, console=Console(quiet=True)).go()
    killer = Killer(second, killed, SMALL, seed=11)
    killer.run(2)
    assert killer.killed == 2
    assert len(compare(tables(first, alone), tables(second, killed))) == 3
