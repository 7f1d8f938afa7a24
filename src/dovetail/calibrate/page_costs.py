"""Measures pages on the disk that joins spill to: random reads, sequential reads, writes.

Reads are timed on a file that was dropped from the system's page cache before every pass; the system is first asked
whether dropping works in the directory, if it can report that. A disk or hypervisor may have caches of its own, which a
program cannot see.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dovetail.calibrate.unit_cost import Effort, cost_of, timed
from dovetail.engine.profile import Cost, PageCost
from dovetail.errors import ConfigError


@contextmanager
def page_file(directory: Path, nbytes: int) -> Iterator[Path]:
    """A file of random bytes, removed at the end; ConfigError if the directory has no room for it."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix="dovetail-calibrate-") as file:
            block = np.random.default_rng(0).bytes(min(nbytes, 8 << 20))
            for _ in range(0, nbytes, len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            yield Path(file.name)
    except OSError as error:
        raise ConfigError(
            f"cannot measure pages in {directory}: {error.strerror}. Choose a directory with {nbytes >> 20} MiB of "
            f"space: --directory, or SPARK_LOCAL_DIRS."
        ) from error


def random_reads(path: Path, size: int, effort: Effort) -> PageCost:
    """Pages of this size at random places, without read-ahead."""
    rng = np.random.default_rng(size)
    pages = path.stat().st_size // size

    def once() -> float:
        places = rng.choice(pages, min(effort.page_reads, pages), replace=False) * size
        return _read(path, places.tolist(), size, sequential=False)

    return PageCost(size, _passes(once, effort.repeats))


def sequential_reads(path: Path, size: int, effort: Effort) -> PageCost:
    """Pages of this size from the start on, with the system's read-ahead."""
    pages = min(path.stat().st_size // size, max(effort.page_reads, effort.file_bytes // 4 // size))
    places = [page * size for page in range(pages)]
    return PageCost(size, _passes(lambda: _read(path, places, size, sequential=True), effort.repeats))


def writes(directory: Path, size: int, effort: Effort) -> PageCost:
    """Pages of this size appended to a new file, with a share of getting all of them to the disk."""
    page = np.random.default_rng(size).bytes(size)
    pages = max(effort.page_reads, effort.file_bytes // 16 // size)

    def once() -> float:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:

            def fill() -> None:
                for _ in range(pages):
                    file.write(page)
                os.fsync(file.fileno())

            return timed(fill) / pages

    return PageCost(size, _passes(once, effort.repeats))


def _passes(once: Callable[[], float], repeats: int) -> Cost:
    return cost_of([once() for _ in range(repeats)])


def _read(path: Path, places: list[int], size: int, sequential: bool) -> float:
    """Seconds for one page, over all places, after the file was dropped from the cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL if sequential else os.POSIX_FADV_RANDOM)
        return timed(lambda: [os.pread(handle, size, place) for place in places]) / len(places)
    finally:
        os.close(handle)


def cache_can_be_dropped(directory: Path) -> bool:
    """Whether files in this directory leave the page cache when asked to, as the system itself reports.

    False for a directory in memory (tmpfs), and on systems that cannot be asked.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    with page_file(directory, 1 << 20) as path:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            return resident_share(handle, 1 << 20) == 0
        finally:
            os.close(handle)


def resident_share(handle: int, nbytes: int) -> float:
    """The share of a file's first bytes that is in the page cache; asking reads nothing (mincore)."""
    ask = ctypes.CDLL(None, use_errno=True).mincore
    ask.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    pages = (ctypes.c_ubyte * -(-nbytes // mmap.PAGESIZE))()
    with mmap.mmap(
        handle, nbytes, access=mmap.ACCESS_COPY
    ) as view:  # a private view: its address is wanted, not its bytes
        first = ctypes.c_char.from_buffer(view)
        failed = ask(ctypes.addressof(first), nbytes, pages)
        del first  # the view cannot close while something points into it
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return sum(page & 1 for page in pages) / len(pages)
