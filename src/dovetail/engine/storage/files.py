"""Reads and writes files at places that all hosts share: local paths, and objects at s3a:// and hdfs:// addresses.

A local place is a `pathlib.Path`. A remote one is a `Remote`, a small value that can be shipped to executors, with the
credentials that Spark was given. Both take the same few functions. What a function writes is seen whole or not at all;
of several callers of `create` one wins.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from dovetail.engine.storage.hdfs import HdfsOutput
from dovetail.engine.storage.remote import (
    S3_SCHEMES,
    Access,
    Remote,
    RemoteFile,
    get_whole,
    has_client,
    put_new,
    reaching,
)
from dovetail.engine.storage.secrets import has_password
from dovetail.errors import ConfigError, PlanError

Place: TypeAlias = Path | Remote


def system_at(path: str, access: Access | None) -> tuple[fs.FileSystem, str]:
    """Arrow's file system of a path, and the path in it; at schemes of others, or with options, as Arrow takes them."""
    found: tuple[fs.FileSystem, str]
    if path.startswith("s3://") and "?" in path:  # Arrow's own options: region, endpoint_override
        found = fs.FileSystem.from_uri(path)
        return found
    try:
        place = located(path, access)
    except PlanError:
        found = fs.FileSystem.from_uri(path)
        return found
    return (fs.LocalFileSystem(), str(place)) if isinstance(place, Path) else (place.system, place.path)


def access_of(place: Place) -> Access | None:
    """How a remote place is reached."""
    return place.access if isinstance(place, Remote) else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory; `changed_at` is in seconds since 1970, and 0 of directories of an object store."""

    name: str
    size: int
    changed_at: float


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)")


def located(path: str | Place, access: Access | None = None, default: str = "file:///") -> Place:
    """The place at a path; one without a scheme is on the file system `default`, as Spark takes it."""
    if isinstance(path, Remote):
        return path
    text = str(path)
    found = _SCHEME.fullmatch(text)
    if found is not None and has_password(text):  # refused for every scheme, and the text is not shown
        raise ConfigError("an address has no keys in it; give them to Spark, as spark.hadoop.fs.s3a.access.key.")
    if found is None and not default.startswith("file:"):
        if not text.startswith("/"):
            raise PlanError(
                f"{text} is a relative path, and Spark's file system is {default}; give the whole path.",
                argument="path",
            )
        return located(f"{default.rstrip('/')}{text}", access)
    if found is None or found[1] == "file":
        return Path(text).absolute() if found is None else _local(found[2])
    if found[1] not in (*S3_SCHEMES, "hdfs"):
        raise PlanError(
            f"{text} is on a file system that dovetail cannot use: it takes local paths, file:, hdfs: and s3a:.",
            argument="path",
        )
    if "@" in text.partition("://")[2].partition("/")[0]:
        raise PlanError("an address has no keys in it; give them to Spark, as spark.hadoop.fs.s3a.access.key.")
    host, _, inside = found[2][2:].partition("/") if found[2].startswith("//") else ("", "", found[2])
    host = host or _default_host(found[1], default)
    if not host:
        raise PlanError(f"{text} has no bucket or host; write {found[1]}://..., as text.", argument="path")
    parts = [part for part in inside.split("/") if part]  # as Hadoop has them: "//" is one "/"
    return Remote("/".join([f"{found[1]}://{host}", *parts]), access)


def _default_host(scheme: str, default: str) -> str:
    """The host of fs.defaultFS, which addresses of its scheme need not name."""
    return Remote(default).host if default.startswith(f"{scheme}://") else ""


def _local(text: str) -> Path:
    """The path of a file: address, behind its scheme; a '#' or '?' is part of it, as Spark takes it."""
    return Path(unquote(f"/{text[2:].partition('/')[2]}" if text.startswith("//") else text))


def read(place: Place) -> bytes:
    """The content of a file."""
    if isinstance(place, Path):
        return place.read_bytes()
    with closing(RemoteFile(place)) as file:
        return bytes(file.read_all())


def read_small(place: Place) -> bytes:
    """The content of a file of some kilobytes, by one request where that can be."""
    return get_whole(place) if isinstance(place, Remote) and has_client(place) else read(place)


def read_range(place: Place, offset: int, nbytes: int) -> bytes:
    """That many bytes of a file from an offset on, as one read."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            file.seek(offset)
            return file.read(nbytes)
    with reaching(place), closing(place.opened()) as stream:
        return bytes(stream.read_at(nbytes, offset)) if nbytes else b""


def names(place: Place) -> list[str]:
    """The names of all that is in a directory; none if there is no such directory."""
    if isinstance(place, Remote):
        return [entry.name for entry in entries(place)]
    try:
        return os.listdir(place)  # noqa: PTH208  (a stream asks for it in every micro-batch)
    except FileNotFoundError:
        return []


