"""Inlines functions into the kernels that call them.

An ordinary call between compiled functions counts references to each array that it passes, which costs more than most
parts of a sweep. Inlined functions are not cached or warmed by themselves, but as part of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def inlined(fn: F) -> F:
    """The function, inlined where a kernel calls it; Python can call it too."""
    return cast("F", numba.njit(nogil=True, boundscheck=False, forceinline=True)(fn))
