"""An SQLite file: connections to it, what tells its versions apart, its errors as ours."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from dovetail.errors import ConfigError

ATTEMPTS = 50
_SETTLED_NS = 20_000_000  # file times move in ticks of some milliseconds: a marker younger than this may miss a change


def settled_marker(path: str, connection: sqlite3.Connection) -> str:
    """The state of the files, old enough that a later commit would change it."""
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # finishes what a killed writer left
    for _ in range(ATTEMPTS):
        before = file_marker(path)
        newest = max(int(part.split("@")[1]) for part in before.split("/"))
        if time.time_ns() - newest > _SETTLED_NS:
            return before
        time.sleep(_SETTLED_NS / 1e9)
    raise ConfigError(f"{path} is being written without pause; its version cannot be told. Try again.")


def file_marker(path: str) -> str:
    """Inode, size and time of the file and, if it has anything in it, of the log beside it.

    Only by name: opening a file that SQLite has open and closing it again would give up SQLite's locks on it.
    """
    marks = []
    for name in (path, f"{path}-wal"):
        try:
            found = os.stat(name)  # noqa: PTH116  (a name, not a path: asked twice for every read)
        except FileNotFoundError:
            continue
        if name == path or found.st_size:
            marks.append(f"{found.st_ino}.{found.st_size}@{found.st_mtime_ns}")
    if not marks:
        raise ConfigError(f"{path} does not exist; correct the path, or restore the file.")
    return "/".join(marks)


def connect(path: str) -> sqlite3.Connection:
    """A connection that cannot write and leaves transactions to us."""
    if not Path(path).exists():
        raise ConfigError(f"{path} does not exist; correct the path, or restore the file.")
    return sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)


@contextmanager
def connected(path: str) -> Iterator[sqlite3.Connection]:
    """A connection for a moment."""
    connection = connect(path)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def as_config_errors(path: str) -> Iterator[None]:
    """Errors of the file and of SQLite become `ConfigError`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check permissions.") from error
    except sqlite3.Error as error:
        raise ConfigError(
            f"SQLite cannot read {path}: {error}; check that the file is whole and may be read."
        ) from error
