"""Room for nested queries: parsing and evaluation are Python calls, and the usual limit of those is low."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CALLS = 60_000  # calls between Python functions use no C stack, so this many are safe


@contextmanager
def deep_stack() -> Iterator[None]:
    """Raises the limit of nested calls inside the block."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _CALLS))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
