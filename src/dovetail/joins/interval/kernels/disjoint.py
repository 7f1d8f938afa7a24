"""Disjoint interval partitioning: assign tuples to partitions without overlap, and merge partitions pair by pair."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.inline import inlined
from dovetail.joins.interval.kernels import sweep as sw
from dovetail.joins.interval.kernels.sweep import Rows, Rule, heap_push, heap_replace

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
    state[sw.INNER], cursor[part], state[sw.OUT] = a, b, n
    state[sw.PRODUCTIVE] += productive
    state[sw.UNPRODUCTIVE] += unproductive
    state[sw.SUPPRESSED] += suppressed
    return bool(a == r_last or b == s_last)


@register_warmup
def _warm() -> None:
    rows, rule, none = sw.sample_rows(), sw.sample_rule(), int64s([])
    ends, refs, parts = np.zeros(9, np.int64), np.zeros(9, np.int64), np.zeros(3, np.int64)
    assign_disjoint(np.array([0, 0, 9, 0]), rows.start, rows.end, none, ends, refs, parts)
    state = sw.sample_state(rows, rows)
    edges, out_r, out_s = int64s([0, 1, 2, 3]), np.zeros(9, np.int64), np.zeros(9, np.int64)
    state[sw.KEEP] = -1
    merge_disjoint(state, rows, rows, rule, int64s(parts), edges, none, edges, none, parts, out_r, out_s)
