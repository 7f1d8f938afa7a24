"""One writer of a page file's directory at a time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else changes what the page file at this path has, where the file system knows locks."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with contextlib.suppress(OSError):  # no locks here (some network disks): renames still exclude each other
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
