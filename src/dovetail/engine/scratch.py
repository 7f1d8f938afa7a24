"""A directory of this process's own for files that must not outlive it.

Spark stops a cancelled task's worker with SIGKILL, which no code survives, and ends its workers without running exit
handlers. So each process keeps its files in one directory that it holds a file lock on while it lives: whoever makes
the next such directory removes those whose lock is free. A lock, and not a look at the process table, because
containers with process tables of their own may share a disk.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path
from types import FrameType
from uuid import uuid4

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
        """Delete the directory with all in it, and let go of its lock. Must also work inside a signal handler."""
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
    """Say that one file in the directory is gone; the last one takes the directory with it."""
    with _guard:
        directory.files -= 1
        if directory.files == 0 and directory.pid == os.getpid():
            _directories.pop(directory.base, None)
            directory.remove()
            if not _directories:
                _restore_signals()


def sweep(base: Path | None = None) -> int:
    """Remove what dead processes left under `base` (default: the spill directory); returns how many directories."""
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
        # Somebody's sweep took the directory for a dead one between the two calls; make another.
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
