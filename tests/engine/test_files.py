"""Local files of a place: written whole or not at all, and nothing is left behind by a write that fails."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dovetail.engine.storage import files


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """Writes beyond this many bytes of a file fail, as they do on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("outlives_power", [True, False])
def test_a_write_that_fails_leaves_no_file(tmp_path: Path, outlives_power: bool) -> None:
    for write in (files.create, files.write):
        with files_of_at_most(1000), pytest.raises(OSError, match="too large"):
            write(tmp_path / "a", b"x" * 5000, outlives_power)
        assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_when_the_file_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.write(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", full)
    for write in (files.create, files.write):
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "a", b"new")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a", b"old")]


def test_a_file_that_cannot_get_its_name_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.write(tmp_path / "a", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
