"""Spills Arrow batches to disk: files that are appended in order and read back by block number.

Spill files must not outlive their process. Spark stops a cancelled task's worker with SIGKILL, and ends its workers
without running exit handlers. So each process keeps its files in one directory that it holds a file lock on: the next
process that makes such a directory removes those whose lock is free. A lock is used, not the process table, because
containers with separate process tables may share a disk.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from uuid import uuid4

import pyarrow as pa

from dovetail.engine.memory import format_bytes
from dovetail.errors import ConfigError

_PREFIX = "dovetail-spill-"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def spill_directory() -> Path:
    """Where spill files go: one of Spark's local directories, else the system's temporary directory.

    Read from SPARK_LOCAL_DIRS (which Spark sets for its Python workers) or LOCAL_DIRS (YARN). Of several, processes
    take different ones, to use all disks.
    """
    listed = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or ""
    places = [Path(part.strip()) for part in listed.split(",") if part.strip()] or [Path(tempfile.gettempdir())]
    usable = [place for place in places if place.is_dir()] or places
    return usable[os.getpid() % len(usable)]


class ProcessDirectory:
    """This process's directory under `base`; made for the first file in it, removed with the last one.

    Also removed at interpreter exit and on SIGTERM and SIGHUP, if the program left those at their default; after
    SIGKILL by the next process that makes one in the same place. Raises `OSError` when it cannot be made.
    """

    def __init__(self, base: Path) -> None:
        self.base, self.pid, self.files = base, os.getpid(), 0
        self.path, self._lock_fd = _make_locked(base)

    def new_file(self, name: str) -> Path:
        """A path that no file has yet."""
        return self.path / f"{name}-{uuid4().hex}.arrow"

    def remove(self) -> None:
        """Delete the directory with its content, and release its lock. Also works inside a signal handler."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()

    def let_go(self) -> None:
        """Close the lock without deleting anything."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


_directories: dict[Path, ProcessDirectory] = {}
# Reentrant: a garbage collection inside `borrow` may run the finaliser of a spill file, which calls `give_back`.
_guard = threading.RLock()


def borrow(base: Path) -> ProcessDirectory:
    """This process's directory under `base`, for one more file; `give_back` it when the file is gone."""
    with _guard:
        if base not in _directories:
            base.mkdir(parents=True, exist_ok=True)
            sweep(base)
            _directories[base] = ProcessDirectory(base)
            _catch_signals()
        _directories[base].files += 1
        return _directories[base]


def give_back(directory: ProcessDirectory) -> None:
    """Record that one file of the directory was removed; the directory is removed with the last one."""
    with _guard:
        directory.files -= 1
        if directory.files == 0 and directory.pid == os.getpid():
            _directories.pop(directory.base, None)
            directory.remove()
            if not _directories:
                _restore_signals()


def sweep(base: Path | None = None) -> int:
    """Remove directories of dead processes under `base` (default: the spill directory); returns their number."""
    removed = 0
    for left_over in (base or spill_directory()).glob(f"{_PREFIX}*"):
        fd = _try_lock(left_over)
        if fd is not None:
            shutil.rmtree(left_over, ignore_errors=True)
            os.close(fd)
            removed += not left_over.exists()
    return removed


def _make_locked(base: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base))
        fd = _try_lock(path)
        if fd is not None and path.exists():
            return path, fd
        if fd is None and path.exists() and not _locks_work(path):
            return path, -1
        # Another process swept the directory between the two calls; make another.
        if fd is not None:
            os.close(fd)


def _try_lock(directory: Path) -> int | None:
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _locks_work(directory: Path) -> bool:
    # Some network file systems cannot lock a directory. There nothing is ever swept, which is safe.
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _catch_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _remove_and_die)


def _restore_signals() -> None:
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is _remove_and_die:
                signal.signal(number, signal.SIG_DFL)


def _remove_and_die(number: int, frame: FrameType | None) -> None:
    _remove_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@atexit.register
def _remove_all() -> None:
    for directory in list(_directories.values()):
        if directory.pid == os.getpid():
            directory.remove()


def _forget_after_fork() -> None:
    global _guard
    _guard = threading.RLock()
    for directory in _directories.values():
        directory.let_go()
    _directories.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


