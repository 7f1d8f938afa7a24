"""Parts of the XML scanner: some seventy small functions that are compiled as one kernel.

Numba optimises each compiled function together with all that it calls, and compiles it once more for every constant
that it is called with. So what is called at one place is put into its caller before anything is compiled, and the rest
is compiled for numbers, not for constants. Parts allocate nothing, so none of them counts references: counting made the
scanner three times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from dovetail.engine.kernels.compile import kernel

F = TypeVar("F", bound=Callable[..., Any])

# Numba's type information knows neither the option that leaves out reference counts nor this function.
_njit: Any = numba.njit
_unliteral: Any = numba.types.unliteral


def inlined(fn: F) -> F:
    """The function as text of each function that calls it."""
    return cast("F", _njit(nogil=True, boundscheck=False, inline="always", _nrt=False)(fn))


def called(fn: F) -> F:
    """The function compiled once and called: for what is large and called at several places."""
    return _part(fn, forceinline=False)


def small(fn: F) -> F:
    """The function compiled once and put into each caller by LLVM: for what is small and called at many places."""
    return _part(fn, forceinline=True)


def _part(fn: F, *, forceinline: bool) -> F:
    part: Any = _njit(nogil=True, boundscheck=False, forceinline=forceinline, _nrt=False)(fn)
    if hasattr(part, "compile"):  # not so with NUMBA_DISABLE_JIT=1
        compile_for = part.compile
        part.compile = lambda types: compile_for(tuple(_unliteral(each) for each in types))
    return cast("F", part)


def entry(fn: F) -> F:
    """The function as a kernel that Python calls, cached on disk, without reference counts like its parts."""
    compiled: Any = kernel(fn)
    if hasattr(compiled, "targetoptions"):
        compiled.targetoptions["_nrt"] = False
    return cast("F", compiled)
