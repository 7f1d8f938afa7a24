"""Describes where a figure was measured: machine, versions, commit and digests of the code; and resident memory."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import threading
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]  # ships no type information

import dovetail
from bench.imports import code_digest, imported, sources_of
from dovetail.calibrate.unit_cost import cpu_model, versions

__all__ = ["PeakMemory", "commit", "digest", "machine", "tree_memory", "tree_rss", "usable_cores", "versions"]
PACKAGE, BENCH = Path(dovetail.__file__).parent, Path(__file__).parent
INTERVAL_S = 0.05


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """CPU, cores, memory, load and system of this machine, ready for JSON."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_1m": round(psutil.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
    }


def commit() -> str | None:
    """Commit of the Dovetail sources, with `+dirty` if they were changed since; None outside a checkout."""
    return _commit_of(Path(dovetail.__file__))


@cache
def _commit_of(source: Path) -> str | None:
    if _git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
        return None  # installed inside another repository
    head = _git(source.parent, "rev-parse", "HEAD")
    changed = _git(source.parent, "status", "--porcelain", "--", ".")
    return f"{head}+dirty" if head and changed else head


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  (fixed program and arguments of our own)
            ["git", "-C", str(directory), *arguments],  # noqa: S607  (git is where PATH says)
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def digest(parts: Iterable[str]) -> str:
    """One digest of all sources in these parts of the package or of `bench`.

    `bench.experiments.online.pauses:counted` is a module and all that it imports, see `bench/imports.py`;
    `bench/experiments/online.toml#online-zipf` is one table of a file, with the one that it is like; `engine/kernels`
    and `bench/judge.py` are a folder and a file. Comments and docstrings do not count.
    """
    found = hashlib.sha256()
    for part in sorted(set(parts)):
        found.update(f"{part} {_digest_of(part)}\n".encode())
    return found.hexdigest()[:16]


@cache
def _digest_of(part: str) -> str:
    module, colon, ground = part.partition(":")
    if colon:
        return _digest_of_files((name, file) for name in imported(module, ground) for file in sources_of(name))
    root = BENCH.parent if part.partition("/")[0] == BENCH.name else PACKAGE
    path, _, table = part.partition("#")
    place = root / path
    if table:
        return hashlib.sha256(repr(_table_of(place, table)).encode()).hexdigest()
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place if place.suffix else place.with_suffix(".py")]
    return _digest_of_files([(str(file.relative_to(root)), file) for file in files])


def _digest_of_files(files: Iterable[tuple[str, Path]]) -> str:
    found = hashlib.sha256()
    for name, file in files:
        found.update(f"{name} {code_digest(file)}\n".encode())
    return found.hexdigest()


def _table_of(file: Path, name: str) -> list[dict[str, Any]]:
    """A table of a TOML file without its points for tests, and the one that it is like."""
    tables = tomllib.loads(file.read_text())
    own = {key: value for key, value in tables[name].items() if key != "tiny"}
    return [own, tables.get(own.get("like", ""), {})]


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
