"""The streaming interval joins at tuple level, one statement after the other, to hold the cost models against.

Plain Python compiled by Numba for the large settings (NUMBA_DISABLE_JIT=1 runs it uncompiled). Memory is a number of
tuples; a tuple is written to its input's replay file once and read as often as it is replayed. `hits`, if not empty,
counts how often each pair was returned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
NEVER = 2**62

PAIRS, COMPARED, DROPPED, SPILLS_R, SPILLS_S, WRITTEN, READ, PEAK = range(8)
NO_HITS: NDArray[np.int8] = np.zeros((0, 0), np.int8)


class Table(NamedTuple):
    """Intervals in (start, end) order."""

    starts: I64
    ends: I64


class Counts(NamedTuple):
    """What a run did: `dropped` are tuples found dead while spilling; written, read and peak are tuples."""

    pairs: int
    compared: int
    dropped: int
    spills_r: int
    spills_s: int
    written: int
    read: int
    peak: int

    @property
    def spills(self) -> int:
        return self.spills_r + self.spills_s

    def frames(self, tuples_per_frame: int) -> float:
        return (self.written + self.read) / tuples_per_frame


def steady(time_range: int, arrival_rate: int, duration: int) -> Table:
    """`arrival_rate` intervals of one duration starting at every instant."""
    starts = np.repeat(np.arange(time_range, dtype=np.int64), arrival_rate)
    return Table(starts, starts + duration)


def union(*tables: Table) -> Table:
    starts = np.concatenate([t.starts for t in tables])
    ends = np.concatenate([t.ends for t in tables])
    order = np.lexsort((ends, starts))
    return Table(starts[order], ends[order])


def overlap_matrix(r: Table, s: Table) -> NDArray[np.int8]:
    """1 where a pair overlaps: the definition."""
    meet = (r.starts[:, None] < s.ends[None, :]) & (s.starts[None, :] < r.ends[:, None])
    return meet.astype(np.int8)


def sort_merge(r: Table, s: Table, capacity: int, hits: NDArray[np.int8] = NO_HITS) -> Counts:
    return _run(_sort_merge, r, s, capacity, hits)


def time_sweep(r: Table, s: Table, capacity: int, hits: NDArray[np.int8] = NO_HITS) -> Counts:
    return _run(_time_sweep, r, s, capacity, hits)


def forward_scan(r: Table, s: Table, capacity: int, hits: NDArray[np.int8] = NO_HITS) -> Counts:
    return _run(_forward_scan, r, s, capacity, hits)


def _run(join: Any, r: Table, s: Table, capacity: int, hits: NDArray[np.int8]) -> Counts:
    counts = np.zeros(8, np.int64)
    join((r.starts, s.starts), (r.ends, s.ends), capacity, counts, hits)
    return Counts(*counts.tolist())


@njit
def _drop(held, size, low, ends, now):  # type: ignore[no-untyped-def]  # compiled by Numba, which infers types
    """Forgets held tuples that ended by `now`; `low` is the smallest end that is held."""
    if low > now:
        return size, low
    kept, low = 0, NEVER
    for a in range(size):
        if ends[held[a]] > now:
            held[kept] = held[a]
            low = min(low, ends[held[a]])
            kept += 1
    return kept, low


@njit
def _meet(held, size, starts, row, end, side, counts, hits):  # type: ignore[no-untyped-def]  # as above
    """Compares `row` of `side` with living held tuples in start order; True if one starts at `end` or later."""
    n = size
    if size > 0 and starts[held[size - 1]] >= end:
        n = 0
        while starts[held[n]] < end:
            n += 1
    counts[PAIRS] += n
    counts[COMPARED] += n + (n < size)
    if hits.size > 0:
        for a in range(n):
            if side == 0:
                hits[row, held[a]] += 1
            else:
                hits[held[a], row] += 1
    return n < size


@njit
def _replay(held, size, low, side, position, starts, ends, filed, counts, hits):  # type: ignore[no-untyped-def]  # as above
    """Reads `side` from `position` on past the held tuples of the other side until none of them lives."""
    counts[SPILLS_R + side] += 1
    for row in range(position, starts[side].size):
        counts[READ] += filed[side][row]
        before = size
        size, low = _drop(held, size, low, ends[1 - side], starts[side][row])
        counts[DROPPED] += before - size
        if size == 0:
            return
        _meet(held, size, starts[1 - side], row, ends[side][row], side, counts, hits)
        if not filed[side][row]:
            filed[side][row] = True
            counts[WRITTEN] += 1


@njit
def _sort_merge(starts, ends, capacity, counts, hits):  # type: ignore[no-untyped-def]  # as above
    filed = (np.zeros(starts[0].size, np.bool_), np.zeros(starts[1].size, np.bool_))
    held, size, low = np.empty(capacity, np.int64), 0, NEVER
    i, j = 0, 0
    while i < starts[0].size:
        counts[READ] += filed[0][i]
        size, low = _drop(held, size, low, ends[1], starts[0][i])
        stopped = _meet(held, size, starts[1], i, ends[0][i], 0, counts, hits)
        full = False
        while not stopped and not full and j < starts[1].size:
            if starts[1][j] >= ends[0][i]:
                counts[COMPARED] += 1
                stopped = True
            elif ends[1][j] <= starts[0][i]:
                j += 1
            elif size == capacity:
                full = True
            else:
                held[size] = j
                low = min(low, ends[1][j])
                _meet(held[size:], 1, starts[1], i, ends[0][i], 0, counts, hits)
                size, j = size + 1, j + 1
        counts[PEAK] = max(counts[PEAK], size)
        if not full:
            i += 1
            continue
        if not filed[0][i]:
            filed[0][i] = True
            counts[WRITTEN] += 1
        _replay(held, size, low, 0, i + 1, starts, ends, filed, counts, hits)
        size, low = 0, NEVER


@njit
def _next_side(starts, at):  # type: ignore[no-untyped-def]  # as above
    """The input whose next tuple starts first, R on ties."""
    if at[0] >= starts[0].size:
        return 1
    if at[1] >= starts[1].size:
        return 0
    return 0 if starts[0][at[0]] <= starts[1][at[1]] else 1


@njit
def _time_sweep(starts, ends, capacity, counts, hits):  # type: ignore[no-untyped-def]  # as above
    filed = (np.zeros(starts[0].size, np.bool_), np.zeros(starts[1].size, np.bool_))
    held = np.empty((2, capacity), np.int64)
    size, at = np.zeros(2, np.int64), np.zeros(2, np.int64)
    low = np.full(2, NEVER)
    while at[0] < starts[0].size or at[1] < starts[1].size:
        side = _next_side(starts, at)
        row = at[side]
        for x in range(2):
            size[x], low[x] = _drop(held[x], size[x], low[x], ends[x], starts[side][row])
        if size[0] + size[1] == capacity:
            freed = 1 if size[1] >= size[0] else 0
            _replay(held[freed], size[freed], low[freed], 1 - freed, at[1 - freed], starts, ends, filed, counts, hits)
            size[freed], low[freed] = 0, NEVER
            continue
        counts[READ] += filed[side][row]
        # every held tuple contains this instant, so all of them match without a look at their bounds
        _meet(held[1 - side], size[1 - side], starts[1 - side], row, ends[side][row], side, counts, hits)
        held[side][size[side]] = row
        size[side] += 1
        low[side] = min(low[side], ends[side][row])
        at[side] += 1
        counts[PEAK] = max(counts[PEAK], size[0] + size[1])


@njit
def _free(freed, chosen, head, tail, starts, ends, filed, counts, hits):  # type: ignore[no-untyped-def]  # as above
    """Matches what is loaded of `freed` with all it can still meet and forgets it."""
    side = 1 - freed
    held = np.arange(head[freed], tail[freed])
    done = 1 if chosen == freed else 0  # the chosen tuple has met all that is in memory already
    size, low = held.size - done, NEVER
    for a in range(done, held.size):
        low = min(low, ends[freed][held[a]])
    for row in range(head[side] + (1 - done), tail[side]):
        size, low = _drop(held[done:], size, low, ends[freed], starts[side][row])
        _meet(held[done:], size, starts[freed], row, ends[side][row], side, counts, hits)
    if done:
        low = min(low, ends[freed][held[0]])
    _replay(held, size + done, low, side, tail[side], starts, ends, filed, counts, hits)
    head[freed] = tail[freed]


@njit
def _forward_scan(starts, ends, capacity, counts, hits):  # type: ignore[no-untyped-def]  # as above
    """Loaded tuples of an input lie between `head` (next to be processed) and `tail` (next to be loaded)."""
    filed = (np.zeros(starts[0].size, np.bool_), np.zeros(starts[1].size, np.bool_))
    head, tail = np.zeros(2, np.int64), np.zeros(2, np.int64)
    while head[0] < starts[0].size and head[1] < starts[1].size:
        side = _next_side(starts, head)
        other, row = 1 - side, head[side]
        if tail[side] == row:
            counts[READ] += filed[side][row]
            tail[side] += 1
        end = ends[side][row]
        held = np.arange(head[other], tail[other])
        stopped = _meet(held, held.size, starts[other], row, end, side, counts, hits)
        while not stopped and head[side] == row and tail[other] < starts[other].size:
            new = tail[other]
            loaded = tail[0] - head[0] + tail[1] - head[1]
            counts[PEAK] = max(counts[PEAK], loaded)
            if starts[other][new] >= end:
                counts[COMPARED] += 1
                stopped = True
            elif loaded >= capacity:
                freed = other if tail[other] - head[other] >= tail[side] - head[side] else side
                _free(freed, side, head, tail, starts, ends, filed, counts, hits)
            else:
                counts[READ] += filed[other][new]
                tail[other] += 1
                _meet(np.arange(new, new + 1), 1, starts[other], row, end, side, counts, hits)
        head[side] = max(head[side], row + 1)
