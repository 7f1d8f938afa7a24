"""The cache directory where a home cannot be written to, and kernels of a package that is a zip file."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from dovetail.engine import cache


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    cache._temporary.cache_clear()
    yield place / f"dovetail-{os.getuid()}"
    cache._temporary.cache_clear()


def test_a_home_that_can_be_written_to_has_the_cache(tmp_path: Path, temporary: Path) -> None:
    assert cache.cache_root({"XDG_CACHE_HOME": str(tmp_path / "home" / "cache")}) == tmp_path / "home/cache/dovetail"
    assert not temporary.exists()


def test_without_such_a_home_it_is_private_and_temporary(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "file").touch()
    assert cache.cache_root({"XDG_CACHE_HOME": str(tmp_path / "file" / "cache")}) == temporary
    assert temporary.stat().st_mode & 0o777 == 0o700


def test_a_user_without_a_home_has_one(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where the user is not in /etc/passwd
    assert cache.cache_root({}) == temporary


@pytest.mark.parametrize("made", ["open", "link", "file"])
def test_a_directory_that_others_can_write_to_is_not_taken(tmp_path: Path, temporary: Path, made: str) -> None:
    """Compiled kernels are code: they are not loaded from where others may have put them."""
    if made == "open":
        temporary.mkdir()
        temporary.chmod(0o777)
    elif made == "link":
        temporary.symlink_to(tmp_path)
    else:
        temporary.touch()
    (tmp_path / "file").touch()
    usual = tmp_path / "file" / "cache"
    assert cache.cache_root({"XDG_CACHE_HOME": str(usual)}) == usual / "dovetail"


def test_the_kernels_of_a_zip_file_are_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, marker = cache.kernel_files(), cache.prepared_marker()
    assert cache.archive() is None
    assert PurePosixPath("joins/interval/kernels/search.py") in installed
    with zipfile.ZipFile(tmp_path / "dovetail.zip", "w") as files:
        for file in cache.PACKAGE.rglob("*.py"):
            files.write(file, file.relative_to(cache.PACKAGE.parent))
    monkeypatch.setattr(cache, "PACKAGE", tmp_path / "dovetail.zip" / "dovetail")
    assert cache.archive() == tmp_path / "dovetail.zip"
    assert cache.kernel_files() == installed
    assert cache.prepared_marker() == marker
