"""Forward-scan interval join: the tuple that starts first scans the other side from its own start to its own end.

Tuples loaded ahead of their turn are the rows between HEAD and POS of a window, so the active lists cost nothing.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, inlined
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule


# A stretch is a part of the scan in which neither window, nor the output, nor memory runs out. The general steps ask at
# every tuple whether to stop; a stretch does the same work in local variables and leaves them the tuple that stops it.
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


NONE, SELECTED_R, SELECTED_S = range(3)


@kernel
def forward_step(state: I64, r: Rows, s: Rows, rule: Rule, out_r: I64, out_s: I64) -> int:
    """Run until something is needed; pairs of row numbers are in `out_r`, `out_s`, up to state[OUT].

    state[PICKED] says which side's first active tuple is selected, state[INNER] how far it has scanned. MEMORY_FULL:
    the next tuple does not fit. If R starts first in every answer, only R tuples are selected and only S is held.
    Reference: Carman 2020, 3.3.3; docs/algorithms/interval.md, 2.3.
    """
    if state[sw.RUNNING] != 0:
        sw.find_ends(state, r.key, s.key)
    while True:
        if state[sw.RUNNING] == 0:
            status = sw.next_run(state, r.key, s.key)
            if status != sw.READY:
                return status
            state[sw.R_HEAD], state[sw.S_HEAD] = state[sw.R_POS], state[sw.S_POS]
        if state[sw.PICKED] == NONE:
            if rule.order == sw.ANY and not rule.check:
                forward_stretch(state, r, s, rule.range_start, out_r, out_s)
            status = _select(state, r, s, rule)
        elif state[sw.PICKED] == SELECTED_R:
            status = _scan(state, r, s, rule, 0, out_r, out_s)
        else:
            status = _scan(state, s, r, rule, 1, out_s, out_r)
        if status == sw.RUN_OVER:
            sw.end_run(state)
        elif status != sw.READY:
            return status


@inlined
def _select(state: I64, r: Rows, s: Rows, rule: Rule) -> int:
    """Step 1: the unprocessed tuple with the smallest start becomes the selected one."""
    r_left, s_left = state[sw.R_HEAD] < state[sw.R_END], state[sw.S_HEAD] < state[sw.S_END]
    if not r_left:
        return sw.RUN_OVER if state[sw.R_FINAL] != 0 else sw.NEED_R
    if not s_left:
        return sw.RUN_OVER if state[sw.S_FINAL] != 0 else sw.NEED_S
    # If nothing of the side was loaded ahead, the selected tuple takes the place of its input frame.
    if rule.order == sw.ANY and s.start[state[sw.S_HEAD]] < r.start[state[sw.R_HEAD]]:
        if state[sw.S_HEAD] == state[sw.S_POS]:
            _take_in(state, s, 1)
        state[sw.PICKED], state[sw.INNER] = SELECTED_S, state[sw.R_HEAD]
        return sw.READY
    if rule.order != sw.ANY:
        _drop_behind(state, s, rule, r.start[state[sw.R_HEAD]])
    if state[sw.R_HEAD] == state[sw.R_POS]:
        _take_in(state, r, 0)
    state[sw.PICKED], state[sw.INNER] = SELECTED_R, state[sw.S_HEAD]
    return sw.READY


@inlined
def _take_in(state: I64, rows: Rows, side: int) -> None:
    at = side * sw.SIDE
    state[sw.USED] += sw.weight_of(rows, state[at + sw.R_POS])
    state[at + sw.R_POS] += 1
    state[at + sw.R_ACTIVE] += 1
    sw.note_active(state)


@inlined
def _drop_behind(state: I64, s: Rows, rule: Rule, r_start: int) -> None:
    """Pass by the S tuples whose start has fallen behind this and every later R tuple."""
    while state[sw.S_HEAD] < state[sw.S_END]:
        row = state[sw.S_HEAD]
        if not sw.no_more(rule, r_start, s.start[row], s.end[row]):
            return
        if row == state[sw.S_POS]:
            state[sw.S_POS] += 1
        else:
            state[sw.USED] -= sw.weight_of(s, row)
            state[sw.S_ACTIVE] -= 1
        state[sw.S_HEAD] += 1


@inlined
def _scan(state: I64, mine: Rows, theirs: Rows, rule: Rule, side: int, out_mine: I64, out_theirs: I64) -> int:
    """Steps 2 to 4 for the selected tuple of a side (0: R, 1: S); READY when it is done."""
    # The sides come as arguments in the order needed: choosing between arrays in here would count references.
    at, other = side * sw.SIDE, (1 - side) * sw.SIDE
    end = mine.end[state[at + sw.R_HEAD]]
    while True:
        limit = state[other + sw.R_POS]
        if state[sw.STORE] != 0:
            limit = min(limit, state[sw.INNER] + out_mine.size - state[sw.OUT])
        reach = first_start_from(theirs.start, state[sw.INNER], limit, end)
        _emit_range(state, mine, theirs, rule, side, reach, out_mine, out_theirs)
        if reach < limit:  # step 2 met its stop among the loaded tuples
            break
        if reach < state[other + sw.R_POS]:
            return sw.OUT_FULL
        if reach == state[other + sw.R_END]:
            if state[other + sw.R_FINAL] == 0:
                return sw.NEED_S - side
            _finish_selected(state, mine, at)
            return sw.READY
        if theirs.start[reach] >= end:
            break
        if not _load_run(state, theirs, 1 - side, end):  # step 3
            return sw.MEMORY_FULL
    state[sw.UNPRODUCTIVE] += 1  # the comparison that stops the scan
    _finish_selected(state, mine, at)
    return sw.READY


@inlined
def _load_run(state: I64, theirs: Rows, side: int, end: int) -> bool:
    """Load the tuples of the window that start before `end`, as many as fit; False if none does."""
    at, loaded = side * sw.SIDE, 0
    while state[at + sw.R_POS] < state[at + sw.R_END] and theirs.start[state[at + sw.R_POS]] < end:
        if not sw.room_for(state, sw.weight_of(theirs, state[at + sw.R_POS])):
            return loaded > 0
        _take_in(state, theirs, side)
        loaded += 1
    return True


@inlined
def _finish_selected(state: I64, mine: Rows, at: int) -> None:
    """Step 4: the selected tuple leaves memory."""
    state[sw.USED] -= sw.weight_of(mine, state[at + sw.R_HEAD])
    state[at + sw.R_HEAD] += 1
    state[at + sw.R_ACTIVE] -= 1
    state[sw.PICKED] = NONE


@inlined
def _emit_range(
    state: I64, mine: Rows, theirs: Rows, rule: Rule, side: int, reach: int, out_mine: I64, out_theirs: I64
) -> None:
    """Pair the selected tuple with the other side's rows up to `reach`, for which the output has room."""
    row = state[side * sw.SIDE + sw.R_HEAD]
    if reach == state[sw.INNER]:
        return
    if rule.check or theirs.start[state[sw.INNER]] < rule.range_start:
        _emit_checked(state, mine, theirs, rule, side, row, reach, out_mine, out_theirs)
        return
    first, n = state[sw.INNER], state[sw.OUT]
    many = reach - first
    if state[sw.STORE] != 0:
        _fill(out_mine, out_theirs, n, row, first, reach)
        state[sw.OUT] += many
    state[sw.PRODUCTIVE] += many
    state[sw.INNER] = reach


