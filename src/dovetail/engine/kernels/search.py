"""Binary searches that kernels of several families share."""

from __future__ import annotations

from typing import Any

from dovetail.engine.kernels.arrays import I64, AnyArray, inlined


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
