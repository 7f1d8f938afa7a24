"""Combinations of loaded rows of all relations that were not produced before.

Reference: docs/algorithms/online.md, 4.3 and 5.3 (R1 and R2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.online.kernels.ranges import range_of


class Stretches(NamedTuple):
    """Rows of all relations one after the other, from `start[d]` on those of the relation at depth d.

    By attribute and row: key. By row: arrival and departure ticks, block. `sorted_key` has the keys of each relation
    that face its neighbour, sorted, `sorted_near` those of a band besides, or the same, and `at` the rows they are of.
    By depth: relation, depth of the neighbour, the neighbour's attribute, and the range of keys around a key of the
    neighbour with its measure; then the neighbour's key of the band besides, -1 without one, and the range around that.
    """

    start: I64
    key: I64
    ats: I64
    dts: I64
    block: I64
    sorted_key: I64
    sorted_near: I64
    at: I64
    plan: I64


RELATION, PARENT, ATTRIBUTE, DOWN, UP, MEASURE, NEAR, NEAR_DOWN, NEAR_UP, NEAR_MEASURE = range(10)


class Done(NamedTuple):
    """What was produced from disk: by relation the blocks of the finished box; the batch in flight as (is there one,
    outer relation, its blocks); the relation and block of each digit."""

    box: I64
    flight: I64
    digits: I64
    current: I64


@kernel
def met_in_memory(s: Stretches, rows: I64) -> bool:
    """R1: all rows were in memory when the last of them arrived. Only complete combinations may be asked."""
    latest, earliest = s.ats[rows[0]], s.dts[rows[0]]
    for depth in range(1, len(rows)):
        latest, earliest = max(latest, s.ats[rows[depth]]), min(earliest, s.dts[rows[depth]])
    return latest < earliest  # type: ignore[no-any-return]  # Numba's bool


@kernel
def _in_box(s: Stretches, done: Done, rows: I64) -> bool:
    for depth in range(len(rows)):
        block = s.block[rows[depth]]
        if block < 0 or block >= done.box[s.plan[depth, RELATION]]:
            return False
    return True


@kernel
def _in_flight(s: Stretches, done: Done, rows: I64, by_relation: I64) -> bool:
    """Whether the outer batch under way has met these inner blocks: their digits come before the current ones."""
    if done.flight[0] == 0:
        return False
    for depth in range(len(rows)):
        by_relation[s.plan[depth, RELATION]] = s.block[rows[depth]]
        if s.block[rows[depth]] < 0:
            return False
    outer = by_relation[done.flight[1]]
    first = done.box[done.flight[1]]
    if outer < first or outer >= first + done.flight[2]:
        return False
    for digit in range(len(done.digits)):
        if by_relation[done.digits[digit]] >= done.box[done.digits[digit]]:
            return False
    for digit in range(len(done.digits)):
        block = by_relation[done.digits[digit]]
        if block != done.current[digit]:
            return block < done.current[digit]  # type: ignore[no-any-return]  # Numba's bool
    return False


@kernel
def first_pair(keys: I64, nears: I64, start: int, stop: int, key: int, near: int) -> int:
    """The first place from `start` on, before `stop`, that is not below (key, near)."""
    low, high = start, stop
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key or (keys[middle] == key and nears[middle] < near):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def pairs_in_range(keys: I64, nears: I64, low: I64, high: I64, near_low: I64, near_high: I64, found: Bool) -> None:
    """For each range whether one of the pairs, which are sorted, lies in it."""
    for row in range(len(low)):
        found[row] = False
        if low[row] <= high[row] and near_low[row] <= near_high[row]:
            at = first_pair(keys, nears, 0, len(keys), low[row], near_low[row])
            if at < len(keys) and keys[at] <= high[row]:
                found[row] = keys[at] < high[row] or nears[at] <= near_high[row]


@kernel
def combine(s: Stretches, done: Done, cursor: I64, rows: I64, out: I64) -> int:
    """How many new combinations were written, rows by depth; `cursor` says where to go on.

    `cursor` has for each depth the place in sorted order, -1 for one that was not begun; then the depth, which is
    below 0 when all is done; then comparisons made. `rows` is room for one row a depth.
    """
    n, last, depth = 0, len(rows) - 1, cursor[len(rows)]
    by_relation = np.zeros(len(rows), np.int64)
    while depth >= 0:
        parent = s.plan[depth, PARENT]
        low, high = -(2**63), 2**63 - 1
        if depth > 0:
            key = s.key[s.plan[depth, ATTRIBUTE], rows[parent]]
            low, high = range_of(key, s.plan[depth, DOWN : MEASURE + 1])
        near_low, near_high = low, high
        if s.plan[depth, NEAR] >= 0:
            key = s.key[s.plan[depth, NEAR], rows[parent]]
            near_low, near_high = range_of(key, s.plan[depth, NEAR_DOWN : NEAR_MEASURE + 1])
        place, end = cursor[depth] + 1, s.start[depth + 1]
        if cursor[depth] < 0:
            place = first_pair(s.sorted_key, s.sorted_near, s.start[depth], end, low, near_low)
        cursor[len(rows) + 1] += 1
        beyond = low > high or near_low > near_high or place >= end or s.sorted_key[place] > high
        if beyond or (s.sorted_key[place] == high and s.sorted_near[place] > near_high):
            cursor[depth] = -1
            depth -= 1
            continue
        if depth == last and n == len(out):
            cursor[len(rows)] = depth
            return n
        cursor[depth], rows[depth] = place, s.at[place]
        if depth < last:
            depth += 1
            continue
        if met_in_memory(s, rows) or _in_box(s, done, rows) or _in_flight(s, done, rows, by_relation):
            continue
        for d in range(len(rows)):
            out[n, d] = rows[d]
        n += 1
    cursor[len(rows)] = depth
    return n


@register_warmup
def _warm() -> None:
    row, two = int64s(np.zeros(2, np.int64)), int64s(np.array([0, 1]))
    plan = int64s(np.zeros((2, 10), np.int64))
    s = Stretches(int64s(np.array([0, 1, 2])), int64s(np.zeros((1, 2), np.int64)), row, row, row, row, row, two, plan)
    done = Done(row, int64s(np.zeros(3, np.int64)), int64s(row[:1]), int64s(row[:1]))
    combine(s, done, np.array([-1, -1, 0, 0]), np.zeros(2, np.int64), np.zeros((2, 2), np.int64))
    pairs_in_range(row, row, row, row, row, row, np.zeros(2, np.bool_))
