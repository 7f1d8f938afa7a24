"""Parts of the interval sweeps: rows of two sides, the pair rule, and the state that lets a sweep stop and go on.

A sweep is a loop over two windows of rows. It stops whenever it needs more rows, has filled its output or its memory,
and says so with a status; the caller helps and calls again. Everything it must remember is in one int64 array, at the
positions named here, so that a call costs microseconds and a sweep can be resumed at any pair.

In the spilling mode, tuples of one side stream past the memory of the other until that is empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8, Bool, inlined, int64s, readonly
from dovetail.engine.kernels.compile import kernel, register_warmup

# Statuses.
DONE, NEED_R, NEED_S, OUT_FULL, MEMORY_FULL, RUN_OVER, READY, FREED, EXHAUSTED = range(9)

# Positions in the state. R_* and S_* have equal distance, so that SIDE * position reaches either side.
R_POS, R_END, R_FINAL, R_ROWS, R_EOF, R_ACTIVE, R_HEAD = range(7)
SIDE = 7
S_POS, S_END, S_FINAL, S_ROWS, S_EOF, S_ACTIVE, S_HEAD = range(7, 14)
KEYED, RUNNING, KEY, RUNS = range(14, 18)
OUT, PRODUCTIVE, UNPRODUCTIVE, SUPPRESSED = range(18, 22)
USED, CAPACITY, PEAK_ACTIVE = range(22, 25)
PHASE, INNER, KEEP, HEAP, PICKED, STORE = range(25, 31)
STATE_SIZE = 32

# Which side of a matching pair starts first, by the raw bounds: nothing is known, or R does, or S does.
ANY, R_FIRST, R_FIRST_STRICT, S_FIRST, S_FIRST_STRICT = range(5)

ALWAYS = np.iinfo(np.int64).min
"""The `range_start` of a rule that suppresses nothing."""
NEVER = np.iinfo(np.int64).max
"""Later than every start, and more than every room."""


class Rows(NamedTuple):
    """The rows of one side in reach: codes with start < end, and what each weighs in memory.

    `key` is empty when the join has no key. `weight[i]` is what all rows before row i weigh together, or the array is
    empty and every row weighs `each`. All arrays are read-only (`arrays.int64s`), so that one compiled form serves
    columns of Arrow's and columns of ours.
    """

    start: I64
    end: I64
    key: I64
    weight: I64
    each: int


class Rule(NamedTuple):
    """When a pair of rows, R first, is an answer.

    Without `check` sharing a point is enough. With it, raw bounds (start >> halves, (end - shift) >> halves) are
    compared and the four outcomes looked up in the 81 flags of `table`. Pairs whose later start lies before
    `range_start` belong to another partition and are not given out.
    """

    table: Bool
    halves: int
    shift: int
    check: bool
    range_start: int
    order: int


@inlined
def close_gap(rows: I64, kept: int, first: int, count: int) -> int:
    """Move rows [first, count) behind the first `kept` ones; how many there are then."""
    if kept < first:
        for i in range(first, count):
            rows[kept + i - first] = rows[i]
    return kept + count - first


@inlined
def compared(a: int, b: int) -> int:
    """0, 1, 2 for less, equal, greater."""
    return 1 + (1 if a > b else 0) - (1 if a < b else 0)


@inlined
def holds(rule: Rule, r_start: int, r_end: int, s_start: int, s_end: int) -> bool:
    """Whether the pair satisfies the rule, partition aside."""
    if not rule.check:
        return r_start < s_end and s_start < r_end
    a, b = r_start >> rule.halves, (r_end - rule.shift) >> rule.halves
    c, d = s_start >> rule.halves, (s_end - rule.shift) >> rule.halves
    return bool(rule.table[27 * compared(a, c) + 9 * compared(a, d) + 3 * compared(b, c) + compared(b, d)])


@inlined
def holds_between(rule: Rule, side: int, start: int, end: int, other_start: int, other_end: int) -> bool:
    """Whether the rule holds for a tuple of a side (0: R, 1: S) and one of the other."""
    if side == 0:
        return holds(rule, start, end, other_start, other_end)
    return holds(rule, other_start, other_end, start, end)


@inlined
def span_weight(rows: Rows, first: int, last: int) -> int:
    """Bytes that the rows from `first` to before `last` add to the memory in use."""
    return int(rows.weight[last] - rows.weight[first]) if rows.weight.size > 0 else rows.each * (last - first)


@inlined
def weight_of(rows: Rows, row: int) -> int:
    """Bytes that one row adds to the memory in use."""
    return span_weight(rows, row, row + 1)


@inlined
def room_for(state: I64, weight: int) -> bool:
    """Whether one more tuple of this weight fits in the memory of the active tuples; a single one always does."""
    return bool(state[USED] + weight <= state[CAPACITY] or state[USED] == 0)


@inlined
def note_active(state: I64) -> None:
    """Remember the largest number of active tuples."""
    state[PEAK_ACTIVE] = max(state[PEAK_ACTIVE], state[R_ACTIVE] + state[S_ACTIVE])


@inlined
def note_pairs(state: I64, n: int, productive: int, unproductive: int, suppressed: int) -> None:
    """Remember how many pairs are in the output, and add comparisons and pairs of other partitions to their counts."""
    state[OUT] = n
    state[PRODUCTIVE] += productive
    state[UNPRODUCTIVE] += unproductive
    state[SUPPRESSED] += suppressed


@inlined
def first_beyond(keys: I64, key: int, low: int, high: int, equal_too: bool) -> int:
    """The first position in [low, high) whose key is larger than `key`, or not smaller if not `equal_too`."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key or (equal_too and keys[middle] == key):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def find_ends(state: I64, r_key: I64, s_key: I64) -> None:
    """Set where the rows of the current key end in both windows, and whether that end is final."""
    for side in range(2):
        at, keys = side * SIDE, r_key if side == 0 else s_key
        end = state[at + R_ROWS]
        if state[KEYED] != 0:
            end = first_beyond(keys, state[KEY], state[at + R_POS], end, True)
        state[at + R_END] = end
        state[at + R_FINAL] = 1 if end < state[at + R_ROWS] else state[at + R_EOF]


