"""Three regions for each relation and attribute, and MINER's flush: the area of least benefit leaves all indexes.

Reference: Bornea 2010, 4.1; docs/algorithms/online.md, 3.4 and 4.2, step 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, inlined
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.hashing import mixed
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    DROPPED,
    FLUSHED,
    GONE,
    Outcome,
    Rows,
    close_flush,
    largest_side,
    let_go,
)
from dovetail.joins.online.kernels.tree import (
    FIRST,
    LAST,
    Order,
    Trees,
    first_from,
    last_before,
    next_node,
    remove_node,
)

LOWER, MIDDLE, UPPER = range(3)
BENEFIT, RANDOM = range(2)
"""Policies: the area of least benefit leaves (MINER), or rows by chance (MJoin's naive extension)."""
SIDE_BYTES = 4
_MIN, _MAX = -(2**63), 2**63 - 1


class Areas(NamedTuple):
    """By relation and attribute: boundaries, joins and rows of each region, the Clock's hand as (key, near, tick, set),
    how often each region was chosen first, and the key that rows with the same key are ordered by: one of a band, or
    the key itself. By relation: how many attributes it has, and how often it was flushed. By slot, where rows leave by
    chance: its relation, -1 if it is not in memory."""

    low: I64
    up: I64
    joins: I64
    held: I64
    hand: I64
    chosen: I64
    near: I64
    attributes: I64
    flushed: I64
    side: I32
    meta: I64


BLOCK, SEED, DRAWS, POLICY = range(4)
"""Places in `Areas.meta`: rows a block, seed of random choices, choices made, policy."""


def empty_areas(attributes: I64, block_rows: int, seed: int, policy: int, slots: int, near: I64 | None = None) -> Areas:
    """Everything is middle, nothing counted; rows are ordered by their keys alone if `near` is not given."""
    relations, most = len(attributes), int(max(attributes))
    low, up = np.full((relations, most), _MIN), np.full((relations, most), _MAX)
    joins, held, chosen = (np.zeros((relations, most, 3), np.int64) for _ in range(3))
    hand, meta = np.zeros((relations, most, 4), np.int64), np.array([block_rows, seed, 0, policy], np.int64)
    near = no_bands(relations, most) if near is None else near
    flushed, side = np.zeros(relations, np.int64), np.full(slots if policy == RANDOM else 0, -1, np.int32)
    return Areas(low, up, joins, held, hand, chosen, near, np.array(attributes, np.int64), flushed, side, meta)


def no_bands(relations: int, attributes: int) -> I64:
    """The value of `Areas.near` where rows are ordered by their keys alone."""
    return np.tile(np.arange(attributes, dtype=np.int64), (relations, 1))


@inlined
def order_of(rows: Rows, s: Areas, r: int, a: int) -> Order:
    """The order of an input's rows in the index of an attribute."""
    return Order(rows.keys[a], rows.keys[s.near[r, a]], rows.ats)


@inlined
def area_of(s: Areas, r: int, a: int, key: int) -> int:
    """The region of a key under the boundaries of one attribute; upper is asked first."""
    if key >= s.up[r, a]:
        return UPPER
    return LOWER if key <= s.low[r, a] else MIDDLE


@kernel
def _evict(s: Areas, rows: Rows, t: Trees, out: Outcome, r: int, slot: int) -> None:
    """One row leaves all indexes of its relation, and the counts of the regions it was in."""
    for a in range(s.attributes[r]):
        s.held[r, a, area_of(s, r, a, rows.keys[a, slot])] -= 1
        remove_node(t, order_of(rows, s, r, a), r, a, slot)
    if len(s.side):
        s.side[slot] = -1
    let_go(rows, out, slot, r)


@kernel
def draw(s: Areas, below: int) -> int:
    """A number from 0 on, by chance that can be repeated."""
    s.meta[DRAWS] += 1
    word = mixed(np.uint64(s.meta[SEED]) + mixed(np.uint64(s.meta[DRAWS])))
    return int(np.int64(word >> np.uint64(1)) % below)


@kernel
def _hand(s: Areas, rows: Rows, t: Trees, r: int, a: int) -> int:
    """The node at which the Clock goes on; at first one of the middle region by chance."""
    o, hand = order_of(rows, s, r, a), s.hand[r, a]
    if hand[3] == 0:
        node = first_from(t, o, r, a, s.low[r, a], _MAX, _MAX)
        for _ in range(draw(s, s.held[r, a, MIDDLE])):
            node = next_node(t, a, node)
        hand[0], hand[1], hand[2], hand[3] = o.key[node], o.near[node], o.ats[node], 1
    return first_from(t, o, r, a, hand[0], hand[1], hand[2])


@kernel
def _take_clock(s: Areas, rows: Rows, t: Trees, out: Outcome, r: int, a: int, n: int) -> None:
    """The hand goes round the middle region; a row with the bit set loses it and stays, one without leaves."""
    node, taken, o, hand = _hand(s, rows, t, r, a), 0, order_of(rows, s, r, a), s.hand[r, a]
    while taken < n:
        if node < 0 or area_of(s, r, a, rows.keys[a, node]) != MIDDLE:
            node = first_from(t, o, r, a, s.low[r, a], _MAX, _MAX)  # ticks are smaller, so this is the next key
            continue
        following = next_node(t, a, node)
        if rows.bit[node]:
            rows.bit[node] = 0
        else:
            hand[0], hand[1], hand[2] = o.key[node], o.near[node], o.ats[node] + 1
            _evict(s, rows, t, out, r, node)
            taken += 1
        node = following


@kernel
def _take_end(s: Areas, rows: Rows, t: Trees, out: Outcome, r: int, a: int, region: int, n: int) -> None:
    """The smallest keys of the lower region leave, or the largest of the upper one."""
    for _ in range(n):
        _evict(s, rows, t, out, r, t.ends[r, a, FIRST if region == LOWER else LAST])


@kernel
def least_benefit(s: Areas, r: int, tried: I64) -> tuple[int, int]:
    """Attribute and region with rows that brought the fewest results a row; ties: upper, lower, middle."""
    best_a, best, best_joins, best_held = -1, -1, np.int64(0), np.int64(1)
    for region in (UPPER, LOWER, MIDDLE):
        for a in range(s.attributes[r]):
            held, joins = s.held[r, a, region], s.joins[r, a, region]
            if held == 0 or tried[a] & (1 << region):
                continue
            if best < 0 or float(joins) * float(best_held) < float(best_joins) * float(held):
                best_a, best, best_joins, best_held = a, region, joins, held
    return best_a, best


@kernel
def _set_low(s: Areas, rows: Rows, t: Trees, r: int, a: int) -> None:
    """The smallest key such that the lower region holds a block, but below the upper region."""
    node, following = -1, int(t.ends[r, a, FIRST])
    for _ in range(s.meta[BLOCK]):
        if following >= 0:
            node, following = following, next_node(t, a, following)
    key = rows.keys[a, node]
    if key >= s.up[r, a]:
        below = last_before(t, order_of(rows, s, r, a), r, a, s.up[r, a], _MIN, _MIN)
        key = rows.keys[a, below] if below >= 0 else _MIN
    s.low[r, a] = key


@kernel
def _set_up(s: Areas, rows: Rows, t: Trees, r: int, a: int) -> None:
    """The largest key such that the upper region holds a block, but above the lower region."""
    node, preceding, o = -1, int(t.ends[r, a, LAST]), order_of(rows, s, r, a)
    for _ in range(s.meta[BLOCK]):
        if preceding >= 0:
            node, preceding = preceding, last_before(t, o, r, a, o.key[preceding], o.near[preceding], o.ats[preceding])
    key = rows.keys[a, node]
    if key <= s.low[r, a]:
        above = first_from(t, o, r, a, s.low[r, a], _MAX, _MAX)
        key = rows.keys[a, above] if above >= 0 else _MAX
    s.up[r, a] = key


@kernel
def count_areas(s: Areas, rows: Rows, t: Trees, r: int, a: int) -> None:
    """Rows of each region as the boundaries lie now."""
    s.held[r, a, :] = 0
    node = first_from(t, order_of(rows, s, r, a), r, a, s.up[r, a], _MIN, _MIN)
    while node >= 0:
        s.held[r, a, UPPER] += 1
        node = next_node(t, a, node)
    node = int(t.ends[r, a, FIRST])
    while node >= 0 and area_of(s, r, a, rows.keys[a, node]) == LOWER:
        s.held[r, a, LOWER] += 1
        node = next_node(t, a, node)
    s.held[r, a, MIDDLE] = rows.held[r] - s.held[r, a, LOWER] - s.held[r, a, UPPER]


@kernel
def _move_boundaries(s: Areas, rows: Rows, t: Trees, r: int, tried: I64) -> None:
    """Only those of regions that gave rows move; at the first flush those of all attributes."""
    first = s.flushed[r] == 0
    for a in range(s.attributes[r]):
        if rows.held[r] > 0 and (first or tried[a] & (1 << LOWER)):
            _set_low(s, rows, t, r, a)
        if rows.held[r] > 0 and (first or tried[a] & (1 << UPPER)):
            _set_up(s, rows, t, r, a)
        if first or tried[a]:
            count_areas(s, rows, t, r, a)


@kernel
def _take_areas(s: Areas, rows: Rows, t: Trees, out: Outcome, r: int, need: int, tried: I64) -> int:
    """The attribute whose area was emptied first; the next lowest benefit follows where an area has too few rows."""
    mark, taken = -1, 0
    while taken < need:
        a, region = least_benefit(s, r, tried)
        if s.flushed[r] == 0 and s.held[r, 0, MIDDLE] > 0 and taken == 0:
            a, region = 0, MIDDLE
        if mark < 0:
            mark = a
            s.chosen[r, a, region] += 1
        tried[a] |= 1 << region
        n: int = min(need - taken, s.held[r, a, region])
        if region == MIDDLE:
            _take_clock(s, rows, t, out, r, a, n)
        else:
            _take_end(s, rows, t, out, r, a, region, n)
        taken += n
    return mark


@kernel
def _take_random(s: Areas, rows: Rows, t: Trees, out: Outcome, r: int, need: int) -> None:
    taken = 0
    while taken < need:
        slot = draw(s, len(s.side))
        if s.side[slot] == r:
            _evict(s, rows, t, out, r, slot)
            taken += 1


@kernel
def flush_areas(s: Areas, rows: Rows, t: Trees, out: Outcome) -> bool:
    """One block of the relation with the most rows leaves; false if there is no row at all."""
    r = largest_side(rows)
    if rows.held[r] == 0:
        return False
    first, mark = out.n[GONE], 0
    need: int = min(s.meta[BLOCK], rows.held[r])
    tried = np.zeros(s.attributes[r], np.int64)
    if s.meta[POLICY] == RANDOM:
        _take_random(s, rows, t, out, r, need)
    else:
        mark = _take_areas(s, rows, t, out, r, need, tried)
        _move_boundaries(s, rows, t, r, tried)
    s.flushed[r] += 1
    rows.meta[CLOCK] += 1
    close_flush(out, first, r, mark, FLUSHED, rows.meta[CLOCK])
    s.joins[r] = 0
    return True


@kernel
def drop_rows(s: Areas, rows: Rows, t: Trees, out: Outcome, r: int, slots: I32) -> None:
    """These rows of one relation are needed no more; they leave as one flush."""
    first = out.n[GONE]
    for at in range(len(slots)):
        _evict(s, rows, t, out, r, slots[at])
    close_flush(out, first, r, 0, DROPPED, rows.meta[CLOCK])
