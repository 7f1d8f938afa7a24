"""The partitioning interval joins at tuple level: DIP and OIP, their comparisons and their frames."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from tests.interval.cost.reference import I64, NO_HITS, Table


class Partitions(NamedTuple):
    """Rows by disjoint partition: those of partition p are rows[bounds[p]:bounds[p + 1]], in start order."""

    rows: I64
    bounds: I64
    overflowed: tuple[int, ...]  # rows left over by each pass but the last

    @property
    def sizes(self) -> I64:
        return np.diff(self.bounds)


def disjoint_partitions(table: Table, at_once: int) -> Partitions:
    """Each row goes to the partition that ended first, to a new one, or to the next pass when `at_once` are open."""
    number = np.full(table.starts.size, -1, np.int64)
    todo, opened, overflowed = np.arange(table.starts.size), 0, []
    while todo.size:
        opened = _assign(table.starts, table.ends, todo, at_once, opened, number)
        todo = todo[number[todo] < 0]
        if todo.size:
            overflowed.append(int(todo.size))
    order = np.argsort(number, kind="stable")
    return Partitions(order, np.searchsorted(number[order], np.arange(opened + 1)), tuple(overflowed))


@njit
def _assign(starts, ends, todo, at_once, opened, number):  # type: ignore[no-untyped-def]  # compiled by Numba
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]
    for row in todo:
        if len(heap) > 0 and starts[row] >= heap[0][0]:
            number[row] = heap[0][1]
            heapq.heapreplace(heap, (ends[row], number[row]))
        elif len(heap) < at_once:
            number[row] = opened
            heapq.heappush(heap, (ends[row], number[row]))
            opened += 1
    return opened


def dip(r: Table, s: Table, hits: NDArray[np.int8] = NO_HITS) -> tuple[int, int, int]:
    """(pairs, comparisons, R partitions) of the join in memory."""
    everything = max(r.starts.size, s.starts.size)
    a, b = disjoint_partitions(r, everything), disjoint_partitions(s, everything)
    pairs, compared = _merge_all(a.rows, a.bounds, b.rows, b.bounds, (r.starts, s.starts), (r.ends, s.ends), hits)
    return pairs, compared, a.sizes.size


@njit
def _merge_all(r_rows, r_bounds, s_rows, s_bounds, starts, ends, hits):  # type: ignore[no-untyped-def]  # as above
    pairs, compared = 0, 0
    for p in range(r_bounds.size - 1):
        for q in range(s_bounds.size - 1):
            i, j = r_bounds[p], s_bounds[q]
            while i < r_bounds[p + 1] and j < s_bounds[q + 1]:
                a, b = r_rows[i], s_rows[j]
                compared += 1
                if starts[0][a] < ends[1][b] and starts[1][b] < ends[0][a]:
                    pairs += 1
                    if hits.size > 0:
                        hits[a, b] += 1
                if ends[0][a] < ends[1][b]:
                    i += 1
                else:
                    j += 1
    return pairs, compared


def dip_frames(r: Table, s: Table, frames: int, tuples_per_frame: int) -> int:
    """Frames written and read by the spilling join: S in whole batches, R once per batch, overflow passes included."""
    written, totals = 0, []
    for table in (r, s):
        parts = disjoint_partitions(table, frames - 1)
        overflow = 2 * sum(_frames(n, tuples_per_frame) for n in parts.overflowed)
        totals.append(int((-(-parts.sizes // tuples_per_frame)).sum()))
        written += totals[-1] + overflow
    batches = _frames(totals[1], frames - 1)
    return written + batches * totals[0] + totals[1]


def _frames(n: int, per_frame: int) -> int:
    return -(-n // per_frame)


class Slotted(NamedTuple):
    """Non-empty partitions in file order: first slot, last slot, rows."""

    first: I64
    last: I64
    rows: I64


def slotted(table: Table, width: int) -> Slotted:
    """Partitions by the slots of the first and the last instant; rows past the range get slots of their own."""
    pairs = np.stack([(table.ends - 1) // width, -(table.starts // width)])
    unique, rows = np.unique(pairs, axis=1, return_counts=True)
    return Slotted(-unique[1], unique[0], rows)


def oip_comparisons(r: Table, s: Table, width: int) -> int:
    """Comparisons of the nested loops over overlapping partition pairs."""
    a, b = slotted(r, width), slotted(s, width)
    meet = (b.first[None, :] <= a.last[:, None]) & (a.first[:, None] <= b.last[None, :])
    return int((meet * a.rows[:, None] * b.rows[None, :]).sum())


def oip_frames(r: Table, s: Table, width: int, frames: int, tuples_per_frame: int) -> tuple[int, int]:
    """Frames written and read by the spilling join, R read once per S partition and pass, and R once per block of S."""
    a, b = slotted(r, width), slotted(s, width)
    size_a, size_b = -(-a.rows // tuples_per_frame), -(-b.rows // tuples_per_frame)
    meet = (b.first[None, :] <= a.last[:, None]) & (a.first[:, None] <= b.last[None, :])
    by_partition = (meet * size_a[:, None] * -(-size_b // frames)[None, :]).sum()
    ends = np.cumsum(size_b)
    first_block, last_block = (ends - size_b) // (frames - 2), (ends - 1) // (frames - 2)
    by_block = 0
    for block in range(int(last_block[-1]) + 1):
        inside = (first_block <= block) & (block <= last_block)
        by_block += int(size_a[meet[:, inside].any(axis=1)].sum())
    written = int(size_a.sum())
    return written + int(by_partition), written + by_block
