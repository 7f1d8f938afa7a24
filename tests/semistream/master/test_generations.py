"""New generations of a page file while old ones are read."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.page_files import write_ordered_pages

from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.page_file.holds import Holds
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore


def table(stamp: int, rows: int = 2000) -> pa.Table:
    return pa.table({"k": np.arange(rows), "stamp": np.full(rows, stamp)})


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_version_stays_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write_pages(path, table(1), "k", page="1KB")
    store = MasterStore.open(path)
    first, one = store.version(), store.at()
    write_pages(path, table(2), "k", page="1KB")
    assert store.version() != first
    two = store.at()
    again = store.at(first)
    assert (one.version, again.version, two.version) == (first, first, store.version())
    assert one.read(5, 2).equals(again.read(5, 2))
    assert set(two.read(0, 9)["stamp"].to_pylist()) == {2}
    assert store.prune(keep=2) == []
    assert store.prune(keep=1) == [first]
    assert names(path) == [".lock", "MANIFEST.json", "generation-2"]
    assert set(one.read(0, 9)["stamp"].to_pylist()) == {1}, "open files outlive pruning"
    with pytest.raises(PlanError, match="a whole number from 1"):
        store.prune(keep=0)


def test_versions_that_streams_need_are_not_pruned(tmp_path: Path) -> None:
    path, found = tmp_path / "p", []
    holds = Holds(path, "query")
    for stamp in range(4):
        write_pages(path, table(stamp, 20), "k", page="1KB")
        store = MasterStore.open(path)
        found.append(store.version())
        if stamp < 2:
            assert holds.take(4 + stamp, found[-1])
    assert store.prune(1) == [found[2]]
    holds.wait("a", found[:1])
    assert holds.take(7, found[3])  # micro-batches 4 and 5 cannot be replayed any more
    assert store.prune(1) == [found[1]]
    holds.wait("a", [])
    assert store.prune(1) == [found[0]]
    assert not holds.take(8, found[0])
    assert names(path / ".held" / "query") == [f"batch-7-{found[3]}"]
    write_pages(path, table(9, 20), "k", page="1KB")
    assert store.prune(1) == []
    assert store.prune(1, also_held=True) == [found[3]]


def test_where_nothing_can_be_held_is_told(tmp_path: Path) -> None:
    write_pages(tmp_path / "p", table(1, 20), "k", page="1KB")
    (tmp_path / "p" / ".held").write_text("")
    with pytest.raises(ConfigError, match=r"\.held cannot be written .*as_of='answered'"):
        Holds(tmp_path / "p", "query").take(0, MasterStore.open(tmp_path / "p").version())


def test_changed_pages(tmp_path: Path) -> None:
    path = tmp_path / "p"
    values = np.zeros(1000, np.int64)
    versions = []
    for change in ([], [5, 990], [], [0]):
        values[change] += 1
        write_pages(path, pa.table({"k": np.arange(1000) * 2, "v": values}), "k", page=160)
        versions.append(MasterStore.open(path).version())
    store = MasterStore.open(path)
    assert store.changed(versions[0], versions[1]).tolist() == [0, 99]
    assert store.changed(versions[1], versions[2]).tolist() == []
    assert store.changed(versions[1], versions[3]).tolist() == [0]
    write_pages(
        path, pa.table({"k": np.arange(1020) * 2, "v": np.append(values, np.zeros(20, np.int64))}), "k", page=160
    )
    assert store.changed(versions[3], store.version()).tolist() == [100, 101]
    write_ordered_pages(path, pa.table({"k": np.arange(1020), "v": np.arange(1020)}), "k", "none", page=160)
    assert store.changed(versions[3], store.version()) is None


def test_readers_see_whole_generations_while_one_writes_and_prunes(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write_ordered_pages(path, table(0), "k", "none", page="2KB")
    store, done, seen, wrong = MasterStore.open(path), threading.Event(), set[int](), list[str]()

    def read_all() -> None:
        while not done.is_set():
            pages = store.at()
            stamps = {s for page in range(len(pages.starts) - 1) for s in pages.read(page, 1)["stamp"].to_pylist()}
            homes = pages.home([pa.array(range(2000))])
            if len(stamps) != 1 or homes.min() < 0 or pages.starts[-1] != 2000:
                wrong.append(f"{pages.version}: stamps {stamps}")
            seen.update(stamps)
            pages.close()

    readers = [threading.Thread(target=read_all) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for stamp in range(1, 30):
            write_ordered_pages(path, table(stamp), "k", "none", page="2KB")
            store.prune(keep=1)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert len(seen) > 1
    assert names(path) == [".lock", "MANIFEST.json", "generation-30"]


def test_writers_at_once_all_commit(tmp_path: Path) -> None:
    path = tmp_path / "p"
    writers = [threading.Thread(target=write_pages, args=(path, table(n), "k")) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [name for name in names(path) if "gen" in name] == [f"generation-{n}" for n in range(1, 9)]
    assert MasterStore.open(path).version().startswith("8-")


def test_a_failed_build_leaves_no_trace_and_a_killed_one_is_removed_later(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write_pages(path, table(1), "k")
    before = MasterStore.open(path).version()
    killed, running = path / ".building-killed", path / ".building-running"
    for left_over in (killed, running):
        left_over.mkdir()
        (left_over / "0.rows").write_bytes(b"x")
    os.utime(killed, (time.time() - 100_000,) * 2)

    class BadError(Exception):
        pass

    def batches():  # type: ignore[no-untyped-def]  # a generator that fails
        yield table(2).to_batches()[0]
        raise BadError

    with pytest.raises(BadError):
        write_pages(path, batches(), "k")
    assert MasterStore.open(path).version() == before
    write_pages(path, table(2), "k")
    assert names(path) == [".building-running", ".lock", "MANIFEST.json", "generation-1", "generation-2"]


def test_a_full_disk_is_a_config_error(tmp_path: Path) -> None:
    import resource

    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    write_pages(tmp_path / "p", table(1), "k")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
    try:
        with pytest.raises(ConfigError, match=r"building .* failed: File too large"):
            write_pages(tmp_path / "p", table(2), "k")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert names(tmp_path / "p") == [".lock", "MANIFEST.json", "generation-1"]
