"""Reaches HDFS by its own protocol, without Java: hdfs-native as a file system of Arrow.

Arrow's own way needs Hadoop's `libhdfs` and a Java machine in every Python process. The client reads the files of
HADOOP_CONF_DIR; what Spark's settings say of name services goes before them.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import fs

from dovetail.errors import ConfigError

PREFIXES = ("dfs.nameservices", "dfs.ha.namenodes", "dfs.namenode.rpc-address", "dfs.client.", "dfs.data.transfer.",
            "hadoop.security.authentication")  # fmt: skip
"""Settings of Hadoop that the client knows: where a name service is, and how it is talked to."""
_PORT = 8020  # of a name node, where an address has none
_REACHED_S, _TRIES = 3.0, 3  # to connect to a name node for the first time


@dataclass(frozen=True, slots=True)
class HdfsAccess:
    """Spark's settings of name services, by the names that Hadoop has for them."""

    settings: tuple[tuple[str, str], ...] = ()


def hdfs_system(host: str, access: HdfsAccess) -> fs.FileSystem:
    """Arrow's file system of a host and port, or of a name service."""
    return fs.PyFileSystem(_Handler(_client(os.getpid(), host, access)))


def hdfs_file(host: str, access: HdfsAccess, path: str) -> HdfsFile:
    """A file to be read by many threads at once, which Arrow's files written in Python are not."""
    return HdfsFile(_client(os.getpid(), host, access), path)


def hdfs_output(host: str, access: HdfsAccess, path: str) -> HdfsOutput:
    """A new file, which can be given up."""
    return HdfsOutput(_client(os.getpid(), host, access), path)


def hdfs_rename(host: str, access: HdfsAccess, source: str, target: str) -> None:
    """Rename a file to a name that is not taken; `FileExistsError` if it is."""
    with _as_os_error():
        _client(os.getpid(), host, access).rename(source, target, False)


@lru_cache(maxsize=64)
def _client(pid: int, host: str, access: HdfsAccess) -> Any:
    if _USED_BY and pid not in _USED_BY:
        raise ConfigError(
            "this process was forked from one that has used HDFS, whose connections it cannot share; start it with "
            "multiprocessing's 'spawn', or use HDFS in one of the two only."
        )
    if "SPARK_USER" in os.environ:  # on executors: the user that started the application, as for Spark's own tasks
        os.environ.setdefault("HADOOP_USER_NAME", os.environ["SPARK_USER"])
    address = _with_port(host, dict(access.settings))
    client_of = _library().Client
    _require_reachable(address)
    _USED_BY.add(pid)
    with _as_os_error():
        return client_of(f"hdfs://{address}", dict(access.settings))


_USED_BY: set[int] = set()


def _with_port(host: str, settings: dict[str, str]) -> str:
    """The host with a port, unless it is a name service, which Spark's settings or files of Hadoop describe."""
    services = settings.get("dfs.nameservices", "").replace(" ", "").split(",")
    if ":" in host or host in services or host in _services_in_files():
        return host
    return f"{host}:{_PORT}"


def _services_in_files() -> set[str]:
    """The name services of hdfs-site.xml."""
    home = os.environ.get("HADOOP_HOME", "")
    place = Path(os.environ.get("HADOOP_CONF_DIR") or f"{home}/etc/hadoop") / "hdfs-site.xml"
    try:
        text = place.read_text()
    except OSError:
        return set()
    found = re.search(r"<name>\s*dfs\.nameservices\s*</name>\s*<value>([^<]*)</value>", text)
    return set() if found is None else {name.strip() for name in found[1].split(",")}


def _require_reachable(address: str) -> None:
    """`ConfigError` if no name node answers there: the client itself would wait for one without end."""
    host, _, port = address.rpartition(":")
    for attempt in range(_TRIES if host else 0):  # a name service has several, and its own ways
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _REACHED_S):
                return
        except (OSError, ValueError) as error:
            if attempt == _TRIES - 1:
                raise ConfigError(
                    f"the name node hdfs://{address} cannot be reached ({error}); correct the address, or start it."
                ) from error
            time.sleep(1)


def _library() -> Any:
    try:
        import hdfs_native
    except ImportError as error:
        raise ConfigError(
            "hdfs: addresses need hdfs-native: pip install 'dovetail[hdfs]', on executors too."
        ) from error
    return hdfs_native


