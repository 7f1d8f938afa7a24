"""The spilling mode of the sweeps: tuples of one side stream past the frozen memory of the other until it is empty."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.inline import inlined
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule


@inlined
def outlived(rule: Rule, spilled: int, start: int, held_start: int, held_end: int) -> bool:
    """Whether a held tuple matches no tuple of the spilled side (0: R, 1: S) that starts at `start` or later."""
    if spilled == 0 and rule.order == sw.R_FIRST:
        return held_start >> rule.halves < start >> rule.halves
    if spilled == 0 and rule.order == sw.R_FIRST_STRICT:
        return held_start >> rule.halves <= start >> rule.halves
    return held_end <= start


@inlined
def starts_too_late(rule: Rule, spilled: int, start: int, end: int, held_start: int) -> bool:
    """Whether held tuples from this start on match a tuple of the spilled side neither now nor by their order."""
    if rule.order == (sw.S_FIRST if spilled == 0 else sw.R_FIRST):
        return held_start >> rule.halves > start >> rule.halves
    if rule.order == (sw.S_FIRST_STRICT if spilled == 0 else sw.R_FIRST_STRICT):
        return held_start >> rule.halves >= start >> rule.halves
    return held_start >= end


@kernel
def spill_step(
    state: I64,
    r: Rows,
    s: Rows,
    rule: Rule,
    spilled: int,
    count_drops: bool,
    in_order: bool,
    held: I64,
    out_r: I64,
    out_s: I64,
) -> int:
    """Compare tuples of the spilled side with the held tuples of the other, dropping those that can match no more.

    FREED: no held tuple is left; the tuple at the spilled side's position was not needed. EXHAUSTED: no tuple of the
    spilled side is left in this run. NEED_R (NEED_S): more rows of the spilled side. OUT_FULL: take the pairs.
    `held` are row numbers, as many as the other side has active; a dropped tuple counts as an unproductive comparison
    if `count_drops`. With `in_order` they are in start order, and the first one that starts too late ends a pass.
    Reference: spilling in Carman 2020, 3.3.1 to 3.3.3; docs/algorithms/interval.md, 2.1 to 2.3.
    """
    sw.find_ends(state, r.key, s.key)
    at, other = spilled * sw.SIDE, (1 - spilled) * sw.SIDE
    while state[other + sw.R_ACTIVE] > 0:
        if state[at + sw.R_POS] == state[at + sw.R_END]:
            return sw.EXHAUSTED if state[at + sw.R_FINAL] != 0 else sw.NEED_R + spilled
        if spilled == 0:
            passed = _pass(state, r, s, rule, 0, count_drops, in_order, held, out_r, out_s)
        else:
            passed = _pass(state, s, r, rule, 1, count_drops, in_order, held, out_s, out_r)
        if not passed:
            return sw.OUT_FULL
        if state[other + sw.R_ACTIVE] > 0:
            state[at + sw.R_POS] += 1
    return sw.FREED


@inlined
def _pass(
    state: I64,
    moving: Rows,
    fixed: Rows,
    rule: Rule,
    spilled: int,
    count_drops: bool,
    in_order: bool,
    held: I64,
    out_moving: I64,
    out_fixed: I64,
) -> bool:
    """One tuple past the held ones that it may match; False if the output is full."""
    row, count = state[spilled * sw.SIDE + sw.R_POS], (1 - spilled) * sw.SIDE + sw.R_ACTIVE
    start, end = moving.start[row], moving.end[row]
    i, kept, n, store = state[sw.INNER], state[sw.KEEP], state[sw.OUT], state[sw.STORE] != 0
    productive, unproductive, suppressed, beyond = 0, 0, 0, False
    while i < state[count] and not (store and n == out_moving.size):
        other = held[i]
        other_start, other_end = fixed.start[other], fixed.end[other]
        if in_order and starts_too_late(rule, spilled, start, end, other_start):
            unproductive += 1
            beyond = True
            break
        i += 1
        if outlived(rule, spilled, start, other_start, other_end):
            state[sw.USED] -= sw.weight_of(fixed, other)
            unproductive += 1 if count_drops else 0
            continue
        held[kept] = other
        kept += 1
        if not sw.holds_between(rule, spilled, start, end, other_start, other_end):
            unproductive += 1
            continue
        productive += 1
        if max(start, other_start) < rule.range_start:
            suppressed += 1
        elif store:
            out_moving[n], out_fixed[n] = row, other
            n += 1
    state[sw.OUT] = n
    state[sw.PRODUCTIVE] += productive
    state[sw.UNPRODUCTIVE] += unproductive
    state[sw.SUPPRESSED] += suppressed
    if not beyond and i < state[count]:
        state[sw.INNER], state[sw.KEEP] = i, kept
        return False
    state[count] = sw.close_gap(held, kept, i, state[count])
    state[sw.INNER] = state[sw.KEEP] = 0
    return True


@register_warmup
def _warm() -> None:
    rows, rule = sw.sample_rows(), sw.sample_rule()
    held, out_r, out_s = np.arange(9), np.empty(9, np.int64), np.empty(9, np.int64)
    for spilled in (0, 1):
        state = sw.sample_state(rows, rows)
        state[sw.R_ACTIVE] = state[sw.SIDE + sw.R_ACTIVE] = 1
        spill_step(state, rows, rows, rule, spilled, True, True, held, out_r, out_s)
