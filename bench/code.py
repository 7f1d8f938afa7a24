"""Digests of the code that figures depend on, so that figures older than their code are known as stale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import dovetail

PACKAGE = Path(dovetail.__file__).parent
BENCH = Path(__file__).parent


def digest(parts: Iterable[str]) -> str:
    """One digest of all Python sources in these parts of the package or of `bench` (`online`, `bench/cases` ...)."""
    found = hashlib.sha256()
    for part in sorted(set(parts)):
        found.update(f"{part} {_digest_of(part)}\n".encode())
    return found.hexdigest()[:16]


@cache
def _digest_of(part: str) -> str:
    root = BENCH.parent if part.partition("/")[0] == BENCH.name else PACKAGE
    place = root / part
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place if place.suffix else place.with_suffix(".py")]
    found = hashlib.sha256()
    for file in files:
        found.update(str(file.relative_to(root)).encode())
        found.update(file.read_bytes())
    return found.hexdigest()