@contextmanager
def _as_os_error() -> Iterator[None]:
    """The client's errors as those of a file system, without the server's stack trace."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        text = str(error)
        number = next((n for what, n in _NUMBERS.items() if what in f"{type(error).__name__} {text}"), errno.EIO)
        first = re.split(r"\\n|\n", text, maxsplit=1)[0]  # of a stack trace, whose ends of lines may be escaped
        raise OSError(number, f"HDFS: {first}") from error


_NUMBERS = {
    "AccessControlException": errno.EACCES,
    "PermissionError": errno.EACCES,
    "ParentNotDirectory": errno.ENOTDIR,
    "FileNotFound": errno.ENOENT,
    "FileExistsError": errno.EEXIST,
}


class _Handler(fs.FileSystemHandler):  # type: ignore[misc]
    """HDFS as Arrow asks for it. A file that is written is seen when it is closed."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _as_os_error():
                return _file_info(self._client.get_file_info(path), path)
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            with _as_os_error():
                found = list(self._client.list_status(selector.base_dir, selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if len(found) == 1 and found[0].path == selector.base_dir and not found[0].isdir:
            raise NotADirectoryError(errno.ENOTDIR, "it is a file", selector.base_dir)
        return [_file_info(status, status.path) for status in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        with _as_os_error():
            self._client.mkdirs(path, 0o755, recursive)

    def delete_dir(self, path: str) -> None:
        with _as_os_error():
            self._client.delete(path, True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for found in self.get_file_info_selector(selector):
            self.delete_dir(found.path)

    def delete_root_dir_contents(self) -> None:
        raise PermissionError(errno.EPERM, "all of a file system is not removed")

    def delete_file(self, path: str) -> None:
        with _as_os_error():
            if not self._client.delete(path, False):
                raise FileNotFoundError(errno.ENOENT, "there is no such file", path)

    def move(self, source: str, target: str) -> None:
        """Rename a file, in place of what has this name."""
        with _as_os_error():
            self._client.rename(source, target, True)

    def copy_file(self, source: str, target: str) -> None:
        with self.open_input_stream(source) as read, self.open_output_stream(target, {}) as written:
            while part := read.read(1 << 20):
                written.write(part)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(HdfsFile(self._client, path), mode="r")

    def open_output_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        return pa.PythonFile(HdfsOutput(self._client, path), mode="w")

    def open_append_stream(self, path: str, metadata: dict[str, str]) -> pa.NativeFile:
        with _as_os_error():
            return pa.PythonFile(self._client.append(path), mode="w")


def _file_info(status: Any, path: str) -> fs.FileInfo:
    kind = fs.FileType.Directory if status.isdir else fs.FileType.File
    return fs.FileInfo(
        path, kind, size=None if status.isdir else status.length, mtime_ns=status.modification_time * 10**6
    )


class HdfsFile:
    """A file that is read by ranges, by any thread, or from front to back by one."""

    def __init__(self, client: Any, path: str) -> None:
        with _as_os_error():
            self._reader = client.read(path)
            self._size = len(self._reader)
        self._at = 0
        self.closed = False

    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """That many bytes from an offset on; fewer at the end."""
        count = max(0, min(nbytes, self._size - offset))
        with _as_os_error():
            return bytes(self._reader.read_range(offset, count)) if count else b""

    def read(self, nbytes: int = -1) -> bytes:
        """The next bytes; all that are left with -1."""
        found = self.read_at(self._size - self._at if nbytes < 0 else nbytes, self._at)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on reading there."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Where reading goes on."""
        return self._at

    def close(self) -> None:
        """Nothing is open between two reads."""
        self.closed = True


class HdfsOutput:
    """A new file under a hidden name, which gets its right name when it is closed; hidden ones have it at once."""

    def __init__(self, client: Any, path: str) -> None:
        self._client, self._path = client, path
        folder, _, name = path.rpartition("/")
        self._hidden = path if name.startswith(("_", ".")) else f"{folder}/.{uuid.uuid4().hex}"
        with _as_os_error():
            self._writer = client.create(self._hidden, _library().WriteOptions(overwrite=True))
        self.closed = self._failed = False

    def write(self, data: Any) -> int:
        """Append these bytes."""
        try:
            with _as_os_error():
                self._writer.write(memoryview(data).cast("B"))
        except BaseException:
            self._failed = True
            raise
        return len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def flush(self) -> None:
        """Nothing is seen before the file is closed."""

    def close(self) -> None:
        """Store it all, in place of what was there, unless a part of it could not be written; twice is fine."""
        if self.closed or self._failed:
            return self.discard()
        try:
            with _as_os_error():
                self._writer.close()
                if self._hidden != self._path:
                    self._client.rename(self._hidden, self._path, True)
            self.closed = True
        except BaseException:
            self.discard()
            raise
        return None

    def discard(self) -> None:
        """Remove what was written, unless it was closed; what had the name before stays."""
        if self.closed:
            return
        self.closed = True
        with suppress(Exception):
            self._writer.close()
        with suppress(Exception):
            self._client.delete(self._hidden, False)
