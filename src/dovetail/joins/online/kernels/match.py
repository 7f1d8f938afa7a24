"""Pairs of two sorted stretches of rows that match, without those that were produced before.

Reference: docs/algorithms/online.md, 2.3 and 5.3 (R1 and R3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64, Bool, inlined, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup

NEVER = 2**63 - 1
"""The departure tick of a row that is in memory."""


class Stretch(NamedTuple):
    """Rows sorted by key, or where codes are compared by code, then key: key, code, range of matching keys of the other
    stretch, arrival and departure ticks. Where rows stand for combinations whose rows met, their ticks are the latest
    arrival and the earliest departure of these; where they did not, the arrival is NEVER and the departure 0."""

    key: I64
    code: I64
    low: I64
    high: I64
    ats: I64
    dts: I64


class Visits(NamedTuple):
    """When the disk part of one side was probed against memory of the other: its latest departure, and the tick."""

    last: I64
    tick: I64


@kernel
def produced(ats: int, dts: int, other_ats: int, other_dts: int) -> bool:
    """R1: whether two rows met when the later one arrived: the earlier one was still in memory then."""
    return other_ats < dts if ats < other_ats else ats < other_dts


@kernel
def _visited(visits: Visits, dts: int, memory_ats: int, memory_dts: int) -> bool:
    """R3: whether a row on disk met a row in memory in one of the visits."""
    for at in range(len(visits.last)):
        if dts <= visits.last[at] and memory_ats < visits.tick[at] and visits.tick[at] < memory_dts:
            return True
    return False


@inlined
def _is_below(rows: Stretch, coded: bool, at: int, code: int, key: int) -> bool:
    if coded and rows.code[at] != code:
        return rows.code[at] < code  # type: ignore[no-any-return]  # Numba's bool
    return rows.key[at] < key  # type: ignore[no-any-return]  # as above


@inlined
def _first_from(rows: Stretch, coded: bool, start: int, code: int, key: int, cursor: I64) -> int:
    """The first row from `start` on that is not below: in doubling steps, as it is near or far, then by halves."""
    step, low = 1, start
    while low < len(rows.key) and _is_below(rows, coded, min(low + step, len(rows.key)) - 1, code, key):
        low, step = min(low + step, len(rows.key)), 2 * step
        cursor[3] += 1
    high = min(low + step, len(rows.key)) - 1  # which is not below
    while low < high:
        middle = (low + high) >> 1
        cursor[3] += 1
        if _is_below(rows, coded, middle, code, key):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def match(
    outer: Stretch,
    inner: Stretch,
    coded: bool,
    complete: bool,
    outer_visits: Visits,
    inner_visits: Visits,
    cursor: I64,
    out_outer: I64,
    out_inner: I64,
) -> int:
    """How many pairs were written, rows of both stretches by number; `cursor` says where to go on.

    Of `complete` combinations only new ones are written; whether others are new cannot be told yet. `cursor` is the
    inner row, where its range starts in the outer stretch, and the next outer row to look at, or -1 if it is at the
    start of its range; then comparisons made. All is done when the inner row is past the last.
    """
    n, row, start, at, compared = 0, cursor[0], cursor[1], cursor[2], np.int64(0)
    n_outer = len(outer.key)
    while row < len(inner.key):
        low, high, code = inner.low[row], inner.high[row], inner.code[row]
        if low > high:  # no key can match; such a range is no place to go on from
            row += 1
            continue
        if at < 0:
            start = _first_from(outer, coded, start, code, low, cursor)
            at = start
        while at < n_outer and outer.key[at] <= high and not (coded and outer.code[at] != code):
            if n == len(out_outer):
                cursor[0], cursor[1], cursor[2] = row, start, at
                cursor[3] += compared
                return n
            compared += 1
            fresh = not complete or not produced(outer.ats[at], outer.dts[at], inner.ats[row], inner.dts[row])
            fresh = fresh and not _visited(outer_visits, outer.dts[at], inner.ats[row], inner.dts[row])
            if fresh and not _visited(inner_visits, inner.dts[row], outer.ats[at], outer.dts[at]):
                out_outer[n], out_inner[n] = at, row
                n += 1
            at += 1
        row, at = row + 1, np.int64(-1)
    cursor[0], cursor[1], cursor[2] = row, start, at
    cursor[3] += compared
    return n


@kernel
def matched(outer: Stretch, inner: Stretch, coded: bool, found: Bool) -> int:
    """For each row of the inner stretch whether one of the outer matches it; returns the comparisons made."""
    cursor = np.zeros(4, np.int64)
    for row in range(len(inner.key)):
        found[row] = False
        if inner.low[row] <= inner.high[row]:
            at = _first_from(outer, coded, cursor[1], inner.code[row], inner.low[row], cursor)
            cursor[1] = at
            if at < len(outer.key) and outer.key[at] <= inner.high[row]:
                found[row] = not coded or outer.code[at] == inner.code[row]
    return cursor[3]  # type: ignore[no-any-return]  # int and np.int64 are one in a kernel


@register_warmup
def _warm() -> None:
    some = int64s(np.arange(3))
    stretch, none = Stretch(some, some, some, some, some, some), Visits(int64s(some[:0]), int64s(some[:0]))
    out = np.zeros(2, np.int64)
    match(stretch, stretch, False, True, none, none, np.array([0, 0, -1, 0]), out, out)
    matched(stretch, stretch, False, np.zeros(3, np.bool_))
