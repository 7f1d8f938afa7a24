"""The k nearest intervals of each interval, from rows that are sorted by (key, start)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool, inlined, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.search import run_of

Numbers = AnyArray
"""Bounds: all int64 or all float64."""
FARTHEST = 2**63 - 1
"""Whole numbers that are farther apart count as this far."""


class Runs(NamedTuple):
    """Rows sorted by (key, start): run r has the key keys[r] and the rows from at[r] to at[r + 1]; keys ascend.

    After each k rows of a run, `tops` has the k rows that end last among all rows of the run so far, last end first;
    those of run r begin at tops_at[r].
    """

    keys: I64
    at: I64
    starts: Numbers
    ends: Numbers
    tops: I64
    tops_at: I64
    k: int


class Wanted(NamedTuple):
    """Which rows count: before the left one, overlapping it, after it; if a shared bound overlaps; how far at most."""

    before: bool
    overlapping: bool
    after: bool
    touching_start: bool
    touching_end: bool
    farthest: int | float | None


def sorted_runs(keys: I64, at: I64, starts: Numbers, ends: Numbers, k: int) -> Runs:
    """The runs with their tops; the arrays are those of the rows in their order."""
    tops_at = np.concatenate(([0], np.cumsum(np.diff(at) // k))) * k
    tops = np.empty(int(tops_at[-1]), np.int64)
    ends = _as_input(ends)
    _fill_tops(int64s(at), ends, int64s(tops_at), k, tops)
    return Runs(int64s(keys), int64s(at), _as_input(starts), ends, int64s(tops), int64s(tops_at), k)


def nearest_rows(
    runs: Runs, wanted: Wanted, keys: I64, known: Bool, starts: Numbers, ends: Numbers
) -> tuple[I64, I64, Numbers]:
    """Of each (key, start, end) its k nearest rows, nearest first: its number, the row's place, and the distance.

    An interval whose key is not known, or that has none, is there once, with place -1. Of equally near rows those that
    overlap come first, then those before, then those after.
    """
    starts, ends = _as_input(starts), _as_input(ends)
    whole = starts.dtype.kind == "i"
    far = np.int64(FARTHEST) if whole else np.float64(np.inf)
    most = far if wanted.farthest is None else far.dtype.type(min(wanted.farthest, far))
    size = max(1, len(keys) * runs.k)
    rows, places, distances = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, starts.dtype)
    flags = readonly(np.array(wanted[:5], np.bool_), np.bool_), readonly(known, np.bool_)
    limits = far.dtype.type(0), far, most
    n = _find(*runs, *flags, int64s(keys), starts, ends, *limits, rows, places, distances)
    return rows[:n], places[:n], distances[:n]


def top_places(runs: Runs) -> I64:
    """The places of the k rows of each run that end last."""
    out = np.empty(len(runs.starts), np.int64)
    return out[: _all_tops(runs.at, runs.ends, runs.tops, runs.tops_at, runs.k, out)]


def _as_input(numbers: Numbers) -> Numbers:
    return readonly(numbers, np.float64 if numbers.dtype.kind == "f" else np.int64)


@inlined
def _gap(later: Any, earlier: Any, zero: Any, far: Any) -> Any:
    """How far apart two numbers are; zero if they are in the other order."""
    if later <= earlier:
        return zero
    distance = later - earlier
    return far if distance < zero else distance


@inlined
def _insert(best: I64, filled: int, place: int, ends: Numbers) -> int:
    """Insert a later row into the rows that end last; of equal ends the earlier row stays first."""
    if filled == best.size:
        if ends[place] <= ends[best[filled - 1]]:
            return filled
        filled -= 1
    to = filled
    while to > 0 and ends[best[to - 1]] < ends[place]:
        best[to] = best[to - 1]
        to -= 1
    best[to] = place
    return filled + 1


@kernel
def _fill_tops(at: I64, ends: Numbers, tops_at: I64, k: int, tops: I64) -> None:
    best = np.empty(k, np.int64)
    for run in range(at.size - 1):
        filled, to = 0, tops_at[run]
        for place in range(at[run], at[run + 1]):
            filled = _insert(best, filled, place, ends)
            if (place - at[run] + 1) % k == 0:
                tops[to : to + k] = best
                to += k


@inlined
def _tops_of(first: int, stop: int, ends: Numbers, tops: I64, tops_at: int, best: I64) -> int:
    """The rows of a run from `first` to before `stop` that end last, in `best`; returns how many."""
    k = best.size
    kept = (stop - first) // k
    filled = 0
    if kept > 0:
        filled = k
        best[:] = tops[tops_at + (kept - 1) * k : tops_at + kept * k]
    for place in range(first + kept * k, stop):
        filled = _insert(best, filled, place, ends)
    return filled


@kernel
def _all_tops(at: I64, ends: Numbers, tops: I64, tops_at: I64, k: int, out: I64) -> int:
    best, n = np.empty(k, np.int64), 0
    for run in range(at.size - 1):
        filled = _tops_of(at[run], at[run + 1], ends, tops, tops_at[run], best)
        out[n : n + filled] = best[:filled]
        n += filled
    return n


@kernel
def _find(
    run_keys: I64,
    at: I64,
    starts: Numbers,
    ends: Numbers,
    tops: I64,
    tops_at: I64,
    k: int,
    flags: Bool,
    known: Bool,
    keys: I64,
    left_starts: Numbers,
    left_ends: Numbers,
    zero: Any,  # this and the next two: numbers of the type of the bounds
    far: Any,
    most: Any,
    rows: I64,
    places: I64,
    distances: Numbers,
) -> int:
    before, overlapping, after, touching_start, touching_end = flags[0], flags[1], flags[2], flags[3], flags[4]
    best = np.empty(k, np.int64)
    run, n = -1, 0
    for row in range(keys.size):
        key, n_before = keys[row], n
        run = run_of(run_keys, key, run)
        if run >= 0 and known[row]:
            first, last, start, end = at[run], at[run + 1], left_starts[row], left_ends[row]
            low, high = first, last  # rows from `low` start after the left one ends
            while low < high:
                middle = (low + high) >> 1
                if starts[middle] < end or (touching_end and starts[middle] == end):
                    low = middle + 1
                else:
                    high = middle
            i, filled, j = 0, 0, low if after else last
            if before or overlapping:
                filled = _tops_of(first, low, ends, tops, tops_at[run], best)
            while n - n_before < k:
                if i < filled:
                    place = best[i]
                    overlaps = ends[place] > start or (touching_start and ends[place] == start)
                    if not overlaps and not before:
                        filled = i
                        continue
                    one = _gap(start, ends[place], zero, far)
                    if j >= last or one <= _gap(starts[j], end, zero, far):
                        if one > most:
                            break
                        rows[n], places[n], distances[n] = row, place, one
                        i += 1
                        n += 1
                        continue
                if j >= last or _gap(starts[j], end, zero, far) > most:
                    break
                rows[n], places[n], distances[n] = row, j, _gap(starts[j], end, zero, far)
                j += 1
                n += 1
        if n == n_before:
            rows[n], places[n], distances[n] = row, -1, most
            n += 1
    return n


@register_warmup
def _warm() -> None:
    for kind in (np.int64, np.float64):
        some = np.arange(3).astype(kind)
        runs = sorted_runs(np.zeros(1, np.int64), np.array([0, 3]), some, some + kind(1), 2)
        nearest_rows(
            runs, Wanted(True, True, True, False, False, None), np.zeros(3, np.int64), some > 0, some, some + kind(1)
        )
        top_places(runs)