@inlined
def _emit_checked(
    state: I64, mine: Rows, theirs: Rows, rule: Rule, side: int, row: int, reach: int, out_mine: I64, out_theirs: I64
) -> None:
    first, n, store = state[sw.INNER], state[sw.OUT], state[sw.STORE] != 0
    start, end = mine.start[row], mine.end[row]
    productive, suppressed = 0, 0
    for i in range(first, reach):
        if not sw.holds_between(rule, side, start, end, theirs.start[i], theirs.end[i]):
            continue
        productive += 1
        if max(start, theirs.start[i]) < rule.range_start:
            suppressed += 1
        elif store:
            out_mine[n], out_theirs[n] = row, i
            n += 1
    state[sw.INNER] = reach
    sw.note_pairs(state, n, productive, reach - first - productive, suppressed)


@inlined
def _match_row(
    state: I64, r: Rows, s: Rows, rule: Rule, a: int, b: int, last: int, out_r: I64, out_s: I64
) -> tuple[int, bool]:
    """Pair one R row with S rows from b on; the S row to go on with, and whether all have met."""
    n, store, start, end = state[sw.OUT], state[sw.STORE] != 0, r.start[a], r.end[a]
    productive, unproductive, suppressed, full = 0, 0, 0, False
    while b < last:
        if store and n == out_r.size:
            full = True
            break
        if s.start[b] >= end:
            unproductive += 1
            break
        if not sw.holds(rule, start, end, s.start[b], s.end[b]):
            unproductive += 1
        else:
            productive += 1
            if max(start, s.start[b]) < rule.range_start:
                suppressed += 1
            elif store:
                out_r[n], out_s[n] = a, b
                n += 1
        b += 1
    sw.note_pairs(state, n, productive, unproductive, suppressed)
    return b, not full


@kernel
def forward_memory_step(state: I64, r: Rows, s: Rows, rule: Rule, out_r: I64, out_s: I64) -> int:
    """Pair the active R tuples with the active S tuples, the selected one apart: it has met them all. Before a spill.

    state[KEEP] and state[INNER] are the R and the S row to go on with. OUT_FULL, or READY when all are done.
    """
    a, b = state[sw.KEEP], state[sw.INNER]
    first_s = state[sw.S_HEAD] + (1 if state[sw.PICKED] == SELECTED_S else 0)
    last_r, last_s = state[sw.R_POS], state[sw.S_POS]
    while a < last_r:
        b, done = _match_row(state, r, s, rule, a, b, last_s, out_r, out_s)
        if not done:
            state[sw.KEEP], state[sw.INNER] = a, b
            return sw.OUT_FULL
        a, b = a + 1, first_s
    state[sw.KEEP] = state[sw.INNER] = 0
    return sw.READY


@register_warmup
def _warm() -> None:
    rows, rule = sw.sample_rows(), sw.sample_rule()
    out_r, out_s = np.empty(9, np.int64), np.empty(9, np.int64)
    state = sw.sample_state(rows, rows)
    forward_step(state, rows, rows, rule, out_r, out_s)
    state[sw.OUT] = 0
    forward_memory_step(state, rows, rows, rule, out_r, out_s)
