"""Files on HDFS keep the promises of those elsewhere: seen whole, created by one, gone when removed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.hdfs import ADDRESS, hdfs_place_for

from dovetail.engine.storage import files
from dovetail.engine.storage.hdfs import HdfsAccess
from dovetail.engine.storage.remote import Remote, RemoteFile, fill_ranges
from dovetail.errors import PlanError
from dovetail.spark.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Remote:
    """A directory of its own."""
    return hdfs_place_for(str(request.node.name))


def test_a_file_is_written_read_listed_and_removed(place: Remote) -> None:
    assert files.names(place) == []
    assert files.size(place / "a") is None
    files.write(place / "a", b"first")
    files.write(place / "a", b"second one")
    assert files.read(place / "a") == files.read_small(place / "a") == b"second one"
    assert files.read_range(place / "a", 7, 3) == b"one"
    (entry,) = files.entries(place)
    assert (entry.name, entry.size) == ("a", 10)
    assert entry.changed_at > 1.7e9
    files.remove(place / "a")
    files.remove(place / "a")
    assert files.names(place) == []
    with pytest.raises(FileNotFoundError):
        files.read(place / "a")


def test_one_of_many_creates_a_file(place: Remote) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: files.create(place / "only", b"%d" % n), range(24)))
    assert sum(made) == 1
    assert files.read(place / "only") == b"%d" % made.index(True)
    assert files.names(place) == ["only"]


def test_a_file_is_seen_when_it_is_finished(place: Remote) -> None:
    out = files.Output(place / "large")
    data = bytes(range(256)) * 20_000
    out.write(data[:1_000_000])
    assert files.size(place / "large") is None
    out.write(pa.py_buffer(data[1_000_000:]))
    out.finish()
    assert files.size(place / "large") == len(data)
    with closing(RemoteFile(place / "large")) as file:
        assert bytes(file.read_all()) == data
        runs = [(0, 10, 0, 100), (0, 3_000_000, 100, 1_500_100)]
        view = memoryview(bytearray(1_500_100))
        fill_ranges([file], list(zip(*runs, strict=True)), view)
    assert bytes(view) == data[10:110] + data[3_000_000:4_500_000]
    assert bytes(files.mapped(place / "large")) == data
    other = files.Output(place / "given up")
    other.write(b"x")
    other.abort()
    assert files.names(place) == ["large"]
    files.remove_tree(place)
    assert files.names(place) == []


def test_arrow_reads_and_writes(place: Remote) -> None:
    table = pa.table({"a": range(1000)})
    pq.write_table(table, (place / "x.parquet").path, filesystem=place.system)
    assert pq.read_table(place.path, filesystem=place.system) == table


def test_an_address_without_a_host_is_on_the_default_file_system(spark: SparkSession) -> None:
    with pytest.raises(PlanError, match="has no bucket or host"):
        place_of(spark, "hdfs:///a")
    assert str(files.located("hdfs:///a/b", default=ADDRESS)) == f"{ADDRESS}/a/b"


def test_a_name_service_is_known_from_the_settings_of_spark(spark: SparkSession) -> None:
    settings = {
        "dfs.nameservices": "shop",
        "dfs.ha.namenodes.shop": "one,two",
        "dfs.namenode.rpc-address.shop.one": "hdfs:1",
        "dfs.namenode.rpc-address.shop.two": "hdfs:8020",
        "dfs.client.failover.proxy.provider.shop": "any",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        place = place_of(spark, "hdfs://shop/data/service")
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert isinstance(place, Remote)
    assert place.access == HdfsAccess(tuple(sorted(settings.items())))
    files.write(place / "a", b"1")
    assert files.read(hdfs_place_for("service") / "a") == b"1"
