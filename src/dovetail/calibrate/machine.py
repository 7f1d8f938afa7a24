"""The processor and the package versions that unit costs depend on."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dovetail.version import __version__

PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "pandas")
"""Packages whose versions decide figures; a benchmark adds those of its rivals."""


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
