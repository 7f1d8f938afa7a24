"""Files on HDFS keep the promises of those elsewhere: seen whole, created by one, gone when removed."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.hdfs import ADDRESS, hdfs_place_for
from tests.cluster.test_families import BOUNDS, LEFT, ON, PAIRS, RIGHT, bag, expected, frame

import dovetail
from dovetail.engine.storage import files
from dovetail.engine.storage.hdfs import HdfsAccess
from dovetail.engine.storage.remote import Remote, RemoteFile, fill_ranges
from dovetail.errors import ConfigError, PlanError
from dovetail.spark.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Remote:
    """A directory of its own."""
    return hdfs_place_for(f"hdfs-{request.node.nodeid.encode().hex()[-40:]}")


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


def test_what_was_there_stays_when_a_file_is_given_up(place: Remote) -> None:
    files.write(place / "a", b"old")
    other = files.Output(place / "a")
    other.write(b"half")
    other.abort()
    assert files.read(place / "a") == b"old"
    with suppress(ZeroDivisionError), (place / "a").created() as stream:
        stream.write(b"half")
        raise ZeroDivisionError
    assert files.read(place / "a") == b"old"
    with pytest.raises(OSError, match="HDFS"):  # a directory has the name
        files.write(place.parent / place.name, b"x")
    assert files.names(place) == ["a"]
    assert not [name for name in files.names(place.parent) if name.startswith(".")]
    with pytest.raises(NotADirectoryError):
        files.names(place / "a")


def test_a_file_of_a_step_replaces_that_of_an_earlier_attempt(place: Remote) -> None:
    for text in (b"first", b"second"):
        files.write(place / "_staged", text)
        place.system.move((place / "_staged").path, (place / "shown").path)
    assert files.read(place / "shown") == b"second"
    assert files.names(place) == ["shown"]


def test_an_address_may_leave_out_the_port(place: Remote) -> None:
    files.write(place / "a", b"1")
    assert files.read(Remote(str(place / "a").replace(":8020", ""))) == b"1"


@pytest.mark.parametrize("host", ["hdfs:9998", "nosuch:8020"])
def test_a_name_node_that_is_not_there_is_said_so(host: str) -> None:
    with pytest.raises(ConfigError, match=f"the name node hdfs://{host} cannot be reached"):
        files.read(Remote(f"hdfs://{host}/x"))


def test_errors_are_one_line(place: Remote) -> None:
    with pytest.raises(OSError, match="HDFS") as error:
        files.write(place / "a:b", b"1")
    assert "\tat " not in str(error.value)
    assert "\\tat " not in str(error.value)


def test_a_forked_process_is_refused(place: Remote) -> None:
    files.write(place / "a", b"1")
    assert files.read(place / "a") == b"1"
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        error = pool.submit(files.read, place / "a").exception(20)
    assert isinstance(error, ConfigError)
    assert "forked from one that has used HDFS" in str(error)


def test_paths_without_a_scheme_are_on_the_default_file_system(spark: SparkSession, place: Remote) -> None:
    """What Spark writes there is found there, and what is written there Spark finds."""
    spark.conf.set("fs.defaultFS", ADDRESS)
    try:
        left, right = frame(spark, LEFT), frame(spark, RIGHT)
        for path in (place.path, f"hdfs://{place.path}", f"hdfs:{place.path}"):
            dovetail.plan_interval_join(left, right, on=ON, **BOUNDS).write_parquet(path, mode="overwrite")
            assert bag(spark.read.parquet(str(place))) == expected(PAIRS)
            files.remove_tree(place)
        files.write(place / "a.xml", b"<rows><row>1</row></rows>")
        for path in (place.path, f"hdfs://{place.path}", f"hdfs:{place.path}"):
            [row] = dovetail.xquery(spark, 'collection("/r")//row/data()', {"/r": path}).collect()
            assert row.item == "1"
        with pytest.raises(PlanError, match="relative path"):
            dovetail.MasterStore.open("words.pages")
    finally:
        spark.conf.unset("fs.defaultFS")


@pytest.mark.parametrize("name", ["a b", "5%", "a#b", "ü"])
def test_tables_at_odd_places(spark: SparkSession, tmp_path: Path, place: Remote, name: str) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"k": [1, 2], "word": ["x", "y"]}))
    for file in (found for found in (tmp_path / "t").rglob("*") if found.is_file()):
        files.write(place / name / str(file.relative_to(tmp_path / "t")), file.read_bytes())
    with closing(dovetail.MasterStore.delta(f"{place}/{name}", key="k").at()) as pages:
        assert pages.read(0, len(pages.starts) - 1).num_rows == 2


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
    assert isinstance(place.access, HdfsAccess)
    assert set(settings.items()) <= set(place.access.settings)
    files.write(place / "a", b"1")
    assert files.read(hdfs_place_for("service") / "a") == b"1"
