"""Ordered indexes whose nodes are the slots of rows in memory: by key, then by a second number, then by arrival.

Each index is a treap (a search tree in that order, a heap by a hash of the slot). A node without a right child has the
number of the next node in its place, as a thread, so that a range is found in logarithmic time and walked in constant
time a row. All indexes share arrays: a slot belongs to one relation, so it is a node of that relation's indexes and of
no other. No index has a capacity of its own.
Reference: docs/algorithms/online.md, 4.1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, inlined
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.hashing import mixed

LEFT, RIGHT = range(2)
FIRST, LAST, ROOT = range(3)
NONE = -1
LINK_BYTES = 2 * 4


class Trees(NamedTuple):
    """By attribute and slot: children, or the thread to the next node; by relation and attribute: first, last, root."""

    child: I32
    ends: I32


class Order(NamedTuple):
    """The order of rows in one index, each by slot: key, then `near`, which may be the key itself, then tick."""

    key: I64
    near: I64
    ats: I64


def empty_trees(relations: int, attributes: int, slots: int) -> Trees:
    """Indexes without rows, for relations of up to this many attributes."""
    child = np.full((attributes, slots, 2), NONE, np.int32)
    return Trees(child, np.full((relations, attributes, 3), NONE, np.int32))


@inlined
def _is_before(o: Order, node: int, key: int, near: int, tick: int) -> bool:
    if o.key[node] != key:
        return o.key[node] < key  # type: ignore[no-any-return]  # Numba's bool
    if o.near[node] != near:
        return o.near[node] < near  # type: ignore[no-any-return]  # as above
    return o.ats[node] < tick  # type: ignore[no-any-return]  # as above


@kernel
def _weight(slot: int) -> np.uint64:
    return mixed(np.uint64(slot) + np.uint64(1))


@kernel
def _link(t: Trees, r: int, a: int, parent: int, side: int, node: int) -> None:
    if parent < 0:
        t.ends[r, a, ROOT] = node
    else:
        t.child[a, parent, side] = node


@kernel
def first_from(t: Trees, o: Order, r: int, a: int, key: int, near: int, tick: int) -> int:
    """The first node at or after (key, near, arrival tick), or -1."""
    node, best = int(t.ends[r, a, ROOT]), NONE
    while node >= 0:
        if _is_before(o, node, key, near, tick):
            node = int(t.child[a, node, RIGHT])
        else:
            best, node = node, int(t.child[a, node, LEFT])
    return best


@kernel
def insert_node(t: Trees, o: Order, r: int, a: int, slot: int) -> None:
    """The slot, whose place in the order is set, becomes a node."""
    key, near, tick, weight = o.key[slot], o.near[slot], o.ats[slot], _weight(slot)
    parent, side, node = NONE, LEFT, int(t.ends[r, a, ROOT])
    before, after = NONE, NONE
    while node >= 0 and _weight(node) >= weight:
        parent = node
        if _is_before(o, node, key, near, tick):
            before, side = node, RIGHT
        else:
            after, side = node, LEFT
        node = int(t.child[a, node, side])
    _link(t, r, a, parent, side, slot)
    # What stood here is split: nodes before the slot hang to its left, the others to its right.
    low_parent, low_side, high_parent, high_side = slot, LEFT, slot, RIGHT
    while node >= 0:
        if _is_before(o, node, key, near, tick):
            t.child[a, low_parent, low_side] = node
            before, low_parent, low_side = node, node, RIGHT
            node = int(t.child[a, node, RIGHT])
        else:
            t.child[a, high_parent, high_side] = node
            after, high_parent, high_side = node, node, LEFT
            node = int(t.child[a, node, LEFT])
    t.child[a, low_parent, low_side] = NONE
    t.child[a, high_parent, high_side] = NONE
    _thread(t, r, a, before, slot)
    _thread(t, r, a, slot, after)


@inlined
def _threaded(node: int) -> int:
    """A node as a thread, and a thread as its node; -1, which stands for none, is both."""
    return -2 - node


@kernel
def _thread(t: Trees, r: int, a: int, before: int, after: int) -> None:
    """These two nodes are neighbours; -1 stands for none."""
    if before < 0:
        t.ends[r, a, FIRST] = after
    elif t.child[a, before, RIGHT] < 0:
        t.child[a, before, RIGHT] = _threaded(after)
    if after < 0:
        t.ends[r, a, LAST] = before


@kernel
def next_node(t: Trees, a: int, node: int) -> int:
    """The node after this one, or -1."""
    right = int(t.child[a, node, RIGHT])
    if right < 0:
        return _threaded(right)
    while t.child[a, right, LEFT] >= 0:
        right = int(t.child[a, right, LEFT])
    return right


@kernel
def last_before(t: Trees, o: Order, r: int, a: int, key: int, near: int, tick: int) -> int:
    """The last node before (key, near, arrival tick), or -1."""
    node, best = int(t.ends[r, a, ROOT]), NONE
    while node >= 0:
        if _is_before(o, node, key, near, tick):
            best, node = node, int(t.child[a, node, RIGHT])
        else:
            node = int(t.child[a, node, LEFT])
    return best


@kernel
def remove_node(t: Trees, o: Order, r: int, a: int, slot: int) -> None:
    """The slot, which is a node, is none any more."""
    key, near, tick = o.key[slot], o.near[slot], o.ats[slot]
    before, after = last_before(t, o, r, a, key, near, tick), next_node(t, a, slot)
    parent, side, node = NONE, LEFT, int(t.ends[r, a, ROOT])
    while node != slot:
        parent = node
        side = RIGHT if _is_before(o, node, key, near, tick) else LEFT
        node = int(t.child[a, node, side])
    low, high = int(t.child[a, slot, LEFT]), int(t.child[a, slot, RIGHT])
    while low >= 0 and high >= 0:
        if _weight(low) >= _weight(high):
            _link(t, r, a, parent, side, low)
            parent, side, low = low, RIGHT, int(t.child[a, low, RIGHT])
        else:
            _link(t, r, a, parent, side, high)
            parent, side, high = high, LEFT, int(t.child[a, high, LEFT])
    _link(t, r, a, parent, side, low if low >= 0 else max(high, NONE))
    _thread(t, r, a, before, after)
