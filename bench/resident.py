"""Peak resident memory of this process and everything it started, sampled from a thread."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil  # type: ignore[import-untyped]  # ships no type information

INTERVAL_S = 0.05


def tree_rss(pid: int | None = None) -> int:
    """Resident bytes of a process, this one if none is named, and all its descendants (a JVM, Python workers).

    Pages shared by forked workers are counted once per process, so the sum is an upper bound.
    """
    here = psutil.Process(pid)
    return sum(_rss(process) for process in [here, *here.children(recursive=True)])


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it ended between being listed and being asked
        return 0


def tree_memory(pid: int) -> int:
    """Bytes in memory of a process and all its descendants, with pages that several of them share counted once.

    Where the system does not tell shares, as Linux does, this is `tree_rss`. It costs milliseconds a process.
    """
    here = psutil.Process(pid)
    return sum(_share(process) for process in [here, *here.children(recursive=True)])


def _share(process: psutil.Process) -> int:
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        return 1024 * int(text.partition("Pss:")[2].split()[0])
    except (OSError, IndexError):
        return _rss(process)


class PeakMemory:
    """Context manager that notes `start` and `peak` resident bytes of the process tree, by sampling.

    Sampled every 50 ms and at both ends: an allocation shorter than that can be missed, so `peak` is a lower bound
    of what was resident. Memory that an earlier run left behind (a JVM heap, an allocator's arena) is part of
    `start`; `growth` is what came on top.
    """

    def __init__(self) -> None:
        self.start = self.peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dovetail-rss", daemon=True)

    @property
    def growth(self) -> int:
        """Peak minus start, in bytes."""
        return self.peak - self.start

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.peak = max(self.peak, tree_rss())

    def __enter__(self) -> Self:
        self.start = self.peak = tree_rss()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        self.peak = max(self.peak, tree_rss())
