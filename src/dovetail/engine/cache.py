"""Finds the cache directory, and tells whether compiled kernels are in it, without Numba, which is slow to import."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """Our cache directory: $DOVETAIL_CACHE, or the user's cache directory / dovetail."""
    if env.get("DOVETAIL_CACHE"):
        return Path(env["DOVETAIL_CACHE"]).expanduser().resolve()
    standard = "~/Library/Caches" if sys.platform == "darwin" else env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(standard).expanduser() / "dovetail"


def cache_dir() -> Path:
    """The directory of compiled kernels in the cache directory.

    Ends in the versions of Python, NumPy and Numba, so that an upgrade never loads what another version wrote.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return cache_root() / f"numba-{_version('numba')}-numpy-{_version('numpy')}-python-{python}"


def read_only() -> bool:
    """True if kernels may be loaded from the cache but never written to it (DOVETAIL_CACHE_READONLY=1)."""
    return os.environ.get("DOVETAIL_CACHE_READONLY", "").strip().lower() in {"1", "true", "yes", "on"}


def kernel_files() -> list[Path]:
    """The sources of all kernels: the engine's and those of each family, in packages named `kernels`."""
    return sorted(file for file in PACKAGE.rglob("kernels/*.py") if file.stem != "__init__")


def prepared_marker() -> Path:
    """A file that exists once all kernels of this source are compiled; its name depends on the text of all of it."""
    source = hashlib.sha256()
    for file in kernel_files():
        source.update("/".join(file.parts[-3:]).encode() + file.read_bytes())
    return cache_dir() / f"prepared-{source.hexdigest()[:16]}"


def is_prepared() -> bool:
    """True if every kernel of this very source is in the cache on disk."""
    return prepared_marker().is_file()


@functools.cache
def _version(package: str) -> str:
    return importlib.metadata.version(package)
