"""Joins of partitions: pairs of slot partitions (OIP), and partitions without overlap inside, merged (DIP).

A slot partition is the pair of slots in which its rows start and end, written as one number, end slot * base + (base -
1 - start slot), so that numbers ascend by end slot and, within it, by descending start slot.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, Bool, inlined, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule, heap_push, heap_replace

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
    state[sw.INNER], state[sw.KEEP] = a, b - s_first
    sw.note_pairs(state, n, productive, compared - productive, suppressed)
    return bool(a == r_last)


# Positions in the state of an assignment.
OPEN, NEXT, LIMIT, LAST_KEY = range(4)


@kernel
def assign_disjoint(state: I64, start: I64, end: I64, key: I64, ends: I64, refs: I64, parts: I64) -> None:
    """Fill `parts` with the partition of each row, or -1 where the row fits none and none may be opened.

    Rows come sorted by key, start, end. The heap `ends`, `refs` holds the last end of the state[OPEN] partitions that
    are open, at most state[LIMIT]; state[NEXT] is the number of the next partition. A new key opens new partitions.
    Reference: Carman 2020, 3.3.5, with a min-heap; docs/algorithms/interval.md, 2.5.
    """
    for row in range(start.size):
        if key.size > 0 and key[row] != state[LAST_KEY]:
            state[OPEN], state[LAST_KEY] = 0, key[row]
        if state[OPEN] > 0 and ends[0] <= start[row]:
            parts[row] = refs[0]
            heap_replace(ends, refs, state[OPEN], end[row], refs[0])
        elif state[OPEN] < state[LIMIT]:
            parts[row] = state[NEXT]
            heap_push(ends, refs, state[OPEN], end[row], state[NEXT])
            state[OPEN] += 1
            state[NEXT] += 1
        else:
            parts[row] = -1


@kernel
def merge_disjoint(
    state: I64,
    r: Rows,
    s: Rows,
    rule: Rule,
    r_part: I64,
    r_first: I64,
    r_key: I64,
    s_first: I64,
    s_key: I64,
    cursor: I64,
    out_r: I64,
    out_s: I64,
) -> int:
    """Merge every R piece with every S partition of its key; OUT_FULL: take the pairs; DONE: all pieces are merged.

    Piece i is rows r_first[i] to r_first[i + 1] of partition r_part[i]; partitions may continue in the next piece, also
    of a later call, because `cursor` keeps how far each S partition was merged and state[KEEP] whose cursors these are.
    Of two tuples the one that ends first is left behind, on a tie S's.
    Reference: Carman 2020, 4.4.5; docs/algorithms/interval.md, 2.5.
    """
    while state[sw.R_POS] < r_part.size:
        piece = state[sw.R_POS]
        if r_part[piece] != state[sw.KEEP]:
            state[sw.KEEP] = r_part[piece]
            cursor[:] = s_first[:-1]
        low, high = 0, cursor.size
        if r_key.size > 0:
            low = sw.first_beyond(s_key, r_key[piece], 0, high, False)
            high = sw.first_beyond(s_key, r_key[piece], low, high, True)
        if state[sw.PHASE] == 0:
            state[sw.PHASE], state[sw.S_POS], state[sw.INNER] = 1, low, r_first[piece]
        while state[sw.S_POS] < high:
            if not _merge(state, r, s, rule, r_first[piece + 1], s_first, cursor, out_r, out_s):
                return sw.OUT_FULL
            state[sw.S_POS] += 1
            state[sw.INNER] = r_first[piece]
        state[sw.PHASE] = 0
        state[sw.R_POS] += 1
    return sw.DONE


@inlined
def _merge(
    state: I64, r: Rows, s: Rows, rule: Rule, r_last: int, s_first: I64, cursor: I64, out_r: I64, out_s: I64
) -> bool:
    """One R piece with one S partition, without going back; False if the output is full."""
    part = state[sw.S_POS]
    a, b, s_last = state[sw.INNER], cursor[part], s_first[part + 1]
    n, store = state[sw.OUT], state[sw.STORE] != 0
    productive, unproductive, suppressed = 0, 0, 0
    while a < r_last and b < s_last and not (store and n == out_r.size):
        if not sw.holds(rule, r.start[a], r.end[a], s.start[b], s.end[b]):
            unproductive += 1
        else:
            productive += 1
            if max(r.start[a], s.start[b]) < rule.range_start:
                suppressed += 1
            elif store:
                out_r[n], out_s[n] = a, b
                n += 1
        if r.end[a] < s.end[b]:
            a += 1
        else:
            b += 1
    state[sw.INNER], cursor[part] = a, b
    sw.note_pairs(state, n, productive, unproductive, suppressed)
    return bool(a == r_last or b == s_last)


@register_warmup
def _warm_slots() -> None:
    rows, rule, none = sw.sample_rows(), sw.sample_rule(), int64s([])
    tests = readonly(np.zeros(4, np.bool_), np.bool_)
    parts, edges = int64s([4, 8]), int64s([0, 1, 3])
    out_r, out_s = np.zeros(99, np.int64), np.zeros(99, np.int64)
    state = sw.sample_state(rows, rows)
    join_slots(state, rows, rows, rule, parts, edges, none, parts, edges, none, 3, tests, out_r, out_s)
    any_may_match(parts, none, parts, none, 3, tests)


@register_warmup
def _warm_disjoint() -> None:
    rows, rule, none = sw.sample_rows(), sw.sample_rule(), int64s([])
    ends, refs, parts = np.zeros(9, np.int64), np.zeros(9, np.int64), np.zeros(3, np.int64)
    assign_disjoint(np.array([0, 0, 9, 0]), rows.start, rows.end, none, ends, refs, parts)
    state = sw.sample_state(rows, rows)
    edges, out_r, out_s = int64s([0, 1, 2, 3]), np.zeros(9, np.int64), np.zeros(9, np.int64)
    state[sw.KEEP] = -1
    merge_disjoint(state, rows, rows, rule, int64s(parts), edges, none, edges, none, parts, out_r, out_s)
