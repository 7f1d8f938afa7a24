"""The log of versions: one entry a batch, whichever task asks first, and the same ever after."""

from __future__ import annotations

import os
import threading
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from tests.semistream.frame.cases import page_store

from dovetail.errors import ConfigError
from dovetail.joins.semistream.request import Freshness
from dovetail.joins.semistream.versions import Batch, VersionLog, default_log, keeps_versions, log_of, sync_file

PER_BATCH, PINNED = Freshness("per_batch"), Freshness("pinned")


def test_a_batch_keeps_its_version_and_later_ones_take_the_newest(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    log, first = default_log(store), store.version()
    assert keeps_versions(store)
    assert log.entry(Batch("q", 0), PER_BATCH, store).version == first
    page_store(tmp_path / "m.pages", pa.table({"k": [2]}))
    second = store.version()
    assert log.entry(Batch("q", 0), PER_BATCH, store).version == first
    assert log.entry(Batch("q", 1), PER_BATCH, store).version == second
    assert log.entry(Batch("other", 0), PER_BATCH, store).version == second
    assert log.batches("q") == {0: first, 1: second}


def test_an_entry_may_reach_the_disk_later_and_one_that_did_not_is_written_again(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    log, later = default_log(store), list[Path]()
    first = log.entry(Batch("q", 0), PER_BATCH, store, defer=later.append).version
    page_store(tmp_path / "m.pages", pa.table({"k": [2]}))
    assert log.entry(Batch("q", 0), PER_BATCH, store, defer=later.append).version == first
    assert later == [log.place(Batch("q", 0), PER_BATCH)]
    sync_file(later[0])
    later[0].write_bytes(b"")  # what a loss of power can leave of a file whose name is there
    os.utime(later[0], (0, 0))
    assert log.entry(Batch("q", 0), PER_BATCH, store).version == store.version() != first
    assert log.batches("q") == {0: store.version()}


def test_stores_that_share_a_directory_keep_their_own_versions(tmp_path: Path) -> None:
    stores = [page_store(tmp_path / f"{at}.pages", pa.table({"k": [at]})) for at in range(2)]
    logs = [log_of(store, str(tmp_path / "log")) for store in stores]
    for _ in range(2):
        for log, store in zip(logs, stores, strict=True):
            assert log.entry(Batch("q", 0), PER_BATCH, store).version == store.version()


def test_an_entry_of_a_former_release_counts(tmp_path: Path) -> None:
    """Entries of a query lay in the directory itself, whatever store they were of."""
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    first = store.version()
    for freshness in (PER_BATCH, PINNED):
        VersionLog(str(tmp_path / "log")).entry(Batch("q", 3), freshness, store)
    page_store(tmp_path / "m.pages", pa.table({"k": [2]}))
    other = page_store(tmp_path / "other.pages", pa.table({"k": [1]}))
    log = log_of(store, str(tmp_path / "log"))
    assert log.entry(Batch("q", 3), PER_BATCH, store).version == first
    assert log.entry(Batch("q", 9), PINNED, store).version == first
    assert log.entry(Batch("q", 4), PER_BATCH, store).version == store.version() != first
    assert log_of(other, str(tmp_path / "log")).entry(Batch("q", 3), PER_BATCH, other).version == other.version()


def test_a_directory_that_is_not_the_drivers_is_refused(tmp_path: Path) -> None:
    log = VersionLog(str(tmp_path / "log")).marked()
    assert VersionLog(str(tmp_path / "log")).marked() == log
    (tmp_path / "log").rename(tmp_path / "away")
    with pytest.raises(ConfigError, match=r"does not see what the driver wrote to .*log.* Give enrich one"):
        log.check_shared()
    VersionLog(str(tmp_path / "log")).marked()
    with pytest.raises(ConfigError, match="does not see what the driver wrote"):
        log.check_shared()
    VersionLog(str(tmp_path / "log")).check_shared()


def test_pinned_is_for_good_and_ttl_for_a_while(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    log, first = VersionLog(str(tmp_path / "log")), store.version()
    brief, long = Freshness("ttl", 0.2), Freshness("ttl", 3600)
    for query, freshness in (("p", PINNED), ("b", brief), ("l", long)):
        assert log.entry(Batch(query, 0), freshness, store).version == first
    page_store(tmp_path / "m.pages", pa.table({"k": [2]}))
    second = store.version()
    assert log.entry(Batch("p", 7), PINNED, store).version == first
    assert log.entry(Batch("l", 1), long, store).version == first
    taken = log.entry(Batch("b", 0), brief, store).taken_at
    while time.time() - taken < 0.2:
        time.sleep(0.02)
    assert log.entry(Batch("b", 1), brief, store).version == second
    assert log.entry(Batch("b", 0), brief, store).version == first


def test_many_ask_at_once_and_hear_the_same(tmp_path: Path) -> None:
    heard: list[tuple[int, str]] = []
    log = VersionLog(str(tmp_path / "log"))
    stores = [page_store(tmp_path / f"{at}.pages", pa.table({"k": [at]})) for at in range(8)]
    start = threading.Barrier(8)

    def ask(at: int) -> None:
        start.wait()
        heard.extend((n, log.entry(Batch("q", n), PER_BATCH, stores[at]).version) for n in range(20))

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 160
    assert len(set(heard)) == 20
    assert not list((tmp_path / "log" / "q").glob(".*"))


def test_a_version_that_is_gone_is_replaced_once_for_all(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    log, first = VersionLog(str(tmp_path / "log")), store.version()
    log.entry(Batch("q", 3), PER_BATCH, store)
    page_store(tmp_path / "m.pages", pa.table({"k": [2]}))
    second = log.move_on(Batch("q", 3), PER_BATCH, store.version, first).version
    assert second == store.version() != first
    page_store(tmp_path / "m.pages", pa.table({"k": [3]}))
    assert log.move_on(Batch("q", 3), PER_BATCH, store.version, first).version == second
    assert log.entry(Batch("q", 3), PER_BATCH, store).version == second


def test_old_batches_are_forgotten_and_trouble_is_told(tmp_path: Path) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    log = VersionLog(str(tmp_path / "log"))
    for number in (0, 1, 150, 210):
        log.entry(Batch("q", number), PER_BATCH, store)
    assert list(log.batches("q")) == [150, 210]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*versions="):
        VersionLog(str(tmp_path / "file")).entry(Batch("q", 0), PER_BATCH, store)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe{}"])
def test_a_damaged_file_is_told_with_its_name(tmp_path: Path, damage: bytes) -> None:
    store = page_store(tmp_path / "m.pages", pa.table({"k": [1]}))
    log = VersionLog(str(tmp_path / "log")).marked()
    log.entry(Batch("q", 3), PER_BATCH, store)
    (tmp_path / "log" / "q" / "3.0.json").write_bytes(damage)
    with pytest.raises(ConfigError, match=r"3\.0\.json is damaged; remove it to answer its batch from the current"):
        log.entry(Batch("q", 3), PER_BATCH, store)
    (tmp_path / "log" / ".shared").write_bytes(damage)
    with pytest.raises(ConfigError, match=r"\.shared is damaged; remove it and start again"):
        log.marked()


def test_what_a_killed_writer_left_among_noted_logs_is_not_read(tmp_path: Path) -> None:
    own = VersionLog(str(tmp_path / "own"))
    own.remember(VersionLog(str(tmp_path / "other")))
    (noted,) = Path(own.home).glob("*/*.json")
    (noted.parent / f".{uuid.uuid4().hex}").write_text("[")
    assert own.others() == [str(tmp_path / "other")]