@inlined
def next_run(state: I64, r_key: I64, s_key: I64) -> int:
    """Move both sides to the next key that both have; without keys, everything is one run.

    READY, or NEED_R, NEED_S when a window ends before that is known, or DONE.
    """
    if state[KEYED] == 0:
        if state[RUNS] > 0:
            return DONE
    else:
        status = _align_keys(state, r_key, s_key)
        if status != READY:
            return status
        state[KEY] = r_key[state[R_POS]]
    state[RUNS] += 1
    state[RUNNING] = 1
    find_ends(state, r_key, s_key)
    return READY


@inlined
def _align_keys(state: I64, r_key: I64, s_key: I64) -> int:
    if state[RUNS] > 0:
        state[R_POS] = first_beyond(r_key, state[KEY], state[R_POS], state[R_ROWS], True)
        state[S_POS] = first_beyond(s_key, state[KEY], state[S_POS], state[S_ROWS], True)
    while True:
        if state[R_POS] == state[R_ROWS]:
            return DONE if state[R_EOF] != 0 else NEED_R
        if state[S_POS] == state[S_ROWS]:
            return DONE if state[S_EOF] != 0 else NEED_S
        r, s = r_key[state[R_POS]], s_key[state[S_POS]]
        if r == s:
            return READY
        if r < s:
            state[R_POS] = first_beyond(r_key, s, state[R_POS], state[R_ROWS], False)
        else:
            state[S_POS] = first_beyond(s_key, r, state[S_POS], state[S_ROWS], False)


@inlined
def end_run(state: I64) -> None:
    """Forget everything active: the next key starts afresh."""
    state[RUNNING] = state[USED] = state[R_ACTIVE] = state[S_ACTIVE] = state[HEAP] = 0
    state[PHASE] = state[INNER] = state[KEEP] = state[PICKED] = 0
    state[R_HEAD], state[S_HEAD] = state[R_POS], state[S_POS]


def sample_rows() -> Rows:
    """A few overlapping rows of one key, for warming up."""
    start = np.arange(3, dtype=np.int64)
    none = int64s([])
    return Rows(int64s(start), int64s(start + 2), none, none, 1)


def sample_rule() -> Rule:
    """The overlap rule, for warming up."""
    return Rule(readonly(np.ones(81, np.bool_), np.bool_), 0, 0, False, ALWAYS, ANY)


def sample_state(r: Rows, s: Rows) -> I64:
    """The state before the first step over two complete windows, for warming up."""
    state = np.zeros(STATE_SIZE, np.int64)
    state[R_ROWS], state[S_ROWS] = r.start.size, s.start.size
    state[R_EOF] = state[S_EOF] = state[STORE] = 1
    state[CAPACITY] = 100
    return state


