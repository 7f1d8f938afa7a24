"""Keeps values in a process between tasks: those that a Python worker keeps for its own next task, such as caches and
indexes, and those of the resident process. A value is disposable: one that is lost is rebuilt from the stored state.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

import psutil  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa

IDLE_S = 600.0
LOADED_BYTES = 64 << 20
"""Kernels and libraries that the first value loads; DINER has 60 MB of them. They are no part of a limit on values."""


class Closable(Protocol):
    """A value that a pool can keep, and closes when it is no longer needed."""

    def close(self) -> None:
        """Free memory and files."""
        ...


V = TypeVar("V", bound=Closable)


class _Kept(NamedTuple, Generic[V]):
    stamp: str
    at: float
    value: V


def _close_all(values: Iterable[Closable]) -> None:
    for value in values:
        value.close()


class Pool(Generic[V]):
    """Values by name, each with the stamp of its state; the caller owns a value that it takes. Thread-safe.

    Of more than `most` values, the least recently used one is closed.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._kept: dict[str, _Kept[V]] = {}
        self._lock = threading.Lock()
        self._allowed = _private_bytes() + LOADED_BYTES

    def make_room(self, most: int | None) -> None:
        """Close the least recently used values until all that the process holds for values is at most `most` bytes.

        It is measured: a budget that a value reserved, and did not yet use, takes no memory.
        """
        while most is not None and _private_bytes() - self._allowed > most:
            with self._lock:
                gone = [self._kept.pop(next(iter(self._kept))).value] if self._kept else []
            if not gone:
                return
            _close_all(gone)
            gone.clear()
            _give_back()

    def take(self, name: str, stamp: str = "") -> V | None:
        """The value of this name and stamp, if there is one; a value with another stamp is closed."""
        with self._lock:
            found = self._kept.pop(name, None)
        if found is None or found.stamp == stamp:
            return None if found is None else found.value
        found.value.close()
        return None

    def keep(self, name: str, value: V, stamp: str = "") -> None:
        """Keep a value; another value of that name is closed."""
        with self._lock:
            gone = [self._kept.pop(name).value] if name in self._kept else []
            self._kept[name] = _Kept(stamp, time.monotonic(), value)
            while self._most is not None and len(self._kept) > self._most:
                gone.append(self._kept.pop(next(iter(self._kept))).value)
        _close_all(gone)

    def forget_idle(self, idle_s: float = IDLE_S) -> None:
        """Close values that were not used for `idle_s` seconds."""
        now = time.monotonic()
        with self._lock:
            names = [name for name, kept in self._kept.items() if now - kept.at > idle_s]
            gone = [self._kept.pop(name).value for name in names]
        _close_all(gone)

    def close(self) -> None:
        """Close every value."""
        self.forget_idle(-1.0)


def _private_bytes() -> int:
    """Memory of this process that is no file's."""
    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))


def _give_back() -> None:
    """Return the memory of closed values to the system, which allocators would keep for the next ones."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # another C library than GNU's
            ctypes.CDLL(None).malloc_trim(0)
