"""Binary searches that several families share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.engine.kernels.arrays import I64, AnyArray, inlined, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup


@inlined
def first_from(values: AnyArray, low: int, stop: int, sought: Any) -> int:
    """The first place in [low, stop), where values ascend, whose value is not below `sought`; else `stop`."""
    while low < stop:
        middle = (low + stop) >> 1
        if values[middle] < sought:
            low = middle + 1
        else:
            stop = middle
    return low


@inlined
def run_of(keys: I64, key: int, run: int) -> int:
    """The place of a key among ascending keys, -1 if it has none; `run` is that of the row before, often the same."""
    if run >= 0 and keys[run] == key:
        return run
    found = first_from(keys, 0, keys.size, key)
    return found if found < keys.size and keys[found] == key else -1


def pieces_of(hashes: I64, times: I64, at_hash: I64, at_time: I64) -> I64:
    """For each row how many of the ascending boundaries (at_hash, at_time) are at its (hash, time) or before it."""
    out = np.empty(len(times), np.int64)
    _place(int64s(hashes), int64s(times), int64s(at_hash), int64s(at_time), out)
    return out


@kernel
def _place(hashes: I64, times: I64, at_hash: I64, at_time: I64, out: I64) -> None:
    for row in range(times.size):
        low, high = 0, at_time.size
        while low < high:
            middle = (low + high) >> 1
            if at_hash[middle] < hashes[row] or (at_hash[middle] == hashes[row] and at_time[middle] <= times[row]):
                low = middle + 1
            else:
                high = middle
        out[row] = low


@register_warmup
def _warm() -> None:
    some = np.arange(3)
    pieces_of(some, some, some, some)
