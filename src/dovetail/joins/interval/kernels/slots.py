"""Overlap interval partitioning: nested loops over the pairs of slot partitions that can hold answers.

A partition is the pair of slots in which its rows start and end, written as one number, end slot * base + (base - 1 -
start slot), so that numbers ascend by end slot and, within it, by descending start slot.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, Bool, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.inline import inlined
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule

# What a relation says about slots, beyond sharing one: positions in `tests`.
R_STARTS_FIRST, S_STARTS_FIRST, S_ENDS_FIRST, R_ENDS_FIRST = range(4)


@inlined
def slots_may_match(r_part: int, s_part: int, base: int, tests: Bool) -> bool:
    """Whether rows of these partitions can be an answer: slots overlap, and starts and ends are in the right order."""
    a, b = base - 1 - r_part % base, r_part // base
    x, y = base - 1 - s_part % base, s_part // base
    if x > b or a > y:
        return False
    if (tests[R_STARTS_FIRST] and a > x) or (tests[S_STARTS_FIRST] and x > a):
        return False
    return not ((tests[S_ENDS_FIRST] and y > b) or (tests[R_ENDS_FIRST] and b > y))


@inlined
def candidates(part: int, key: int, keyed: bool, s_part: I64, s_key: I64, base: int) -> tuple[int, int]:
    """The S partitions of this key that do not end before the slot in which the R partition's rows start."""
    low, high = 0, s_part.size
    if keyed:
        low = sw.first_beyond(s_key, key, 0, high, False)
        high = sw.first_beyond(s_key, key, low, high, True)
    return sw.first_beyond(s_part, (base - 1 - part % base) * base, low, high, False), high


@kernel
def any_may_match(r_part: I64, r_key: I64, s_part: I64, s_key: I64, base: int, tests: Bool) -> bool:
    """Whether any of the R partitions can have an answer with any of the S partitions."""
    for i in range(r_part.size):
        key = r_key[i] if r_key.size > 0 else 0
        low, high = candidates(r_part[i], key, r_key.size > 0, s_part, s_key, base)
        for j in range(low, high):
            if slots_may_match(r_part[i], s_part[j], base, tests):
                return True
    return False


@kernel
def join_slots(
    state: I64,
    r: Rows,
    s: Rows,
    rule: Rule,
    r_part: I64,
    r_first: I64,
    r_key: I64,
    s_part: I64,
    s_first: I64,
    s_key: I64,
    base: int,
    tests: Bool,
    out_r: I64,
    out_s: I64,
) -> int:
    """Compare the rows of every R partition with those of every S partition that can match; OUT_FULL, or DONE.

    Piece i of R is rows r_first[i] to r_first[i + 1] of partition r_part[i]; likewise S, whose pieces ascend by key and
    partition.
    Reference: Carman 2020, 4.4.4; docs/algorithms/interval.md, 2.4.
    """
    while state[sw.R_POS] < r_part.size:
        piece = state[sw.R_POS]
        if state[sw.PHASE] == 0:
            key = r_key[piece] if r_key.size > 0 else 0
            low, high = candidates(r_part[piece], key, r_key.size > 0, s_part, s_key, base)
            state[sw.S_POS], state[sw.S_END] = low, high
            state[sw.PHASE], state[sw.INNER], state[sw.KEEP] = 1, r_first[piece], 0
        while state[sw.S_POS] < state[sw.S_END]:
            other = state[sw.S_POS]
            if slots_may_match(r_part[piece], s_part[other], base, tests):
                last = r_first[piece + 1]
                if not _nested_loop(state, r, s, rule, last, s_first[other], s_first[other + 1], out_r, out_s):
                    return sw.OUT_FULL
            state[sw.INNER], state[sw.KEEP] = r_first[piece], 0
            state[sw.S_POS] += 1
        state[sw.PHASE] = 0
        state[sw.R_POS] += 1
    return sw.DONE


@inlined
def _nested_loop(
    state: I64, r: Rows, s: Rows, rule: Rule, r_last: int, s_first: int, s_last: int, out_r: I64, out_s: I64
) -> bool:
    """All pairs from state[INNER], state[KEEP] on; False if the output is full."""
    n, store = state[sw.OUT], state[sw.STORE] != 0
    productive, compared, suppressed = 0, 0, 0
    a, b = state[sw.INNER], s_first + state[sw.KEEP]
    while a < r_last:
        r_start, r_end = r.start[a], r.end[a]
        first = b
        while b < s_last and not (store and n == out_r.size):
            s_start = s.start[b]
            if sw.holds(rule, r_start, r_end, s_start, s.end[b]):
                productive += 1
                if max(r_start, s_start) < rule.range_start:
                    suppressed += 1
                elif store:
                    out_r[n], out_s[n] = a, b
                    n += 1
            b += 1
        compared += b - first
        if b < s_last:
            break
        a, b = a + 1, s_first
    state[sw.INNER], state[sw.KEEP], state[sw.OUT] = a, b - s_first, n
    state[sw.PRODUCTIVE] += productive
    state[sw.UNPRODUCTIVE] += compared - productive
    state[sw.SUPPRESSED] += suppressed
    return bool(a == r_last)


@register_warmup
def _warm() -> None:
    rows, rule, none = sw.sample_rows(), sw.sample_rule(), int64s([])
    tests = readonly(np.zeros(4, np.bool_), np.bool_)
    parts, edges = int64s([4, 8]), int64s([0, 1, 3])
    out_r, out_s = np.zeros(99, np.int64), np.zeros(99, np.int64)
    state = sw.sample_state(rows, rows)
    join_slots(state, rows, rows, rule, parts, edges, none, parts, edges, none, 3, tests, out_r, out_s)
    any_may_match(parts, none, parts, none, 3, tests)