@inlined
def heap_push(ends: I64, refs: I64, size: int, end: int, ref: int) -> None:
    """Add one entry to a heap of `size` entries; the arrays must have room."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if ends[parent] <= end:
            break
        ends[child], refs[child] = ends[parent], refs[parent]
        child = parent
    ends[child], refs[child] = end, ref


@inlined
def heap_pop(ends: I64, refs: I64, size: int) -> int:
    """The reference of the earliest end, taken out of a heap of `size` entries."""
    top, last = refs[0], size - 1
    _sift(ends, refs, last, 0, ends[last], refs[last])
    return int(top)


@inlined
def heap_replace(ends: I64, refs: I64, size: int, end: int, ref: int) -> None:
    """Put an entry in the place of the top."""
    _sift(ends, refs, size, 0, end, ref)


@inlined
def heap_build(ends: I64, refs: I64, size: int) -> None:
    """Order the first `size` entries as a heap."""
    for place in range(size // 2 - 1, -1, -1):
        _sift(ends, refs, size, place, ends[place], refs[place])


@inlined
def _sift(ends: I64, refs: I64, size: int, place: int, end: int, ref: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and ends[child + 1] < ends[child]:
            child += 1
        if end <= ends[child]:
            break
        ends[place], refs[place] = ends[child], refs[child]
        place = child
    ends[place], refs[place] = end, ref


@kernel
def set_bits(bits: U8, positions: I64) -> None:
    """Set the bits at these positions, which must lie inside the bitmap."""
    for i in range(positions.size):
        bits[positions[i] >> 3] |= np.uint8(1 << (positions[i] & 7))


@inlined
def no_more(rule: Rule, r_start: int, s_start: int, s_end: int) -> bool:
    """Whether the S tuple can match neither this R tuple nor any later one: decision (c) of table 6.4, tightest."""
    if rule.order == R_FIRST:
        return s_start >> rule.halves < r_start >> rule.halves
    if rule.order == R_FIRST_STRICT:
        return s_start >> rule.halves <= r_start >> rule.halves
    return s_end <= r_start


@inlined
def outlived(rule: Rule, spilled: int, start: int, held_start: int, held_end: int) -> bool:
    """Whether a held tuple matches no tuple of the spilled side (0: R, 1: S) that starts at `start` or later."""
    if spilled == 0 and rule.order == R_FIRST:
        return held_start >> rule.halves < start >> rule.halves
    if spilled == 0 and rule.order == R_FIRST_STRICT:
        return held_start >> rule.halves <= start >> rule.halves
    return held_end <= start


@inlined
def starts_too_late(rule: Rule, spilled: int, start: int, end: int, held_start: int) -> bool:
    """Whether held tuples from this start on match a tuple of the spilled side neither now nor by their order."""
    if rule.order == (S_FIRST if spilled == 0 else R_FIRST):
        return held_start >> rule.halves > start >> rule.halves
    if rule.order == (S_FIRST_STRICT if spilled == 0 else R_FIRST_STRICT):
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
    find_ends(state, r.key, s.key)
    at, other = spilled * SIDE, (1 - spilled) * SIDE
    while state[other + R_ACTIVE] > 0:
        if state[at + R_POS] == state[at + R_END]:
            return EXHAUSTED if state[at + R_FINAL] != 0 else NEED_R + spilled
        if spilled == 0:
            passed = _pass(state, r, s, rule, 0, count_drops, in_order, held, out_r, out_s)
        else:
            passed = _pass(state, s, r, rule, 1, count_drops, in_order, held, out_s, out_r)
        if not passed:
            return OUT_FULL
        if state[other + R_ACTIVE] > 0:
            state[at + R_POS] += 1
    return FREED


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
    row, count = state[spilled * SIDE + R_POS], (1 - spilled) * SIDE + R_ACTIVE
    start, end = moving.start[row], moving.end[row]
    i, kept, n, store = state[INNER], state[KEEP], state[OUT], state[STORE] != 0
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
            state[USED] -= weight_of(fixed, other)
            unproductive += 1 if count_drops else 0
            continue
        held[kept] = other
        kept += 1
        if not holds_between(rule, spilled, start, end, other_start, other_end):
            unproductive += 1
            continue
        productive += 1
        if max(start, other_start) < rule.range_start:
            suppressed += 1
        elif store:
            out_moving[n], out_fixed[n] = row, other
            n += 1
    note_pairs(state, n, productive, unproductive, suppressed)
    if not beyond and i < state[count]:
        state[INNER], state[KEEP] = i, kept
        return False
    state[count] = close_gap(held, kept, i, state[count])
    state[INNER] = state[KEEP] = 0
    return True


@register_warmup
def _warm() -> None:
    set_bits(np.zeros(1, np.uint8), np.zeros(1, np.int64))
    rows, rule = sample_rows(), sample_rule()
    held, out_r, out_s = np.arange(9), np.empty(9, np.int64), np.empty(9, np.int64)
    for spilled in (0, 1):
        state = sample_state(rows, rows)
        state[R_ACTIVE] = state[SIDE + R_ACTIVE] = 1
        spill_step(state, rows, rows, rule, spilled, True, True, held, out_r, out_s)
