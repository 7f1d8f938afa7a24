"""Where a figure was measured: CPU, memory, system, package versions, and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # ships no type information

import dovetail
from dovetail.version import __version__

PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "pandas")
"""Packages whose versions decide figures; a case adds those of its rivals."""


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


def cpu_model() -> str:
    """The model name that the kernel reports, or what Python knows of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def versions(extra: Iterable[str] = ()) -> dict[str, str | None]:
    """Version by package; None for a package that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "dovetail": __version__}
    for package in sorted({*PACKAGES, *extra}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def commit() -> str | None:
    """Commit of the Dovetail sources, with `+dirty` if they were changed since; None outside a checkout."""
    source = Path(dovetail.__file__)
    if _git(source.parent, "ls-files", "--error-unmatch", source.name) is None:
        return None  # installed inside somebody else's repository
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
