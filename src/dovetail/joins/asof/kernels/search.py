"""Searches in rows that are sorted by (key, time)."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.search import run_of


def entries_before(run_keys: I64, run_starts: I64, times: I64, keys: I64, at: I64, exact: bool) -> I64:
    """For each (key, time) the last entry of the key's run at that time or before it, -1 if there is none.

    Run r holds the ascending times from run_starts[r] to run_starts[r + 1] of the key run_keys[r]; keys ascend.
    Without `exact`, an entry at the very time does not count.
    """
    return _searched(run_keys, run_starts, times, keys, at, False, exact)


def entries_after(run_keys: I64, run_starts: I64, times: I64, keys: I64, at: I64, exact: bool) -> I64:
    """For each (key, time) the first entry of the key's run at that time or after it, -1 if there is none."""
    return _searched(run_keys, run_starts, times, keys, at, True, exact)


def _searched(run_keys: I64, run_starts: I64, times: I64, keys: I64, at: I64, forward: bool, exact: bool) -> I64:
    out = np.empty(len(at), np.int64)
    _search(int64s(run_keys), int64s(run_starts), int64s(times), int64s(keys), int64s(at), forward, exact, out)
    return out


@kernel
def _search(
    run_keys: I64, run_starts: I64, times: I64, keys: I64, at: I64, forward: bool, exact: bool, out: I64
) -> None:
    passes_equal = exact != forward  # whether an entry at the very time lies before the place that is searched
    run = -1
    for row in range(at.size):
        run = run_of(run_keys, keys[row], run)
        if run < 0:
            out[row] = -1
            continue
        first, last, time = run_starts[run], run_starts[run + 1], at[row]
        low, high = first, last
        while low < high:
            middle = (low + high) >> 1
            if times[middle] < time or (passes_equal and times[middle] == time):
                low = middle + 1
            else:
                high = middle
        found = low if forward else low - 1
        out[row] = found if first <= found < last else -1


@register_warmup
def _warm() -> None:
    some = np.arange(3)
    entries_before(some[:1], np.array([0, 3]), some, np.zeros(3, np.int64), some, True)
