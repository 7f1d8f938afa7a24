"""Finds the cache directory, and tells whether compiled kernels are in it, without Numba, which is slow to import."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from dovetail.engine.processor import FEATURES, NAME, portable, runs_portable, target

PACKAGE = Path(__file__).resolve().parents[1]


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """Our cache directory: $DOVETAIL_CACHE, or the user's cache directory / dovetail.

    Where that is not there and cannot be made, as in containers, it is a directory for temporary files that only this
    user can enter.
    """
    if env.get("DOVETAIL_CACHE"):
        return Path(env["DOVETAIL_CACHE"]).expanduser().resolve()
    standard = "~/Library/Caches" if sys.platform == "darwin" else env.get("XDG_CACHE_HOME") or "~/.cache"
    usual = Path(os.path.expanduser(standard)) / "dovetail"  # noqa: PTH111  (a user without a home is no error here)
    is_usable = usual.is_dir() or (usual.is_absolute() and _can_be_made(usual))
    return usual if is_usable else _temporary() or usual


def _can_be_made(place: Path) -> bool:
    return os.access(next(parent for parent in place.parents if parent.exists()), os.W_OK | os.X_OK)


@functools.cache
def _temporary() -> Path | None:
    """A directory for temporary files of this user; None if it is another's: its files would be run."""
    if not hasattr(os, "getuid"):
        return None
    place = Path(tempfile.gettempdir()) / f"dovetail-{os.getuid()}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return place if is_ours else None


def archive() -> Path | None:
    """The zip file that this package was imported from; None if it is installed as files."""
    return next((parent for parent in PACKAGE.parents if parent.is_file()), None)


def cache_dir() -> Path:
    """The directory of compiled kernels in the cache directory.

    Ends in the versions of Python, NumPy and Numba, so that an upgrade never loads what another version wrote.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return cache_root() / f"numba-{_version('numba')}-numpy-{_version('numpy')}-python-{python}"


def read_only() -> bool:
    """True if kernels may be loaded from the cache but never written to it (DOVETAIL_CACHE_READONLY=1)."""
    return os.environ.get("DOVETAIL_CACHE_READONLY", "").strip().lower() in {"1", "true", "yes", "on"}


def kernel_files() -> dict[PurePosixPath, bytes]:
    """The sources of all kernels below the package: the engine's and those of each family, in packages `kernels`."""
    packed = archive()
    if packed is None:
        found = {
            PurePosixPath(file.relative_to(PACKAGE).as_posix()): file.read_bytes()
            for file in PACKAGE.rglob("kernels/*.py")
        }
    else:
        with zipfile.ZipFile(packed) as files:
            inner = f"{PACKAGE.relative_to(packed).as_posix()}/"
            names = [name for name in files.namelist() if name.startswith(inner) and name.endswith(".py")]
            found = {PurePosixPath(name.removeprefix(inner)): files.read(name) for name in names}
    kernels = [name for name in found if name.parent.name == "kernels" and name.stem != "__init__"]
    return {name: found[name] for name in sorted(kernels)}


def prepared_marker(processor: str | None = None) -> Path:
    """A file that exists once all kernels of this source are compiled for a processor, by default this process's.

    Its name depends on the text of all of the source.
    """
    source = hashlib.sha256()
    for name, text in kernel_files().items():
        source.update("/".join(name.parts[-3:]).encode() + text)
    return cache_dir() / f"prepared-{source.hexdigest()[:16]}-{processor or target()}"


def is_prepared() -> bool:
    """True if every kernel of this very source is in the cache on disk, for this processor or a portable one."""
    return prepared_marker().is_file() or takes_portable()


def takes_portable() -> bool:
    """True if kernels for a portable processor are in the cache, those for this host are not, and it runs them."""
    if NAME in os.environ or FEATURES in os.environ or not runs_portable():
        return False
    return prepared_marker(portable()).is_file() and not prepared_marker().is_file()


@functools.cache
def _version(package: str) -> str:
    return importlib.metadata.version(package)
