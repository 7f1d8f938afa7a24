"""Sort-merge interval join: each R tuple meets the S tuples in memory, then loads the S tuples it still needs."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, inlined
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule

_NEXT, _SCAN, _LOAD = range(3)


@inlined
def more_matches(rule: Rule, r_start: int, r_end: int, s_start: int) -> bool:
    """Whether S tuples from this start on can still match the R tuple: decision (a) of table 6.4, corrected."""
    if rule.order == sw.S_FIRST:
        return s_start >> rule.halves <= r_start >> rule.halves
    if rule.order == sw.S_FIRST_STRICT:
        return s_start >> rule.halves < r_start >> rule.halves
    return s_start < r_end


@kernel
def merge_step(state: I64, r: Rows, s: Rows, rule: Rule, active: I64, out_r: I64, out_s: I64) -> int:
    """Run until something is needed; pairs of row numbers are in `out_r`, `out_s`, up to state[OUT].

    NEED_R, NEED_S: more rows. OUT_FULL: take the pairs. MEMORY_FULL: the next S tuple does not fit; spill R from R_POS
    on. DONE: no pair is left. `active` holds the row numbers of the S tuples in memory, state[S_ACTIVE] of them.
    Reference: Carman 2020, 3.3.1 and table 6.4; docs/algorithms/interval.md, 2.1 and 3.1.
    """
    if state[sw.RUNNING] != 0:
        sw.find_ends(state, r.key, s.key)
    while True:
        if state[sw.RUNNING] == 0:
            status = sw.next_run(state, r.key, s.key)
            if status != sw.READY:
                return status
        status = _merge_run(state, r, s, rule, active, out_r, out_s)
        if status != sw.RUN_OVER:
            return status
        sw.end_run(state)


@inlined
def _merge_run(state: I64, r: Rows, s: Rows, rule: Rule, active: I64, out_r: I64, out_s: I64) -> int:
    while True:
        if state[sw.PHASE] == _NEXT:  # step 1
            if state[sw.R_POS] == state[sw.R_END]:
                return sw.RUN_OVER if state[sw.R_FINAL] != 0 else sw.NEED_R
            state[sw.PHASE] = _SCAN
        beyond = False
        if state[sw.PHASE] == _SCAN:  # step 2
            if _is_plain(state, r, rule, out_r):
                beyond = _scan_plain(state, r, s, active, out_r, out_s)
            else:
                status = _scan(state, r, s, rule, active, out_r, out_s)
                if status == sw.OUT_FULL:
                    return status
                beyond = status == sw.RUN_OVER
            state[sw.PHASE] = _LOAD
        if not beyond:  # S tuples to come start later than one that starts too late
            status = _load(state, r, s, rule, active, out_r, out_s)  # step 3
            if status != sw.READY:
                return status
        state[sw.R_POS] += 1
        state[sw.PHASE] = _NEXT
        if state[sw.S_ACTIVE] == 0 and state[sw.S_POS] == state[sw.S_END] and state[sw.S_FINAL] != 0:
            return sw.RUN_OVER  # no S tuple is left for any later R tuple


@inlined
def _scan(state: I64, r: Rows, s: Rows, rule: Rule, active: I64, out_r: I64, out_s: I64) -> int:
    """Compare the R tuple with memory, in start order, dropping what no later R tuple can match.

    OUT_FULL, READY when it has met all of memory, RUN_OVER when an S tuple started too late to match, as all others do.
    """
    row = state[sw.R_POS]
    r_start, r_end = r.start[row], r.end[row]
    i, kept, n, store = state[sw.INNER], state[sw.KEEP], state[sw.OUT], state[sw.STORE] != 0
    productive, unproductive, suppressed, beyond = 0, 0, 0, False
    while i < state[sw.S_ACTIVE] and not (store and n == out_r.size):
        other = active[i]
        s_start, s_end = s.start[other], s.end[other]
        if not more_matches(rule, r_start, r_end, s_start):
            unproductive += 1
            beyond = True
            break
        i += 1
        if sw.no_more(rule, r_start, s_start, s_end):
            state[sw.USED] -= sw.weight_of(s, other)
            continue
        active[kept] = other
        kept += 1
        if not sw.holds(rule, r_start, r_end, s_start, s_end):
            unproductive += 1
            continue
        productive += 1
        if max(r_start, s_start) < rule.range_start:
            suppressed += 1
        elif store:
            out_r[n], out_s[n] = row, other
            n += 1
    state[sw.OUT] = n
    state[sw.PRODUCTIVE] += productive
    state[sw.UNPRODUCTIVE] += unproductive
    state[sw.SUPPRESSED] += suppressed
    if not beyond and i < state[sw.S_ACTIVE]:
        state[sw.INNER], state[sw.KEEP] = i, kept
        return sw.OUT_FULL
    state[sw.S_ACTIVE] = sw.close_gap(active, kept, i, state[sw.S_ACTIVE])
    state[sw.INNER] = state[sw.KEEP] = 0
    return sw.RUN_OVER if beyond else sw.READY


@inlined
def _is_plain(state: I64, r: Rows, rule: Rule, out_r: I64) -> bool:
    """Whether sharing a point is all that matters for this R tuple, and the output has room for all of memory."""
    if rule.order != sw.ANY or rule.check or r.start[state[sw.R_POS]] < rule.range_start or state[sw.INNER] > 0:
        return False
    return bool(state[sw.STORE] == 0 or state[sw.OUT] + state[sw.S_ACTIVE] <= out_r.size)


@inlined
def _scan_plain(state: I64, r: Rows, s: Rows, active: I64, out_r: I64, out_s: I64) -> bool:
    """As `_scan`, with just the branch that ends it; True if an S tuple started too late."""
    row, count = state[sw.R_POS], state[sw.S_ACTIVE]
    r_start, r_end, n, store = r.start[row], r.end[row], state[sw.OUT], state[sw.STORE] != 0
    i, kept, dropped = 0, 0, 0
    while i < count and s.start[active[i]] < r_end:
        other = active[i]
        alive = 1 if s.end[other] > r_start else 0
        active[kept] = other
        if store and n < out_r.size:
            out_r[n], out_s[n] = row, other
            n += alive
        kept += alive
        dropped += (1 - alive) * sw.weight_of(s, other)
        i += 1
    state[sw.OUT] = n
    state[sw.S_ACTIVE] = sw.close_gap(active, kept, i, count)
    state[sw.USED] -= dropped
    state[sw.PRODUCTIVE] += kept
    state[sw.UNPRODUCTIVE] += 1 if i < count else 0
    return bool(i < count)


@inlined
def _load(state: I64, r: Rows, s: Rows, rule: Rule, active: I64, out_r: I64, out_s: I64) -> int:
    """Bring in S tuples while the R tuple can match more of them; READY when it cannot."""
    row = state[sw.R_POS]
    r_start, r_end = r.start[row], r.end[row]
    while True:
        other = state[sw.S_POS]
        if other == state[sw.S_END]:
            return sw.READY if state[sw.S_FINAL] != 0 else sw.NEED_S
        s_start, s_end = s.start[other], s.end[other]
        if not more_matches(rule, r_start, r_end, s_start):
            state[sw.UNPRODUCTIVE] += 1  # the comparison that stops the loop
            return sw.READY
        if sw.no_more(rule, r_start, s_start, s_end):
            state[sw.UNPRODUCTIVE] += 1
            state[sw.S_POS] += 1
            continue
        if state[sw.STORE] != 0 and state[sw.OUT] == out_r.size:
            return sw.OUT_FULL
        if not sw.room_for(state, sw.weight_of(s, other)):
            return sw.MEMORY_FULL
        _keep(state, s, other, active)
        if not sw.holds(rule, r_start, r_end, s_start, s_end):
            state[sw.UNPRODUCTIVE] += 1
            continue
        state[sw.PRODUCTIVE] += 1
        if max(r_start, s_start) < rule.range_start:
            state[sw.SUPPRESSED] += 1
        elif state[sw.STORE] != 0:
            out_r[state[sw.OUT]], out_s[state[sw.OUT]] = row, other
            state[sw.OUT] += 1


@inlined
def _keep(state: I64, s: Rows, row: int, active: I64) -> None:
    active[state[sw.S_ACTIVE]] = row
    state[sw.S_ACTIVE] += 1
    state[sw.S_POS] += 1
    state[sw.USED] += sw.weight_of(s, row)
    sw.note_active(state)


@register_warmup
def _warm() -> None:
    rows, rule = sw.sample_rows(), sw.sample_rule()
    active, out_r, out_s = np.empty(9, np.int64), np.empty(9, np.int64), np.empty(9, np.int64)
    merge_step(sw.sample_state(rows, rows), rows, rows, rule, active, out_r, out_s)
