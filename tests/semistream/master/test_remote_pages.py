"""Page files and version logs in an object store: the rows of a local one, races, faults of the store."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from bench.rivals.object_store import KEY, SECRET, ObjectStore
from deltalake import write_deltalake
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from tests.semistream.frame.cases import rows_of
from tests.semistream.page_files import write_ordered_pages
from tests.semistream.range_files import write_range_pages

from dovetail.engine.storage import files, remote
from dovetail.engine.storage.remote import AT_ONCE, Remote, S3Access, overlapped
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.lake.delta import delta_source, storage_options
from dovetail.joins.semistream.master.lake.iceberg import iceberg_source, s3_properties
from dovetail.joins.semistream.master.page_file.holds import Holds, prune
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.parquet import ParquetSource
from dovetail.joins.semistream.master.store import _named
from dovetail.joins.semistream.request import Freshness
from dovetail.joins.semistream.versions import Batch, VersionLog, default_log

PER_BATCH = Freshness("per_batch")


@pytest.fixture
def server() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


def access(server: ObjectStore, attempts: int = 2) -> S3Access:
    return S3Access(server.endpoint, "us-east-1", KEY, SECRET, path_style=True, ssl=False, attempts=attempts)


def place_in(server: ObjectStore, name: str = "m.pages", attempts: int = 2) -> Remote:
    return Remote(f"s3a://data/{name}", access(server, attempts))


def source_of(place: Remote) -> PageFileSource:
    return PageFileSource(str(place), access=place.access)


def rows(n: int = 3000, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = rng.permutation(np.repeat(np.arange(n // 2), 2)[:n])
    return pa.table(
        {"k": keys, "n": rng.integers(0, 9, n), "text": [f"row {i} of key {k}" for i, k in enumerate(keys)]}
    )


@pytest.mark.parametrize("order", ["key", "none", "frequency"])
def test_pages_are_those_of_a_local_file(server: ObjectStore, tmp_path: object, order: str) -> None:
    table = rows()
    options = {"order": order, "page": 1024, "frequency": "n" if order == "frequency" else None}
    write_ordered_pages(place_in(server), table, "k", **options)  # type: ignore[arg-type]
    write_ordered_pages(f"{tmp_path}/m.pages", table, "k", **options)  # type: ignore[arg-type]
    far, near = source_of(place_in(server)).open(), PageFileSource(f"{tmp_path}/m.pages").open()
    assert far.starts.tolist() == near.starts.tolist()
    assert far.read(2, 5).equals(near.read(2, 5))
    first, count = np.array([0, 3, 40, 41]), np.array([2, 1, 1, 3])
    for one, other in zip(far.read_many(first, count), near.read_many(first, count), strict=True):
        assert one.equals(other) if isinstance(one, pa.RecordBatch) else one.tolist() == other.tolist()
    keys = [pa.array([5, 700, 1499, 10**9, None], pa.int64())]
    asked = [found.read_keys(keys, 1 << 20) for found in (far, near)]
    assert all(asked)
    assert rows_of(pa.table(asked[0])) == rows_of(pa.table(asked[1]))
    assert {row["k"] for row in asked[0].to_pylist()} == {5, 700, 1499}
    far.close(), near.close()


def test_near_pages_share_a_request_and_far_ones_are_asked_for_at_once(server: ObjectStore) -> None:
    write_pages(place_in(server), rows(60_000), "k", page=1024)
    found = source_of(place_in(server)).open()
    server.requests.clear()
    found.read_many(np.arange(0, 20, 2), np.ones(10, np.int64))
    assert server.requests["GET"] == 1
    server.requests.clear()
    server.latency_s = 0.1
    far = np.arange(0, len(found.starts) - 1, 120)
    start = time.monotonic()
    found.read_many(far, np.ones(len(far), np.int64))
    assert server.requests["GET"] == len(far) >= 10
    assert time.monotonic() - start < 0.1 * len(far) / 2
    found.close()


def test_many_requests_are_under_way_and_large_files_are_read_by_several(server: ObjectStore) -> None:
    server.put("large", bytes(range(256)) * (5 << 12))
    server.latency_s = 0.2
    assert files.read(place_in(server, "large")) == server.objects["large"].data
    assert files.mapped(place_in(server, "large")).to_pybytes() == server.objects["large"].data
    assert server.requests == {"HEAD": 2, "GET": 10}
    assert 2 <= server.most_at_once <= 5
    overlapped([partial(files.size, place_in(server, "large"))] * 3 * AT_ONCE)
    assert 25 < server.most_at_once <= AT_ONCE  # Arrow itself keeps 25 connections
    nested = overlapped([partial(files.read, place_in(server, "large"))] * AT_ONCE)
    assert {len(data) for data in nested} == {5 << 20}
    assert files.read(_put(server, "empty", b"")) == b""


def _put(server: ObjectStore, name: str, data: bytes) -> Remote:
    server.put(name, data)
    return place_in(server, name)


def test_ranges_and_rows_without_a_key_are_stored_too(server: ObjectStore) -> None:
    ranged = pa.table({"a": [1, 5, 20], "b": [4, 30, 25], "t": ["x", "y", "z"]})
    write_range_pages(place_in(server, "r.pages"), ranged, (), ("a", "b"))
    store = _named(source_of(place_in(server, "r.pages")))
    assert store.bounds == ("a", "b")
    assert "ranges a to b" in store.explain()
    table = pa.table({"k": [1, None, 2, None], "t": list("abcd")})
    write_ordered_pages(place_in(server), table, "k", "key", keep_nulls=True)
    found = source_of(place_in(server)).open()
    assert found.read_nulls().column("t").to_pylist() == ["b", "d"]
    found.close()


def test_a_pruned_version_stays_readable_where_it_is_open_and_a_held_one_stays(server: ObjectStore) -> None:
    place = place_in(server)
    versions = [write_pages(place, rows(100, seed), "k", page=512).version for seed in range(4)]
    assert source_of(place).versions() == versions
    reader = source_of(place).open(versions[1])
    assert Holds(place, "query").take(3, versions[0])
    assert prune(place, 1) == versions[1:3]
    assert reader.read(0, 2).num_rows
    assert source_of(place).versions() == [versions[0], versions[3]]
    with pytest.raises(ConfigError, match="pruned or removed"):
        source_of(place).open(versions[2])
    assert not Holds(place, "query").take(4, versions[2])
    assert prune(place, 1, also_held=True) == [versions[0]]
    assert source_of(place).version() == versions[3]
    reader.close()


def test_of_writers_at_the_same_time_each_builds_a_version_of_its_own(server: ObjectStore) -> None:
    server.latency_s = 0.002
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda seed: write_pages(place_in(server), rows(50, seed), "k").version, range(8)))
    assert len(set(built)) == 8
    assert set(source_of(place_in(server)).versions()) == set(built)


def test_the_first_of_many_tasks_logs_the_version_of_a_batch(server: ObjectStore) -> None:
    place = place_in(server)
    write_pages(place, rows(50), "k")
    store = _named(source_of(place))
    log = default_log(store).marked()
    assert log.path == "s3a://data/m.pages/.versions"
    first, found, gate = store.version(), list[str](), threading.Barrier(8)

    def task(at: int) -> None:
        gate.wait()
        if at == 4:
            write_pages(place, rows(50, at), "k")
        log.check_shared()
        found.append(log.entry(Batch("q", 0), PER_BATCH, store).version)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(task, range(8)))
    assert len(set(found)) == 1
    assert log.entry(Batch("q", 0), PER_BATCH, store).version == found[0]
    assert log.entry(Batch("q", 1), PER_BATCH, store).version == store.version() != first
    assert log.batches("q") == {0: found[0], 1: store.version()}
    assert log.dead_letter_writer("plan", "q") == log.dead_letter_writer("plan", "other") == "q"


def test_one_of_many_creates_a_file_and_a_store_that_lets_all_is_refused(server: ObjectStore) -> None:
    place = place_in(server, "race")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda at: files.create(place, b"%d" % at), range(16)))
    assert sum(won) == 1
    assert files.read(place) == b"%d" % won.index(True)
    server.forgetful = True
    with pytest.raises(ConfigError, match="conditional writes"):
        VersionLog("s3a://data/log", access=access(server)).marked()


def test_a_store_that_is_back_soon_is_waited_for_and_then_named_in_the_error(server: ObjectStore) -> None:
    write_pages(place_in(server), rows(50), "k")
    source = source_of(place_in(server))
    found = source.open()
    server.down = True
    for work in (source.version, lambda: found.read(0, 1), lambda: write_pages(place_in(server), rows(50), "k")):
        with pytest.raises(ConfigError, match=r"s3a://data/m\.pages") as error:
            work()
        assert SECRET not in str(error.value)
    threading.Timer(1.5, lambda: setattr(server, "down", False)).start()
    patient = place_in(server, attempts=9)
    assert write_pages(patient, rows(50), "k").number == 2
    assert source_of(patient).open().read(0, 1).num_rows
    found.close()


def test_places_hide_secrets_and_go_to_workers_with_them(server: ObjectStore) -> None:
    place = place_in(server)
    write_pages(place, rows(50), "k")
    store = _named(source_of(place))
    shown = f"{place!r} {place} {place.access!r} {store!r} {store.source} {default_log(store)!r} {store.explain()}"
    assert SECRET not in shown
    assert KEY not in shown
    assert pickle.loads(pickle.dumps(store)).at().read(0, 1).num_rows  # noqa: S301  (our own)


def test_paths_mean_what_they_mean_for_spark() -> None:
    assert str(files.located("/a/b")) == "/a/b"
    assert str(files.located("file:///a/b%20c")) == "/a/b c"
    assert str(files.located("file:/a#1/b?c")) == "/a#1/b?c"
    for address in ("s3a://KEY:HIDDEN@data/x", "S3A://KEY:HIDDEN@data/x", "gs://KEY:HIDDEN@data/x"):
        with pytest.raises(ConfigError, match="no keys in it") as caught:
            files.system_at(address, None)
        assert "HIDDEN" not in str(caught.value)
    assert str(files.located("/a/b", default="hdfs://name:8020")) == "hdfs://name:8020/a/b"
    assert str(files.located("file:/a", default="hdfs://name:8020")) == "/a"
    assert str(files.located("s3a://data/a/")) == "s3a://data/a"
    assert str(files.located("s3a://data//a///b c//")) == "s3a://data/a/b c"
    assert str(files.located("s3a://data//")) == "s3a://data"
    assert Remote("s3a://data/a #1?").path == "data/a #1?"
    assert Remote("hdfs://name:8020/a/b").path == "/a/b"
    for path, told in (("gs://data/a", "file system"), ("s3a:/data/a", "no bucket"), ("s3a://k@b/a", "no keys")):
        with pytest.raises(PlanError, match=told):
            files.located(path)


def test_a_place_that_has_no_page_file_is_said_so(server: ObjectStore) -> None:
    with pytest.raises(ConfigError, match=r"m\.pages does not exist"):
        source_of(place_in(server)).open()
    server.put("m.pages/strange.txt", b"x")
    with pytest.raises(ConfigError, match=r"strange\.txt"):
        write_pages(place_in(server), rows(50), "k")
    wrong = Remote(
        "s3a://data/other", S3Access(server.endpoint, "us-east-1", "stranger", "x", path_style=True, ssl=False)
    )
    with pytest.raises(ConfigError, match="s3a://data/other"):
        write_pages(wrong, rows(50), "k")


def test_a_write_that_a_store_does_not_settle_is_repeated_with_pauses_and_not_for_ever(
    server: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = list[float]()
    monkeypatch.setattr(remote, "_pause", pauses.append)
    server.unsettled = 3
    assert files.create(place_in(server, "one", attempts=5), b"1")
    assert pauses == sorted(set(pauses))
    assert len(pauses) == 3
    server.unsettled = 100
    with pytest.raises(OSError, match="ConditionalRequestConflict"):
        files.create(place_in(server, "two", attempts=5), b"1")
    assert server.unsettled == 95
    assert max(pauses) <= 20


def test_tables_and_parquet_files_are_read_with_the_access_of_spark(server: ObjectStore) -> None:
    table, reached = rows(500).sort_by("k"), access(server)
    options = storage_options(reached)
    write_deltalake("s3://data/delta", table, storage_options=options, partition_by=["n"])
    catalog = load_catalog("far", type="in-memory", warehouse="s3://data/house", **s3_properties(reached))
    catalog.create_namespace("db")
    catalog.create_table("db.t", table.schema).append(table)
    metadata = catalog.load_table("db.t").metadata_location
    place = place_in(server, "files/0.parquet")
    with place.system.open_output_stream(place.path) as stream:
        parquet.write_table(table, stream)
    stores = [
        _named(delta_source("s3a://data/delta", "k", reached)),
        _named(iceberg_source(None, metadata.replace("s3://", "s3a://"), "k", reached)),
        _named(ParquetSource("s3a://data/files", ("k",), reached)),
        _named(ParquetSource("s3://data/files", ("k",), reached)),
        _named(delta_source("s3://data/delta", "k", reached)),
    ]
    for store in stores:
        again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
        pages = again.at(store.version())
        found = pa.table(pages.read(0, len(pages.starts) - 1)).select(["k", "n", "text"])
        assert rows_of(found) == rows_of(table)
        assert SECRET not in repr(store) + str(store) + store.explain()


def test_logging_the_version_of_a_batch_takes_four_requests(server: ObjectStore) -> None:
    place = place_in(server)
    write_pages(place, rows(), "k", page="4KB")
    store, log = _named(source_of(place)), VersionLog(str(place / ".versions"), access=place.access)
    log.entry(Batch("q", 0), PER_BATCH, store)
    server.requests.clear()
    logged = log.entry(Batch("q", 1), PER_BATCH, store)
    # Lists the log and the versions, reads the newest one's description, and writes the entry.
    assert server.requests == {"GET": 3, "PUT": 1}
    server.requests.clear()
    assert log.entry(Batch("q", 1), PER_BATCH, store) == logged  # a replay
    assert server.requests == {"GET": 2}
