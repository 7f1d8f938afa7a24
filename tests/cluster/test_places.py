"""A path that is another disk on each host is refused, with what to do, wherever tasks would use it.

One that all hosts mount is taken: these are the only checks that use such a directory.
"""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.hosts import DATA
from tests.cluster.test_families import BOUNDS, LEFT, MASTER, ON, ORDERS, RIGHT, frame, stream

import dovetail
from dovetail import MasterStore
from dovetail.engine.storage.remote import Remote
from dovetail.joins.semistream.master.page_file.writer import write_pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = r"{}: .* is not one place for all hosts of this cluster: worker1, worker2, worker3 do not see there what the"


@pytest.fixture
def own() -> Path:
    """A directory of the driver alone."""
    place = DATA / uuid.uuid4().hex
    place.mkdir()
    return place


def refuses(what: str) -> Any:
    return pytest.raises(dovetail.ConfigError, match=REFUSED.format(what))


def local_stores(place: Path) -> list[MasterStore]:
    table = pa.Table.from_pylist(MASTER)
    write_pages(place / "m.pages", table, key="k")
    pq.write_table(table, place / "m.parquet")
    with sqlite3.connect(place / "m.db") as connection:
        connection.execute("create table m (k integer primary key, word integer)")
    connection.close()
    return [
        MasterStore.open(place / "m.pages"),
        MasterStore.parquet(place / "m.parquet", key="k"),
        MasterStore.sqlite(place / "m.db", "m", key="k"),
    ]


def test_master_data(spark: SparkSession, own: Path) -> None:
    for store in local_stores(own):
        with refuses("the master data"):
            dovetail.enrich(frame(spark, ORDERS), store, on="k", memory="4MB")
    with refuses("the page file"):
        MasterStore.build(frame(spark, MASTER), own / "built.pages", key="k")
    assert not (own / "built.pages").exists()


def test_what_enrich_writes(spark: SparkSession, own: Path, mounted: Path, shared: Remote) -> None:
    write_pages(mounted / "m.pages", pa.Table.from_pylist(MASTER), key="k")
    store = MasterStore.open(mounted / "m.pages")
    with refuses("dead letters"):
        dovetail.enrich(frame(spark, ORDERS), store, on="k", on_miss=dovetail.dead_letter(own / "letters"))
    with refuses("the versions of micro-batches"):
        dovetail.enrich(stream(spark, shared / "in", ORDERS), store, on="k", versions=str(own / "log"))


def test_dead_letters_on_a_mounted_directory(spark: SparkSession, mounted: Path) -> None:
    write_pages(mounted / "m.pages", pa.Table.from_pylist(MASTER), key="k")
    store = MasterStore.open(mounted / "m.pages")
    misses = dovetail.dead_letter(mounted / "letters")
    found = dovetail.enrich(frame(spark, ORDERS), store, on="k", memory="4MB", on_miss=misses).count()
    known = {row["k"] for row in MASTER}
    assert found == sum(row["k"] in known for row in ORDERS)
    assert spark.read.parquet(str(mounted / "letters")).count() == len(ORDERS) - found


def test_files_of_an_interval_join(spark: SparkSession, own: Path, mounted: Path) -> None:
    plan = dovetail.plan_interval_join(frame(spark, LEFT), frame(spark, RIGHT), on=ON, **BOUNDS)
    with refuses("the answer"):
        plan.write_parquet(str(own / "out"))
    rows = plan.write_parquet(str(mounted / "out")).value("rows written")
    assert rows == spark.read.parquet(str(mounted / "out")).count()


PIPELINE = """
[pipeline]
name = "p"
[source.rows]
type = "parquet"
path = "{source}"
[sink.out]
type = "parquet"
from = "rows"
path = "{sink}"
"""


def test_sinks_and_checkpoints_of_a_pipeline(spark: SparkSession, own: Path, mounted: Path) -> None:
    from dovetail.pipeline.checkpoint import Checkpoint
    from dovetail.pipeline.file.read import read_pipeline
    from dovetail.pipeline.sinks.write import _require_shared

    file = own / "p.toml"
    file.write_text(PIPELINE.format(source=mounted / "in", sink=own / "out"))
    pipeline = read_pipeline(file, ())
    with refuses("path"):
        _require_shared(spark, pipeline.of("sink")[0])
    with refuses("checkpoint"), Checkpoint(spark, pipeline, str(own / "checkpoint")):
        pass
    with Checkpoint(spark, pipeline, str(mounted / "checkpoint")):
        pass


def test_files_of_an_xquery(spark: SparkSession, own: Path) -> None:
    (own / "a.xml").write_text("<r><x>1</x></r>")
    query = 'for $x in collection("/c")/r/x return data($x)'
    with pytest.raises(dovetail.ConfigError, match="Every worker must be able to read every file of a collection"):
        dovetail.xquery(spark, query, {"/c": str(own)}).collect()