def entries(place: Place) -> list[Entry]:
    """The files and directories in a directory; none if there is no such directory."""
    if isinstance(place, Path):
        found = []
        for name in names(place):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                known = (place / name).stat()
                found.append(Entry(name, known.st_size, known.st_mtime))
        return found
    with reaching(place):
        infos = place.system.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
    return [Entry(info.base_name, info.size or 0, (info.mtime_ns or 0) / 1e9) for info in infos]


def size(place: Place) -> int | None:
    """Bytes of a file; None if there is none."""
    if isinstance(place, Path):
        return place.stat().st_size if place.is_file() else None
    with reaching(place):
        found = place.system.get_file_info(place.path)
    return found.size if found.type == fs.FileType.File else None


def write(place: Place, data: bytes, outlives_power: bool = True) -> None:
    """Write a file, or replace it, as a whole."""
    if isinstance(place, Remote):
        with reaching(place), place.created() as stream:
            stream.write(data)
        return
    temporary = _temporary(place, data, outlives_power)
    with _removed_on_failure(temporary):
        temporary.replace(place)


def create(place: Place, data: bytes, outlives_power: bool = True) -> bool:
    """Write a file that is not there; False if it is. Of several callers, on any host, one creates it.

    Where a local file system has no links, a file is empty for a moment, and stays so if its writer is killed then.
    """
    if isinstance(place, Path):
        temporary = _temporary(place, data, outlives_power)
        try:
            return _linked(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)
    made = _renamed(place, data) if place.is_hdfs else put_new(place, data)
    # A first attempt may have succeeded without an answer: then what is there is ours.
    return made or read(place) == data


def check_creates(place: Remote) -> None:
    """`ConfigError` unless the store of this directory lets one of several writers create a file."""
    if place.is_hdfs or (os.getpid(), place, place.access) in _CHECKED:
        return
    probe = place / f".probe-{uuid.uuid4().hex}"
    first, second = put_new(probe, b"1"), put_new(probe, b"2")
    remove(probe)
    if not first or second:
        raise ConfigError(
            f"{place} is in a store without conditional writes (If-None-Match), by which the first of several "
            f"writers is known; use another store, or a directory that all hosts mount."
        )
    _CHECKED.add((os.getpid(), place, place.access))


_CHECKED: set[tuple[int, Remote, Access | None]] = set()


def _temporary(place: Path, data: bytes, outlives_power: bool) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{uuid.uuid4().hex}")
    with _removed_on_failure(temporary), temporary.open("wb") as file:
        file.write(data)
        file.flush()
        if outlives_power:
            os.fsync(file.fileno())
    return temporary


@contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    """Remove a file if the block fails, as it does when the disk is full."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _linked(temporary: Path, place: Path) -> bool:
    try:
        os.link(temporary, place)
    except FileExistsError:
        return False
    except OSError:  # a file system without links: created by one, empty for a moment
        try:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return False
        temporary.replace(place)
    return True


def _renamed(place: Remote, data: bytes) -> bool:
    """HDFS renames no file to a name that is taken."""
    temporary = place.parent / f".{uuid.uuid4().hex}"
    write(temporary, data)
    try:
        with reaching(place):
            temporary.rename_new(place)
        return True
    except OSError:
        remove(temporary)
        if size(place) is None:
            raise
        return False


def remove(place: Place) -> None:
    """Remove a file, if it is there."""
    if isinstance(place, Path):
        place.unlink(missing_ok=True)
        return
    with contextlib.suppress(FileNotFoundError), reaching(place):
        place.system.delete_file(place.path)


def remove_tree(place: Place) -> None:
    """Remove a directory and all that is in it; what cannot be removed stays."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        place.system.delete_dir(place.path)


class Output:
    """A new file that is written from front to back. A remote one is seen when it is finished."""

    def __init__(self, place: Place) -> None:
        self.place = place
        if isinstance(place, Path):
            self._file: Any = place.open("xb")
        else:
            with reaching(place):
                self._file = place.created()

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append these bytes."""
        with reaching(self.place):
            self._file.write(data)

    def finish(self) -> None:
        """Close the file; all of it is stored."""
        with reaching(self.place):
            if isinstance(self.place, Path):
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()

    def abort(self) -> None:
        """Close and remove the file."""
        if isinstance(self._file, HdfsOutput):
            self._file.discard()
            return
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            remove(self.place)


def mapped(place: Place) -> pa.Buffer:
    """The content of a file, mapped; of a remote one a copy on the local disk, which goes when it is released."""
    if isinstance(place, Path):
        return pa.memory_map(str(place)).read_buffer() if place.stat().st_size else pa.py_buffer(b"")
    with tempfile.TemporaryFile() as copy, closing(RemoteFile(place)) as file:
        if not file.size:
            return pa.py_buffer(b"")
        copy.truncate(file.size)
        target = mmap.mmap(copy.fileno(), file.size)  # not closed here: threads may hold it a moment longer
        file.fill(memoryview(target))
        return pa.py_buffer(memoryview(target).toreadonly())
