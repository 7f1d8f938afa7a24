"""Types of the plain arrays of kernels, conversion to the one form that kernels take, and inlined functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Arrow offsets: int32 for string, binary and list, int64 for their large forms."""
AnyArray = npt.NDArray[Any]

NO_BYTES: U8 = np.empty(0, np.uint8)
"""The value for an absent validity bitmap: every row is valid."""


def readonly(array: npt.ArrayLike, dtype: npt.DTypeLike) -> AnyArray:
    """The same numbers as a contiguous, aligned, read-only array of `dtype`; a view where possible.

    Numba compiles one version of a kernel for writable and one for read-only arrays. Arrow memory is read-only, so
    every kernel input is made read-only, and workers need no version that was not compiled. A cast that could lose
    information (float or uint64 to int64) is a TypeError.
    """
    found = np.asarray(array)
    if found.dtype != dtype:
        found = found.astype(dtype, casting="safe") if found.size else np.empty(found.shape, dtype)
    flags = found.flags
    if not (flags.c_contiguous and flags.aligned):
        found = np.require(found, requirements=["C", "A"])
    elif not flags.writeable:
        return found
    view = found.view()
    view.flags.writeable = False
    return view


def int64s(array: npt.ArrayLike) -> I64:
    """The array as kernel input of int64; see `readonly`."""
    return readonly(array, np.int64)


def float64s(array: npt.ArrayLike) -> F64:
    """The array as kernel input of float64; see `readonly`."""
    return readonly(array, np.float64)


def raw_bytes(array: npt.ArrayLike) -> U8:
    """The array's memory as kernel input of single bytes, whatever its type."""
    return readonly(np.ascontiguousarray(array).reshape(-1).view(np.uint8), np.uint8)


def enlarged(array: AnyArray, rows: int) -> AnyArray:
    """A new array of `rows` rows that starts with the old ones; the rest is uninitialised."""
    grown = np.empty((rows, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def grown_capacity(capacity: int, needed: int, limit: int = 2**31 - 1) -> int:
    """The next capacity of a growing array: half as much again, never less than `needed`, never beyond `limit`."""
    if needed > limit:
        raise OverflowError(f"{needed} rows asked of a structure that holds at most {limit}; split the input")
    return capacity if needed <= capacity else min(limit, max(needed, capacity + capacity // 2))


F = TypeVar("F", bound=Callable[..., Any])


def inlined(fn: F) -> F:
    """The function, inlined where a kernel calls it; Python can call it too."""
    return cast("F", numba.njit(nogil=True, boundscheck=False, forceinline=True)(fn))
