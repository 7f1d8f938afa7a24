"""MINER's arriving phase, one tuple at a time: probe by selectivity, count, make room, store.

Every decision is the one that a tuple-at-a-time join takes; only the columns of rows move in batches, by the caller.
Reference: Bornea 2010, 4.1; docs/algorithms/online.md, 4.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import F64, I32, I64
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.online.kernels.areas import (
    BENEFIT,
    Areas,
    area_of,
    drop_rows,
    empty_areas,
    flush_areas,
    order_of,
)
from dovetail.joins.online.kernels.ranges import range_of
from dovetail.joins.online.kernels.rows import (
    COMPARED,
    DONE,
    EMIT,
    ENOUGH_PROBES,
    FOUND,
    FULL,
    MATCHES,
    N_FREE,
    NEXT,
    NO_SLOT,
    PROBES,
    RESULTS,
    SIDE,
    SPACE,
    STAGE,
    STUCK,
    TO_ENTER,
    TO_PROBE,
    TO_STORE,
    Arrivals,
    Outcome,
    Rows,
    arrivals,
    can_list,
    empty_outcome,
    empty_rows,
    enter,
    hold,
    is_full,
)
from dovetail.joins.online.kernels.tree import Trees, empty_trees, first_from, insert_node, next_node

_MIN, _MAX = -(2**63), 2**63 - 1


class Edges(NamedTuple):
    """The join tree. By edge and end: relation, attribute, and the range of the other end's keys around a key as down,
    up and measure; then the same of a band besides equal columns: its key, -1 where there is none, and range.

    Matches, probes and rows that could have matched are counted; `sigma` is matches over those rows. `order` is, by
    relation of the arriving row and depth: relation, depth of its neighbour, edge, end of the edge.
    """

    relation: I64
    attribute: I64
    around: I64
    near: I64
    near_around: I64
    counts: I64
    sigma: F64
    order: I64


class Stack(NamedTuple):
    """Where the search for combinations of one arriving row stands: slot and range of keys by depth, and depth."""

    slot: I32
    range: I64
    meta: I64


LOW, HIGH, NEAR_LOW, NEAR_HIGH = range(4)
DEPTH, FRESH, PENDING = range(3)
"""Places in `Stack.meta`: depth, whether it was just entered, whether a combination waits for room."""
O_RELATION, O_PARENT, O_EDGE, O_END = range(4)


def edges_of(
    relation: I64,
    attribute: I64,
    around: I64 | None = None,
    near: I64 | None = None,
    near_around: I64 | None = None,
) -> Edges:
    """A tree of which nothing is known yet; keys are equal whole numbers unless ranges are given."""
    n = len(relation)
    ranges = [np.zeros((n, 2, 3), np.int64) if given is None else given for given in (around, near_around)]
    near = np.full((n, 2), -1, np.int64) if near is None else near
    counts, order = np.zeros((n, 3), np.int64), np.zeros((n + 1, n + 1, 4), np.int64)
    edges = Edges(relation, attribute, ranges[0], near, ranges[1], counts, np.zeros(n), order)
    order_probes(edges)
    return edges


def empty_stack(sides: int) -> Stack:
    """A search that has not begun."""
    return Stack(np.full(sides, -1, np.int32), np.zeros((sides, 4), np.int64), np.zeros(3, np.int64))


@kernel
def order_probes(e: Edges) -> None:
    """For rows of each relation: always the edge of least sigma that leaves the relations joined so far."""
    n = len(e.order)
    for start in range(n):
        depth = np.full(n, -1, np.int64)
        depth[start] = 0
        for at in range(1, n):
            best, best_end = -1, 0
            for edge in range(n - 1):
                for end in range(2):
                    if depth[e.relation[edge, end]] < 0 or depth[e.relation[edge, 1 - end]] >= 0:
                        continue
                    new = e.relation[edge, 1 - end]
                    if best < 0 or (e.sigma[edge], new) < (e.sigma[best], e.relation[best, 1 - best_end]):
                        best, best_end = edge, end
            new = e.relation[best, 1 - best_end]
            depth[new] = at
            e.order[start, at, O_RELATION], e.order[start, at, O_EDGE], e.order[start, at, O_END] = new, best, best_end
            e.order[start, at, O_PARENT] = depth[e.relation[best, best_end]]


@kernel
def update_sigma(e: Edges) -> None:
    """Edges with enough probes get a new sigma, and their counts start at zero; the others go on counting.

    Asked at each flush and at the start of each chunk. A flush comes after a block of arrivals, most of which probe
    fewer than a hundred times, so counts are not forgotten with each one. Order decides cost, never results.
    """
    for edge in range(len(e.sigma)):
        if e.counts[edge, PROBES] >= ENOUGH_PROBES and e.counts[edge, SPACE] > 0:
            e.sigma[edge] = e.counts[edge, MATCHES] / e.counts[edge, SPACE]
            e.counts[edge, :] = 0


@kernel
def _complete(rows: Rows, s: Areas, e: Edges, r: int, stack: Stack, out: Outcome) -> None:
    """A combination is found: every row of it counts in the region of each of its attributes."""
    n = len(e.order)
    at = out.n[FOUND]
    for depth in range(n):
        slot = stack.slot[depth]
        of = r if depth == 0 else e.order[r, depth, O_RELATION]
        rows.bit[slot] = 1
        for a in range(s.attributes[of]):
            s.joins[of, a, area_of(s, of, a, rows.keys[a, slot])] += 1
        if rows.meta[EMIT]:
            out.slots[at, of] = slot
    rows.meta[RESULTS] += 1
    if rows.meta[EMIT]:
        out.n[FOUND] += 1


@kernel
def _set_range(rows: Rows, e: Edges, edge: int, end: int, slot: int, reach: I64) -> None:
    """Which rows of the other end match a row: from the first key to the last, and those of the band besides."""
    mine, near = e.attribute[edge, end], e.near[edge, end]
    reach[LOW], reach[HIGH] = range_of(rows.keys[mine, slot], e.around[edge, end])
    reach[NEAR_LOW], reach[NEAR_HIGH] = _MIN, _MAX
    if near >= 0:
        reach[NEAR_LOW], reach[NEAR_HIGH] = range_of(rows.keys[near, slot], e.near_around[edge, end])


@kernel
def _step(rows: Rows, s: Areas, t: Trees, e: Edges, r: int, stack: Stack, depth: int) -> int:
    """The next row of this depth that matches its neighbour, or -1."""
    other, edge, end = e.order[r, depth, O_RELATION], e.order[r, depth, O_EDGE], e.order[r, depth, O_END]
    theirs, near, reach = e.attribute[edge, 1 - end], e.near[edge, 1 - end], stack.range[depth]
    o = order_of(rows, s, other, theirs)
    in_order = near < 0 or near == s.near[other, theirs]
    if stack.meta[FRESH]:
        e.counts[edge, PROBES] += 1
        e.counts[edge, SPACE] += rows.held[other]
        stack.meta[FRESH] = 0
        _set_range(rows, e, edge, end, stack.slot[e.order[r, depth, O_PARENT]], reach)
        some = reach[LOW] <= reach[HIGH] and reach[NEAR_LOW] <= reach[NEAR_HIGH]
        first = reach[NEAR_LOW] if in_order else _MIN
        node = first_from(t, o, other, theirs, reach[LOW], first, _MIN) if some else -1
    else:
        node = next_node(t, theirs, stack.slot[depth])
    while node >= 0:
        rows.meta[COMPARED] += 1
        if o.key[node] > reach[HIGH]:
            return -1
        if near < 0 or reach[NEAR_LOW] <= rows.keys[near, node] <= reach[NEAR_HIGH]:
            e.counts[edge, MATCHES] += 1
            return node
        if in_order:  # keys are equal, so all that follow are further away
            return -1
        node = next_node(t, theirs, node)
    return -1


@kernel
def _probe(rows: Rows, s: Areas, t: Trees, e: Edges, r: int, stack: Stack, out: Outcome) -> bool:
    """Whether all combinations of the row were found and written; false when there is no room for more of them."""
    m, last = stack.meta, len(e.order) - 1
    while m[DEPTH] > 0:
        if not m[PENDING]:
            node = _step(rows, s, t, e, r, stack, m[DEPTH])
            stack.slot[m[DEPTH]] = node
            if node < 0:
                m[DEPTH] -= 1
                continue
            if m[DEPTH] < last:
                m[DEPTH] += 1
                m[FRESH] = 1
                continue
        if out.n[FOUND] == len(out.slots):
            m[PENDING] = 1
            return False
        m[PENDING] = 0
        _complete(rows, s, e, r, stack, out)
    return True


@kernel
def _store(rows: Rows, s: Areas, t: Trees, r: int, slot: int) -> None:
    """The row is found from now on, by each of its attributes."""
    for a in range(s.attributes[r]):
        insert_node(t, order_of(rows, s, r, a), r, a, slot)
        s.held[r, a, area_of(s, r, a, rows.keys[a, slot])] += 1
    if len(s.side):
        s.side[slot] = r
    hold(rows, slot, r)


@kernel
def store_all(rows: Rows, s: Areas, t: Trees, r: int, slots: I64) -> None:
    """Rows with keys and ticks are in memory again."""
    for at in range(len(slots)):
        _store(rows, s, t, r, slots[at])


@kernel
def arrive_multi(rows: Rows, s: Areas, t: Trees, e: Edges, new: Arrivals, stack: Stack, out: Outcome) -> int:
    """Take rows from `new.at[NEXT]` on and say why it stopped; called again, it goes on where it stopped."""
    r = new.at[SIDE]
    if new.at[NEXT] == 0 and new.at[STAGE] == TO_ENTER:  # with ample memory there is never a flush
        update_sigma(e)
        order_probes(e)
    while new.at[NEXT] < len(new.size):
        at = new.at[NEXT]
        if new.at[STAGE] == TO_ENTER:
            if rows.meta[N_FREE] == 0:
                return NO_SLOT
            stack.slot[0] = enter(rows, new, at)
            stack.meta[DEPTH], stack.meta[FRESH], stack.meta[PENDING] = 1, 1, 0
            new.at[STAGE] = TO_PROBE
        if new.at[STAGE] == TO_PROBE:
            if not _probe(rows, s, t, e, r, stack, out):
                return FULL
            new.at[STAGE] = TO_STORE
        while is_full(rows, new.size[at]):
            if not can_list(out, 1):
                return NO_SLOT
            if not flush_areas(s, rows, t, out):
                return STUCK
            update_sigma(e)
            order_probes(e)
        _store(rows, s, t, r, new.slot[at])
        new.at[NEXT], new.at[STAGE] = at + 1, TO_ENTER
    return DONE


@register_warmup
def _warm() -> None:
    e = edges_of(np.array([[0, 1], [1, 2]]), np.array([[0, 0], [1, 0]]))
    s = empty_areas(np.array([1, 2, 1]), 2, 1, BENEFIT, 20)
    rows, t = empty_rows(20, 6, 1000, 3, 2), empty_trees(3, 2, 20)
    out, stack = empty_outcome(4, 20, 8, 3), empty_stack(3)
    key, size = np.zeros((2, 4), np.int64), np.ones(4, np.int64)
    for r in range(3):
        new = arrivals(r, 0, key, size, np.zeros(4, np.int32))
        arrive_multi(rows, s, t, e, new, stack, out)
    flush_areas(s, rows, t, out)
    store_all(rows, s, t, 0, np.zeros(0, np.int64))
    drop_rows(s, rows, t, out, 0, np.zeros(0, np.int32))
