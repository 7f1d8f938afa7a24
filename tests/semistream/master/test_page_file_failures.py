"""A page file that is damaged, short, gone, forbidden or changed: an error that says so, never fewer rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.page_files import write_ordered_pages

from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.master.store import MasterStore

FILES = ["MANIFEST.json", "generation.json", "*.rows", "*.table", "index.codes", "index.pages"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    keys = np.random.default_rng(0).permutation(5000)
    table = pa.table({"k": keys, "v": keys * 2, "f": keys % 7})
    write_ordered_pages(tmp_path / "p", table, "k", "frequency", "1KB", "f")
    return tmp_path / "p"


def the_file(path: Path, pattern: str) -> Path:
    (found,) = path.rglob(pattern)
    return found


def everything(pages: Pages) -> int:
    rows = [pages.read(page, 1) for page in range(len(pages.starts) - 1)]
    assert sum(batch.num_rows for batch in rows) == pages.starts[-1]
    assert all((batch["v"].to_numpy() == 2 * batch["k"].to_numpy()).all() for batch in rows)
    pages.close()
    return int(pages.starts[-1])


@pytest.mark.parametrize("pattern", FILES)
def test_a_cut_file_is_an_error_and_the_store_recovers_with_it(path: Path, pattern: str) -> None:
    store, file = MasterStore.open(path), the_file(path, pattern)
    whole = file.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match=str(path)):
            everything(store.at())
    file.unlink()
    with pytest.raises(ConfigError, match=str(path)):
        everything(store.at())
    file.write_bytes(whole)
    assert everything(store.at()) == 5000


@pytest.mark.parametrize("pattern", FILES)
def test_one_changed_byte_anywhere_is_an_error(path: Path, pattern: str) -> None:
    store, file = MasterStore.open(path), the_file(path, pattern)
    whole = file.read_bytes()
    rng = np.random.default_rng(1)
    for at in [0, len(whole) - 1, *rng.integers(0, len(whole), 25).tolist()]:
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(0, 8))
        file.write_bytes(changed)
        with pytest.raises((ConfigError, PlanError)):
            everything(store.at())
    file.write_bytes(whole)
    assert everything(store.at()) == 5000


def test_only_the_damaged_page_fails(path: Path) -> None:
    pages, file = MasterStore.open(path).at(), the_file(path, "*.rows")
    with file.open("r+b") as handle:
        handle.seek(pages.stored_bytes(0, 2) + 100)
        handle.write(b"\xff\xfe")
    assert pages.read(0, 2).num_rows > 0
    assert pages.read(3, 5).num_rows > 0
    for first, count in [(2, 1), (0, 3), (1, 10)]:
        with pytest.raises(ConfigError, match=r"page 2 .* damaged"):
            pages.read(first, count)


def test_a_file_cut_while_it_is_open(path: Path) -> None:
    pages, file = MasterStore.open(path).at(), the_file(path, "*.rows")
    os.truncate(file, pages.stored_bytes(0, 10) + 5)
    assert pages.read(0, 10).num_rows > 0
    with pytest.raises(ConfigError, match="ends at byte"):
        pages.read(10, 1)
    with pytest.raises(ConfigError, match="ends at byte"):
        pages.read(0, 12)


def test_what_is_not_there_or_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere does not exist .* MasterStore\.build"):
        MasterStore.open(tmp_path / "nowhere")
    for call in (MasterStore.open, lambda path: write_pages(path, pa.table({"k": [1]}), "k")):
        with pytest.raises(PlanError, match="is on a file system"):
            call("gs://bucket/p.pages")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"not a page file|cannot read"):
        MasterStore.open(tmp_path / "file")
    with pytest.raises(ConfigError, match="is a file"):
        write_pages(tmp_path / "file", pa.table({"k": [1]}), "k")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.csv").write_text("x")
    with pytest.raises(ConfigError, match="not a page file"):
        MasterStore.open(tmp_path / "other")
    with pytest.raises(ConfigError, match="files that are not a page file"):
        write_pages(tmp_path / "other", pa.table({"k": [1]}), "k")


@contextmanager
def not_root() -> Iterator[None]:
    """Root may read everything: be another user for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_no_permission(path: Path) -> None:
    store = MasterStore.open(path)
    path.chmod(0)
    try:
        with not_root():
            with pytest.raises(ConfigError, match="Permission denied"):
                store.at()
            with pytest.raises(ConfigError, match="Permission denied"):
                write_pages(path, pa.table({"k": [1]}), "k")
    finally:
        path.chmod(0o755)
    assert everything(store.at()) == 5000


def test_another_schema_is_an_error_until_the_columns_are_back(path: Path) -> None:
    store, old = MasterStore.open(path), MasterStore.open(path).version()
    write_pages(path, pa.table({"k": [1], "w": ["x"]}), "k")
    with pytest.raises(ConfigError, match=r"now has columns \[k int64, w string\].*planned for \[k int64, v int64"):
        store.at()
    assert everything(store.at(old)) == 5000
    write_pages(path, pa.table({"k": [1], "v": [2], "f": [0]}), "k")
    assert everything(store.at()) == 1


def test_a_version_that_is_gone(path: Path) -> None:
    store = MasterStore.open(path)
    first = store.version()
    write_pages(path, pa.table({"k": [1], "v": [2], "f": [0]}), "k")
    assert store.prune(keep=1) == [first]
    with pytest.raises(ConfigError, match=f"no version {first} any more"):
        store.at(first)
    with pytest.raises(PlanError, match="not a version"):
        store.at("newest")
    shutil.rmtree(path)
    with pytest.raises(ConfigError, match="does not exist"):
        store.version()
    write_pages(path, pa.table({"k": [1], "v": [2], "f": [0]}), "k")
    with pytest.raises(ConfigError, match="was rebuilt"):
        store.at(first)
    assert everything(store.at()) == 1