__all__ = ["SpillFile", "spill_directory", "sweep"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REMEDY = "point spark.local.dir (or SPARK_LOCAL_DIRS, or spill_dir) to a directory"


class SpillFile:
    """An append-only file of Arrow batches ("blocks") of one schema; every block can be read without the others.

    Counts are exact: `bytes_written` is the size of the file. Nothing touches the disk before the first append.
    Reading is allowed between appends. The file is removed on close, on any error of the disk, when the object is
    garbage, when the program ends, and after a kill by the next process that spills in the same place. Appending holds
    one serialised copy of the batch for as long as it writes.

    A full disk or an I/O error is a `ConfigError`, after which the file is removed. For one thread at a time.
    """

    def __init__(self, schema: pa.Schema, directory: Path | None = None, name: str = "spill") -> None:
        self.schema, self.name = schema, name
        self.directory = directory
        self.rows = self.bytes_written = self.bytes_read = self.blocks_read = 0
        self._ends: list[int] = []
        # A block's bytes do not contain its dictionaries, so such blocks are whole streams of their own.
        self._whole_streams = any(_has_dictionary(field.type) for field in schema)
        self._fd = -1
        self._closed = False
        self._remove: weakref.finalize[[int, Path, ProcessDirectory], SpillFile] | None = None

    @property
    def blocks(self) -> int:
        """How many blocks the file has; they are numbered from 0."""
        return len(self._ends)

    @property
    def blocks_written(self) -> int:
        """The number of blocks, which were all written by this object."""
        return len(self._ends)

    def append(self, batch: pa.RecordBatch) -> int:
        """Write one batch as a block and return the block's number."""
        if self._closed:
            raise ValueError(f"spill file {self.name!r} is closed; no block can be appended.")
        if not batch.schema.equals(self.schema):
            raise ValueError(f"spill file {self.name!r} holds {self.schema}; the batch has {batch.schema}.")
        try:
            self._write(self._serialised(batch))
        except OSError as error:
            where = self.directory or spill_directory()
            self.close()
            raise _disk_error(error, where, self.bytes_written) from error
        self.rows += batch.num_rows
        return len(self._ends) - 1

    def size_of(self, block: int) -> int:
        """Bytes of one block on disk, which is also the memory that reading it takes."""
        if not 0 <= block < len(self._ends):
            raise IndexError(f"spill file {self.name!r} has {len(self._ends)} blocks, from 0; there is no {block}.")
        return self._ends[block] - (self._ends[block - 1] if block else 0)

    def read(self, block: int) -> pa.RecordBatch:
        """The block of that number; only its own bytes are read."""
        if self._closed:
            raise ValueError(f"spill file {self.name!r} is closed; block {block} cannot be read.")
        size = self.size_of(block)
        data = self._bytes_at(self._ends[block] - size, size)
        self.bytes_read += data.size
        self.blocks_read += 1
        if self._whole_streams:
            with pa.ipc.open_stream(data) as stream:
                return stream.read_next_batch()
        return pa.ipc.read_record_batch(data, self.schema)

    def replay(self) -> Iterator[pa.RecordBatch]:
        """All blocks that exist at the time of this call, in the order written."""
        return map(self.read, range(len(self._ends)))

    def close(self) -> None:
        """Remove the file; the counts stay readable."""
        self._closed = True
        if self._remove is not None:
            self._remove()

    def _serialised(self, batch: pa.RecordBatch) -> pa.Buffer:
        if not self._whole_streams:
            return batch.serialize()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_batch(batch)
        return sink.getvalue()

    def _write(self, data: pa.Buffer) -> None:
        if self._fd < 0:
            self._create()
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], self.bytes_written + done)
        self.bytes_written += done
        self._ends.append(self.bytes_written)

    def _create(self) -> None:
        home = borrow(self.directory or spill_directory())
        path = home.new_file(self.name)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            give_back(home)
            raise
        self._remove = weakref.finalize(self, _remove_file, self._fd, path, home)

    def _bytes_at(self, offset: int, size: int) -> pa.Buffer:
        data = pa.allocate_buffer(size)
        view, done = memoryview(data), 0
        while done < size:
            got = os.preadv(self._fd, [view[done:]], offset + done)
            if got == 0:
                raise ConfigError(
                    f"spill file {self.name!r} ends at byte {offset + done} of {self.bytes_written}: something "
                    f"truncates the files of running jobs in {self.directory or spill_directory()}; stop it."
                )
            done += got
        return data

    def __repr__(self) -> str:
        return f"SpillFile({self.name}: {self.blocks} blocks, {self.rows} rows, {self.bytes_written} bytes)"


def _remove_file(fd: int, path: Path, home: ProcessDirectory) -> None:
    os.close(fd)
    if home.pid == os.getpid():  # a forked child holds a copy of the object, but the file is its parent's
        path.unlink(missing_ok=True)
        give_back(home)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _disk_error(error: OSError, directory: Path, written: int) -> ConfigError:
    reason = os.strerror(error.errno or 0)
    if error.errno in _FULL:
        return ConfigError(
            f"no room to spill in {directory} ({reason}) after {format_bytes(written)}; free space there, {_REMEDY} "
            f"with more, or give the join more memory so that it spills less."
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ConfigError(f"too many open files to spill in {directory} ({reason}); raise the limit (ulimit -n).")
    return ConfigError(f"cannot spill to {directory} ({reason}); {_REMEDY} that exists and can be written.")
