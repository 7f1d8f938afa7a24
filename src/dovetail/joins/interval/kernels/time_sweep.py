"""Time-sweep interval join: starts come from the inputs, ends from a heap; every active pair is an answer."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, inlined
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule, heap_build, heap_pop, heap_push


# A stretch is a part of the sweep in which neither window, nor the output, nor memory runs out. It does the work of the
# general steps in local variables and leaves them the event that stops it.
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


_CHOOSE, _EMIT_R, _EMIT_S = range(3)


@kernel
def time_step(
    state: I64,
    r: Rows,
    s: Rows,
    rule: Rule,
    active_r: I64,
    active_s: I64,
    place_r: I64,
    place_s: I64,
    ends: I64,
    refs: I64,
    out_r: I64,
    out_s: I64,
) -> int:
    """Run until something is needed; pairs of row numbers are in `out_r`, `out_s`, up to state[OUT].

    `active_*` are the row numbers of the active tuples, `place_*` says where in it a row stands. The Delete Order is a
    heap `ends`, `refs` (row * 2, plus 1 for S). MEMORY_FULL: the next tuple in time does not fit; spill the side that
    has fewer active tuples. If R starts first in every answer, only R is held.
    Reference: Carman 2020, 3.3.2, with removals before additions; docs/algorithms/interval.md, 2.2.
    """
    if state[sw.RUNNING] != 0:
        sw.find_ends(state, r.key, s.key)
    while True:
        if state[sw.RUNNING] == 0:
            status = sw.next_run(state, r.key, s.key)
            if status != sw.READY:
                return status
        if state[sw.PHASE] == _EMIT_R and not _emit(state, r, s, rule, active_s, 0, out_r, out_s):
            return sw.OUT_FULL
        if state[sw.PHASE] == _EMIT_S and not _emit(state, s, r, rule, active_r, 1, out_s, out_r):
            return sw.OUT_FULL
        if rule.order == sw.ANY and not rule.check:
            start = rule.range_start
            time_stretch(state, r, s, start, active_r, active_s, place_r, place_s, ends, refs, out_r, out_s)
        status = _next_event(state, r, s, rule, active_r, active_s, place_r, place_s, ends, refs)
        if status == sw.RUN_OVER:
            sw.end_run(state)
        elif status != sw.READY:
            return status


@inlined
def _next_event(
    state: I64,
    r: Rows,
    s: Rows,
    rule: Rule,
    active_r: I64,
    active_s: I64,
    place_r: I64,
    place_s: I64,
    ends: I64,
    refs: I64,
) -> int:
    """Remove what has ended, then add the tuple that starts next; READY to emit it."""
    r_left, s_left = state[sw.R_POS] < state[sw.R_END], state[sw.S_POS] < state[sw.S_END]
    if not r_left and state[sw.R_FINAL] == 0:
        return sw.NEED_R
    if not s_left and state[sw.S_FINAL] == 0:
        return sw.NEED_S
    r_start = r.start[state[sw.R_POS]] if r_left else sw.NEVER
    s_start = s.start[state[sw.S_POS]] if s_left else sw.NEVER
    _delete_until(state, r, s, min(r_start, s_start), active_r, active_s, place_r, place_s, ends, refs)
    one_sided = rule.order != sw.ANY
    no_r, no_s = not r_left and state[sw.R_ACTIVE] == 0, not s_left and (one_sided or state[sw.S_ACTIVE] == 0)
    if no_r or no_s:
        return sw.RUN_OVER
    if r_left and (not s_left or _r_goes_first(rule, r_start, s_start)):
        if not _add(state, r, 0, active_r, place_r, ends, refs):
            return sw.MEMORY_FULL
        if one_sided:
            return sw.READY
    elif one_sided:
        state[sw.PHASE], state[sw.PICKED] = _EMIT_S, state[sw.S_POS]
        state[sw.S_POS] += 1
    elif not _add(state, s, 1, active_s, place_s, ends, refs):
        return sw.MEMORY_FULL
    return sw.READY


@inlined
def _r_goes_first(rule: Rule, r_start: int, s_start: int) -> bool:
    if rule.order == sw.ANY:
        return r_start <= s_start
    # Raw bounds decide which of two tuples starts first, and on a tie whether that makes an answer.
    a, b = r_start >> rule.halves, s_start >> rule.halves
    return a < b if rule.order == sw.R_FIRST_STRICT else a <= b


@inlined
def _delete_until(
    state: I64,
    r: Rows,
    s: Rows,
    point: int,
    active_r: I64,
    active_s: I64,
    place_r: I64,
    place_s: I64,
    ends: I64,
    refs: I64,
) -> None:
    """Take every tuple that ends at `point` or before out of its active set."""
    while state[sw.HEAP] > 0 and ends[0] <= point:
        ref = heap_pop(ends, refs, state[sw.HEAP])
        state[sw.HEAP] -= 1
        if ref & 1 == 0:
            _remove(state, r, ref >> 1, sw.R_ACTIVE, active_r, place_r)
        else:
            _remove(state, s, ref >> 1, sw.S_ACTIVE, active_s, place_s)


@inlined
def _remove(state: I64, rows: Rows, row: int, count: int, active: I64, place: I64) -> None:
    """Take a row out of the active list, the last one filling its place."""
    state[count] -= 1
    fill_hole(active, place, row, state[count])
    state[sw.USED] -= sw.weight_of(rows, row)


@inlined
def _add(state: I64, rows: Rows, side: int, active: I64, place: I64, ends: I64, refs: I64) -> bool:
    """Make the next tuple of a side active and the one to emit; False if it does not fit."""
    at = side * sw.SIDE
    row = state[at + sw.R_POS]
    weight = sw.weight_of(rows, row)
    if not sw.room_for(state, weight):
        return False
    count = state[at + sw.R_ACTIVE]
    active[count], place[row] = row, count
    heap_push(ends, refs, state[sw.HEAP], rows.end[row], row * 2 + side)
    state[sw.HEAP] += 1
    state[at + sw.R_ACTIVE] += 1
    state[at + sw.R_POS] += 1
    state[sw.USED] += weight
    sw.note_active(state)
    state[sw.PHASE], state[sw.PICKED] = _EMIT_R + side, row
    return True


@inlined
def _emit(
    state: I64, mine: Rows, theirs: Rows, rule: Rule, active: I64, side: int, out_mine: I64, out_theirs: I64
) -> bool:
    """Pair the tuple that has just started with all active tuples of the other side; False if the output is full."""
    row, count = state[sw.PICKED], state[(1 - side) * sw.SIDE + sw.R_ACTIVE]
    # In any order the tuple that has just started is the later one of each pair.
    if rule.check or mine.start[row] < rule.range_start:
        done = _emit_checked(state, mine, theirs, rule, row, active, count, side, out_mine, out_theirs)
    else:
        done = _emit_all(state, row, active, count, out_mine, out_theirs)
    if done:
        state[sw.PHASE], state[sw.INNER] = _CHOOSE, 0
    return done


@inlined
def _emit_all(state: I64, row: int, active: I64, count: int, out_mine: I64, out_theirs: I64) -> bool:
    first, n = state[sw.INNER], state[sw.OUT]
    many = count - first
    if state[sw.STORE] != 0:
        many = min(many, out_mine.size - n)
        for i in range(many):
            out_mine[n + i] = row
            out_theirs[n + i] = active[first + i]
        state[sw.OUT] += many
    state[sw.PRODUCTIVE] += many
    state[sw.INNER] += many
    return bool(state[sw.INNER] == count)


@inlined
def _emit_checked(
    state: I64,
    mine: Rows,
    theirs: Rows,
    rule: Rule,
    row: int,
    active: I64,
    count: int,
    side: int,
    out_mine: I64,
    out_theirs: I64,
) -> bool:
    i, n, store = state[sw.INNER], state[sw.OUT], state[sw.STORE] != 0
    start, end = mine.start[row], mine.end[row]
    productive, suppressed, first = 0, 0, i
    while i < count and not (store and n == out_mine.size):
        other = active[i]
        i += 1
        if not sw.holds_between(rule, side, start, end, theirs.start[other], theirs.end[other]):
            continue
        productive += 1
        if max(start, theirs.start[other]) < rule.range_start:
            suppressed += 1
        elif store:
            out_mine[n], out_theirs[n] = row, other
            n += 1
    state[sw.INNER], state[sw.OUT] = i, n
    state[sw.PRODUCTIVE] += productive
    state[sw.UNPRODUCTIVE] += i - first - productive
    state[sw.SUPPRESSED] += suppressed
    return bool(i == count)


@kernel
def renumber(state: I64, side: int, place: I64, refs: I64) -> None:
    """Give the heap the new row numbers of a side whose active rows were moved to the front, in active order."""
    for i in range(state[sw.HEAP]):
        if refs[i] & 1 == side:
            refs[i] = place[refs[i] >> 1] * 2 + side


@kernel
def rebuild(state: I64, rows: Rows, side: int, active: I64, place: I64, ends: I64, refs: I64) -> None:
    """The Delete Order, made again from the active tuples of one side alone."""
    count = state[side * sw.SIDE + sw.R_ACTIVE]
    for i in range(count):
        place[active[i]] = i
        ends[i], refs[i] = rows.end[active[i]], active[i] * 2 + side
    state[sw.HEAP] = count
    heap_build(ends, refs, count)


@register_warmup
def _warm() -> None:
    rows, rule = sw.sample_rows(), sw.sample_rule()
    a, b, c, d, e, f, g, h = (np.zeros(9, np.int64) for _ in range(8))
    state = sw.sample_state(rows, rows)
    time_step(state, rows, rows, rule, a, b, c, d, e, f, g, h)
    renumber(state, 0, c, f)
    rebuild(state, rows, 0, a, c, e, f)
