"""The forward scan where nothing stands in its way: both windows, the output and memory have room.

The general steps ask at every tuple whether to stop; this does the same work for whole stretches of tuples, in local
variables, and leaves the tuple that needs attention to them.
"""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.inline import inlined
from dovetail.joins.interval.kernels import sweep_state as sw
from dovetail.joins.interval.kernels.sweep_state import Rows


@inlined
def first_start_from(starts: I64, first: int, limit: int, end: int) -> int:
    """The first row of [first, limit) that starts at `end` or later, or `limit`."""
    while first < limit and starts[first] < end:
        first += 1
    return first


@inlined
def _fill(out_mine: I64, out_theirs: I64, n: int, row: int, first: int, last: int) -> None:
    for i in range(last - first):
        out_mine[n + i] = row
        out_theirs[n + i] = first + i


@inlined
def forward_stretch(state: I64, r: Rows, s: Rows, range_start: int, out_r: I64, out_s: I64) -> None:
    """Select, scan and finish tuples until one may run out of rows, memory or output; every scanned tuple is an answer.

    Stops before anything is selected, so that the general steps can go on, and does nothing before `range_start`.
    """
    a, a_pos, a_end = state[sw.R_HEAD], state[sw.R_POS], state[sw.R_END]
    b, b_pos, b_end = state[sw.S_HEAD], state[sw.S_POS], state[sw.S_END]
    used, n, room = state[sw.USED], state[sw.OUT], out_r.size if state[sw.STORE] != 0 else sw.NEVER
    found = stops = peak = 0
    while a < a_end and b < b_end and min(r.start[a], s.start[b]) >= range_start:
        if s.start[b] < r.start[a]:
            reach = first_start_from(r.start, a, a_end, s.end[b])
            ahead, own = max(a_pos, reach), max(b_pos, b + 1)
            now = used + sw.span_weight(r, a_pos, ahead) + sw.span_weight(s, b_pos, own)
            if reach == a_end or n + reach - a > room or now > state[sw.CAPACITY]:
                break
            if state[sw.STORE] != 0:
                _fill(out_s, out_r, n, b, a, reach)
                n += reach - a
            a_pos, b_pos, found = ahead, own, found + reach - a
            peak = max(peak, a_pos - a + b_pos - b)
            used = now - sw.weight_of(s, b)
            b += 1
        else:
            reach = first_start_from(s.start, b, b_end, r.end[a])
            ahead, own = max(b_pos, reach), max(a_pos, a + 1)
            now = used + sw.span_weight(s, b_pos, ahead) + sw.span_weight(r, a_pos, own)
            if reach == b_end or n + reach - b > room or now > state[sw.CAPACITY]:
                break
            if state[sw.STORE] != 0:
                _fill(out_r, out_s, n, a, b, reach)
                n += reach - b
            a_pos, b_pos, found = own, ahead, found + reach - b
            peak = max(peak, a_pos - a + b_pos - b)
            used = now - sw.weight_of(r, a)
            a += 1
        stops += 1  # each scan ends with the comparison that stops it
    state[sw.R_HEAD], state[sw.R_POS], state[sw.R_ACTIVE] = a, a_pos, a_pos - a
    state[sw.S_HEAD], state[sw.S_POS], state[sw.S_ACTIVE] = b, b_pos, b_pos - b
    state[sw.USED], state[sw.OUT] = used, n
    state[sw.PRODUCTIVE] += found
    state[sw.UNPRODUCTIVE] += stops
    state[sw.PEAK_ACTIVE] = max(state[sw.PEAK_ACTIVE], peak)
