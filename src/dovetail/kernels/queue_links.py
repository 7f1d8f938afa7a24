"""The arrays of the linked queue and the kernels on them.

Every element has a ticket, given in order of arrival. `order[ticket]` is its slot, or -1 once it has left; a Fenwick
tree counts the elements of each block of 64 tickets. A position is found by one descent of the tree and a walk in one
block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.kernels.arrays import I32, I64, Bool
from dovetail.kernels.compile import kernel


class Links(NamedTuple):
    """Per slot `values`, `after`, `before`, `tickets`; per ticket `order`; per block, one-based, `tree`."""

    values: I64
    after: I32
    before: I32
    tickets: I32
    order: I32
    tree: I32
    meta: I64


FREE, USED, LIVE, FIRST, LAST, TICKET = 0, 1, 2, 3, 4, 5
"""Places in `meta`: first free slot, slots ever used, live elements, oldest slot, newest slot, next ticket."""
BLOCK = 64
FREE_SLOT = -2
SLOT_BYTES = 8 + 4 + 4 + 4
MAX_ELEMENTS = 2**30 - BLOCK
"""Tickets are int32, and there are twice as many of them as elements."""


def empty_links(capacity: int, tickets: int) -> Links:
    """A queue with room for so many elements, and for so many arrivals before it must renumber."""
    return Links(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int32),
        np.full(tickets, -1, np.int32),
        np.zeros(tickets // BLOCK + 1, np.int32),
        np.array([-1, 0, 0, -1, -1, 0], np.int64),
    )


@kernel
def _count_block(tree: I32, ticket: int, by: int) -> None:
    at = ticket // BLOCK + 1
    while at < len(tree):
        tree[at] += by
        at += at & -at


@kernel
def append(q: Links, values: I64, slots: I64) -> None:
    """Put the values at the end; room in slots and tickets is the caller's duty."""
    for row in range(len(values)):
        slot = q.meta[FREE]
        if slot >= 0:
            q.meta[FREE] = q.after[slot]
        else:
            slot = q.meta[USED]
            q.meta[USED] += 1
        last = q.meta[LAST]
        q.values[slot] = values[row]
        q.before[slot] = last
        q.after[slot] = -1
        if last >= 0:
            q.after[last] = slot
        else:
            q.meta[FIRST] = slot
        q.meta[LAST] = slot
        ticket = q.meta[TICKET]
        q.meta[TICKET] += 1
        q.tickets[slot] = ticket
        q.order[ticket] = slot
        _count_block(q.tree, ticket, 1)
        slots[row] = slot
    q.meta[LIVE] += len(values)


@kernel
def _remove(q: Links, slot: int) -> None:
    before, after = q.before[slot], q.after[slot]
    if before >= 0:
        q.after[before] = after
    else:
        q.meta[FIRST] = after
    if after >= 0:
        q.before[after] = before
    else:
        q.meta[LAST] = before
    q.order[q.tickets[slot]] = -1
    _count_block(q.tree, q.tickets[slot], -1)
    q.before[slot] = FREE_SLOT
    q.after[slot] = q.meta[FREE]
    q.meta[FREE] = slot
    q.meta[LIVE] -= 1


@kernel
def delete(q: Links, slots: I64, gone: Bool) -> None:
    """Take the elements of `slots` out; those that hold none are told in `gone`."""
    for row in range(len(slots)):
        slot = slots[row]
        gone[row] = slot < q.meta[USED] and q.before[slot] != FREE_SLOT
        if gone[row]:
            _remove(q, slot)


@kernel
def pop_front(q: Links, slots: I64, values: I64) -> None:
    """Take the oldest elements out, as many as the outputs hold."""
    for row in range(len(slots)):
        slot = q.meta[FIRST]
        slots[row] = slot
        values[row] = q.values[slot]
        _remove(q, slot)


@kernel
def _slot_at(q: Links, position: int) -> int:
    block = 0
    left = position
    step = 1
    while step * 2 < len(q.tree):
        step *= 2
    while step > 0:
        if block + step < len(q.tree) and q.tree[block + step] <= left:
            block += step
            left -= q.tree[block]
        step >>= 1
    ticket = block * BLOCK
    while True:
        if q.order[ticket] >= 0:
            if left == 0:
                return q.order[ticket]  # type: ignore[no-any-return]  # int and np.int32 are one in a kernel
            left -= 1
        ticket += 1


@kernel
def slots_at(q: Links, positions: I64, out: I64) -> None:
    """For each position, 0 the oldest, its slot."""
    for row in range(len(positions)):
        out[row] = _slot_at(q, positions[row])


@kernel
def positions_of(q: Links, slots: I64, out: I64) -> None:
    """For each slot its position, or -1 where it holds no element."""
    for row in range(len(slots)):
        slot = slots[row]
        out[row] = -1
        if slot >= q.meta[USED] or q.before[slot] == FREE_SLOT:
            continue
        ticket = q.tickets[slot]
        block = ticket // BLOCK
        rank = 0
        for at in range(block * BLOCK, ticket):
            rank += q.order[at] >= 0
        while block > 0:
            rank += q.tree[block]
            block -= block & -block
        out[row] = rank


@kernel
def walk(q: Links, slot: int, out: I64) -> None:
    """Fill `out` with the slot and those that follow it."""
    for row in range(len(out)):
        out[row] = slot
        slot = q.after[slot]


@kernel
def renumber(q: Links) -> None:
    """Give tickets 0, 1, 2 ... in the present order; `order` and `tree` may be new arrays and are written whole."""
    q.order[:] = -1
    q.tree[:] = 0
    slot = q.meta[FIRST]
    ticket = 0
    while slot >= 0:
        q.tickets[slot] = ticket
        q.order[ticket] = slot
        q.tree[ticket // BLOCK + 1] += 1
        ticket += 1
        slot = np.int64(q.after[slot])
    q.meta[TICKET] = ticket
    for at in range(1, len(q.tree)):
        parent = at + (at & -at)
        if parent < len(q.tree):
            q.tree[parent] += q.tree[at]
