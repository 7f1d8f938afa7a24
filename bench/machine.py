"""Where a figure was measured: CPU, memory, system, package versions, and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # ships no type information

import dovetail
from dovetail.calibrate.machine import cpu_model, versions

__all__ = ["commit", "cpu_model", "machine", "usable_cores", "versions"]


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
