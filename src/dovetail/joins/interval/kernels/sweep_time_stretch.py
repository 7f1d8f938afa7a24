"""The time sweep where nothing stands in its way: both windows, the output and memory have room.

Does what the general steps do, for whole stretches of events, in local variables, and leaves the event that needs
attention to them.
"""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.inline import inlined
from dovetail.joins.interval.kernels import sweep_state as sw
from dovetail.joins.interval.kernels.sweep_heap import heap_pop, heap_push
from dovetail.joins.interval.kernels.sweep_state import Rows


@inlined
def fill_hole(active: I64, place: I64, row: int, count: int) -> None:
    """Put the last of `count` + 1 active rows in the place of `row`."""
    last, hole = active[count], place[row]
    active[hole], place[last] = last, hole


@inlined
def _enter(active: I64, place: I64, count: int, row: int) -> None:
    active[count], place[row] = row, count


@inlined
def _fill(out_mine: I64, out_theirs: I64, n: int, row: int, active: I64, count: int) -> None:
    for i in range(count):
        out_mine[n + i] = row
        out_theirs[n + i] = active[i]


@inlined
def time_stretch(
    state: I64,
    r: Rows,
    s: Rows,
    range_start: int,
    active_r: I64,
    active_s: I64,
    place_r: I64,
    place_s: I64,
    ends: I64,
    refs: I64,
    out_r: I64,
    out_s: I64,
) -> None:
    """Deletes, adds and answers until an event may run out of rows, memory or output; every active pair is an answer.

    Stops between events, so that the general steps can go on, and does nothing before `range_start`.
    """
    a, a_end, a_count = state[sw.R_POS], state[sw.R_END], state[sw.R_ACTIVE]
    b, b_end, b_count = state[sw.S_POS], state[sw.S_END], state[sw.S_ACTIVE]
    heap, used, n, store = state[sw.HEAP], state[sw.USED], state[sw.OUT], state[sw.STORE] != 0
    room, found, peak = out_r.size if store else sw.NEVER, 0, 0
    while a < a_end and b < b_end and min(r.start[a], s.start[b]) >= range_start:
        point = min(r.start[a], s.start[b])
        while heap > 0 and ends[0] <= point:
            ref = heap_pop(ends, refs, heap)
            heap -= 1
            if ref & 1 == 0:
                a_count -= 1
                used -= sw.weight_of(r, ref >> 1)
                fill_hole(active_r, place_r, ref >> 1, a_count)
            else:
                b_count -= 1
                used -= sw.weight_of(s, ref >> 1)
                fill_hole(active_s, place_s, ref >> 1, b_count)
        if r.start[a] <= s.start[b]:
            if used + sw.weight_of(r, a) > state[sw.CAPACITY] or n + b_count > room:
                break
            _enter(active_r, place_r, a_count, a)
            heap_push(ends, refs, heap, r.end[a], a * 2)
            used += sw.weight_of(r, a)
            if store:
                _fill(out_r, out_s, n, a, active_s, b_count)
                n += b_count
            found, a, a_count = found + b_count, a + 1, a_count + 1
        else:
            if used + sw.weight_of(s, b) > state[sw.CAPACITY] or n + a_count > room:
                break
            _enter(active_s, place_s, b_count, b)
            heap_push(ends, refs, heap, s.end[b], b * 2 + 1)
            used += sw.weight_of(s, b)
            if store:
                _fill(out_s, out_r, n, b, active_r, a_count)
                n += a_count
            found, b, b_count = found + a_count, b + 1, b_count + 1
        heap += 1
        peak = max(peak, a_count + b_count)
    state[sw.R_POS], state[sw.R_ACTIVE] = a, a_count
    state[sw.S_POS], state[sw.S_ACTIVE] = b, b_count
    state[sw.HEAP], state[sw.USED], state[sw.OUT] = heap, used, n
    state[sw.PRODUCTIVE] += found
    state[sw.PEAK_ACTIVE] = max(state[sw.PEAK_ACTIVE], peak)
