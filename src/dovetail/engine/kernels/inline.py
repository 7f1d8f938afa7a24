"""Parts of kernels: functions that are compiled into every kernel that calls them.

An ordinary call between compiled functions counts references to each array it passes, which costs more than what most
parts of a sweep do. Parts are not cached or warmed by themselves; the kernels they became part of are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def inlined(fn: F) -> F:
    """The function as a part of the kernels that call it; from Python it can be called too."""
    return cast("F", numba.njit(nogil=True, boundscheck=False, forceinline=True)(fn))
