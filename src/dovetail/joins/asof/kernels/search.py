"""Searches in rows that are sorted by (key, time)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.search import run_of

_INDEXED = 64  # entries from which a run has slots: shorter ones are in the processor's cache
_A_SLOT = 4  # entries


class Runs(NamedTuple):
    """Ascending times, key by key: run r is `times[starts[r]:starts[r + 1]]`, of the key `keys[r]`; keys ascend.

    A long run is divided into slots of equal length in time, which number `scales[r]` a unit: `slots[firsts[r] + s]` is
    its first entry of slot s or a later one. A search is then one in the few entries of a slot, however long the run.
    """

    keys: I64
    starts: I64
    times: I64
    firsts: I64
    scales: F64
    slots: I64

    @classmethod
    def of(cls, keys: I64, starts: I64, times: I64) -> Runs:
        """The runs, with slots where they are long."""
        lengths = np.diff(starts)
        numbers = np.where(lengths < _INDEXED, 0, lengths // _A_SLOT)
        firsts = int64s(np.cumsum(numbers + 1) - numbers - 1)
        scales, slots = np.zeros(len(keys)), np.zeros(int(numbers.sum()) + len(keys), np.int64)
        runs = cls(int64s(keys), int64s(starts), int64s(times), firsts, scales, slots)
        _fill(*runs[1:4], int64s(numbers), scales, slots)
        return runs


def entries_before(runs: Runs, keys: I64, at: I64, exact: bool) -> I64:
    """For each (key, time) the last entry of the key's run at that time or before it, -1 if there is none.

    Without `exact`, an entry at the very time does not count.
    """
    return _searched(runs, keys, at, False, exact)


def entries_after(runs: Runs, keys: I64, at: I64, exact: bool) -> I64:
    """For each (key, time) the first entry of the key's run at that time or after it, -1 if there is none."""
    return _searched(runs, keys, at, True, exact)


def _searched(runs: Runs, keys: I64, at: I64, forward: bool, exact: bool) -> I64:
    out = np.empty(len(at), np.int64)
    _search(*runs, int64s(keys), int64s(at), forward, exact, out)
    return out


@kernel
def _fill(starts: I64, times: I64, firsts: I64, numbers: I64, scales: F64, slots: I64) -> None:
    for run in range(firsts.size):
        first, last, n = starts[run], starts[run + 1], numbers[run]
        if n == 0:
            continue
        origin = float(times[first])
        scales[run] = n / (float(times[last - 1]) - origin + 1.0)
        filled = 0
        for entry in range(first, last):
            slot = min(n - 1, int((float(times[entry]) - origin) * scales[run]))
            while filled <= slot:
                slots[firsts[run] + filled] = entry
                filled += 1
        while filled <= n:
            slots[firsts[run] + filled] = last
            filled += 1


@kernel
def _search(
    run_keys: I64,
    run_starts: I64,
    times: I64,
    firsts: I64,
    scales: F64,
    slots: I64,
    keys: I64,
    at: I64,
    forward: bool,
    exact: bool,
    out: I64,
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
        if scales[run] > 0.0:  # slots ascend with times, also where these are rounded: those of other slots are passed
            place = (float(time) - float(times[first])) * scales[run]
            most = (firsts[run + 1] if run + 1 < firsts.size else slots.size) - firsts[run] - 2
            slot = firsts[run] + (0 if place < 0.0 else most if place >= most else int(place))
            low, high = slots[slot], slots[slot + 1]
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
    runs = Runs.of(np.zeros(1, np.int64), np.array([0, 3]), np.arange(3))
    entries_before(runs, np.zeros(3, np.int64), np.arange(3), True)
