"""The arrays of the sorted index, and the kernels that read them, fill them and take rows out.

Rows live in leaves of a fixed number of places, sorted inside; `order` lists the leaves by key, followed by those that
are free, and `firsts` holds the first key of each leaf in that order. A position in the index is leaf place * places a
leaf + place inside. Apart from the last leaf, a leaf is born at least half full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.kernels.compile import kernel, register_warmup


class Leaves(NamedTuple):
    """`keys` and `values` are (leaves, places); `sizes` is by leaf, `order` and `firsts` by place in key order."""

    keys: I64
    values: I64
    sizes: I32
    order: I32
    firsts: I64
    meta: I64


USED, LIVE = 0, 1
"""Places in `meta`: leaves in use, rows."""


def empty_leaves(leaves: int, places: int) -> Leaves:
    """An index without rows: leaves, and places in each."""
    return Leaves(
        np.empty((leaves, places), np.int64),
        np.empty((leaves, places), np.int64),
        np.zeros(leaves, np.int32),
        np.arange(leaves, dtype=np.int32),
        np.empty(leaves, np.int64),
        np.zeros(2, np.int64),
    )


@kernel
def _last_leaf_from(ix: Leaves, key: int, strictly: bool) -> int:
    """The place of the last leaf whose first key is <= key, or < key if `strictly`; 0 if there is none."""
    low, high = 0, ix.meta[USED]
    while low < high:
        middle = (low + high) >> 1
        first = ix.firsts[middle]
        if first < key or (first == key and not strictly):
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@kernel
def _rows_below(ix: Leaves, leaf: int, key: int, also_equal: bool) -> int:
    """How many rows of the leaf are < key, or <= key if `also_equal`."""
    low, high = 0, int(ix.sizes[leaf])
    while low < high:
        middle = (low + high) >> 1
        found = ix.keys[leaf, middle]
        if found < key or (found == key and also_equal):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def open_leaf(ix: Leaves, place: int) -> int:
    """A free leaf, now empty and at this place of the order; a free leaf must exist."""
    used = ix.meta[USED]
    leaf: int = ix.order[used]
    for at in range(used, place, -1):
        ix.order[at] = ix.order[at - 1]
        ix.firsts[at] = ix.firsts[at - 1]
    ix.order[place] = leaf
    ix.sizes[leaf] = 0
    ix.meta[USED] += 1
    return leaf


@kernel
def _split(ix: Leaves, place: int) -> None:
    leaf = ix.order[place]
    right = open_leaf(ix, place + 1)
    size = np.int64(ix.sizes[leaf])
    half = size >> 1
    for at in range(half, size):
        ix.keys[right, at - half] = ix.keys[leaf, at]
        ix.values[right, at - half] = ix.values[leaf, at]
    ix.sizes[leaf] = half
    ix.sizes[right] = size - half
    ix.firsts[place + 1] = ix.keys[right, 0]


@kernel
def _merge_rows(ix: Leaves, place: int, keys: I64, values: I64, start: int, stop: int) -> None:
    """Merge sorted rows into a leaf with room for them, from the back, new rows after old ones of the same key."""
    leaf = ix.order[place]
    old = np.int64(ix.sizes[leaf]) - 1
    new = stop - 1
    to = old + stop - start
    ix.sizes[leaf] = to + 1
    while new >= start:
        if old >= 0 and ix.keys[leaf, old] > keys[new]:
            ix.keys[leaf, to] = ix.keys[leaf, old]
            ix.values[leaf, to] = ix.values[leaf, old]
            old -= 1
        else:
            ix.keys[leaf, to] = keys[new]
            ix.values[leaf, to] = values[new]
            new -= 1
        to -= 1
    ix.firsts[place] = ix.keys[leaf, 0]


@kernel
def _group_end(ix: Leaves, place: int, keys: I64, start: int) -> int:
    """The end of the rows that belong into the leaf at `place`, looking no further than one leaf can take."""
    stop = min(len(keys), start + int(ix.keys.shape[1]))
    if place + 1 < ix.meta[USED]:
        while stop > start + 1 and keys[stop - 1] >= ix.firsts[place + 1]:
            stop -= 1
    return stop


@kernel
def insert_sorted(ix: Leaves, keys: I64, values: I64, start: int) -> int:
    """Rows done: all, or fewer when there is no free leaf and the caller must provide some."""
    places = int(ix.keys.shape[1])
    row = start
    while row < len(keys):
        if ix.meta[USED] == 0:
            open_leaf(ix, 0)
        place = _last_leaf_from(ix, keys[row], False)
        leaf = ix.order[place]
        stop = _group_end(ix, place, keys, row)
        size = int(ix.sizes[leaf])
        if size == places:
            if ix.meta[USED] == len(ix.order):
                break
            last = place + 1 == ix.meta[USED]
            if keys[row] < ix.keys[leaf, places - 1] or not (last or stop - row >= places >> 1):
                _split(ix, place)
                continue
            open_leaf(ix, place + 1)
            place += 1
            size = 0
        stop = min(stop, row + places - size)
        _merge_rows(ix, place, keys, values, row, stop)
        row = stop
    ix.meta[LIVE] += row - start
    return row


@kernel
def lower_bound(ix: Leaves, key: int) -> int:
    """The position of the first row >= key, or the place after the last leaf."""
    if ix.meta[USED] == 0:
        return 0
    place = _last_leaf_from(ix, key, True)
    leaf = ix.order[place]
    below = _rows_below(ix, leaf, key, False)
    if below == ix.sizes[leaf]:
        place += 1
        below = 0
    return place * int(ix.keys.shape[1]) + below


@kernel
def rows_until(ix: Leaves, key: int) -> int:
    """How many rows are <= key."""
    count = 0
    for place in range(ix.meta[USED]):
        leaf = ix.order[place]
        size = int(ix.sizes[leaf])
        if ix.keys[leaf, size - 1] > key:
            return count + _rows_below(ix, leaf, key, True)
        count += size
    return count


@kernel
def copy_rows(ix: Leaves, keys: I64, values: I64) -> None:
    """Fill both outputs with the first rows in key order, as many as they have room for."""
    at = place = 0
    while at < len(keys):
        leaf = ix.order[place]
        step = min(ix.sizes[leaf], len(keys) - at)
        for ahead in range(step):
            keys[at + ahead] = ix.keys[leaf, ahead]
            values[at + ahead] = ix.values[leaf, ahead]
        at += step
        place += 1


@kernel
def position_from_end(ix: Leaves, n_rows: int) -> int:
    """The position of the n-th row from the end, which exists."""
    place = ix.meta[USED]
    left = n_rows
    while left > 0:
        place -= 1
        left -= ix.sizes[ix.order[place]]
    position: int = place * ix.keys.shape[1] - left
    return position


@kernel
def _close_leaves(ix: Leaves, start: int, stop: int) -> None:
    """Free the leaves at places start to stop - 1."""
    width = stop - start
    used = ix.meta[USED]
    freed = ix.order[start:stop].copy()
    for at in range(stop, used):
        ix.order[at - width] = ix.order[at]
        ix.firsts[at - width] = ix.firsts[at]
    ix.order[used - width : used] = freed
    ix.meta[USED] -= width


@kernel
def _cut(ix: Leaves, place: int, start: int, stop: int) -> None:
    """Take the rows start to stop - 1 out of the leaf at `place`."""
    leaf = ix.order[place]
    size = np.int64(ix.sizes[leaf])
    for at in range(stop, size):
        ix.keys[leaf, at - stop + start] = ix.keys[leaf, at]
        ix.values[leaf, at - stop + start] = ix.values[leaf, at]
    ix.sizes[leaf] = size - stop + start
    if start == 0 and stop < size:
        ix.firsts[place] = ix.keys[leaf, 0]
    ix.meta[LIVE] -= stop - start


@kernel
def _join_right(ix: Leaves, place: int) -> None:
    """Move the rows of the next leaf into this one and free it."""
    leaf, right = ix.order[place], ix.order[place + 1]
    size = np.int64(ix.sizes[leaf])
    for at in range(ix.sizes[right]):
        ix.keys[leaf, size + at] = ix.keys[right, at]
        ix.values[leaf, size + at] = ix.values[right, at]
    ix.sizes[leaf] += ix.sizes[right]
    _close_leaves(ix, place + 1, place + 2)


@kernel
def _settle(ix: Leaves, place: int) -> None:
    """Free the leaf if it is empty; join it with a neighbour if it is less than a quarter full and both are light."""
    places = ix.keys.shape[1]
    if place >= ix.meta[USED]:
        return
    size = ix.sizes[ix.order[place]]
    if size == 0:
        _close_leaves(ix, place, place + 1)
    elif size * 4 < places:
        if place + 1 < ix.meta[USED] and size + ix.sizes[ix.order[place + 1]] <= places * 3 // 4:
            _join_right(ix, place)
        elif place > 0 and size + ix.sizes[ix.order[place - 1]] <= places * 3 // 4:
            _join_right(ix, place - 1)


@kernel
def remove_rows(ix: Leaves, position: int, n_rows: int) -> None:
    """Take out `n_rows` rows from `position` on; they exist."""
    places = ix.keys.shape[1]
    place, inside = position // places, position % places
    left = n_rows
    if inside > 0:
        taken = min(left, ix.sizes[ix.order[place]] - inside)
        _cut(ix, place, inside, inside + taken)
        left -= taken
        place += 1
    whole = place
    while left > 0 and left >= ix.sizes[ix.order[whole]]:
        left -= ix.sizes[ix.order[whole]]
        ix.meta[LIVE] -= ix.sizes[ix.order[whole]]
        whole += 1
    if whole > place:
        _close_leaves(ix, place, whole)
    if left > 0:
        _cut(ix, place, 0, left)
    _settle(ix, place)
    if place > 0:
        _settle(ix, place - 1)


@register_warmup
def _warm() -> None:
    some = np.arange(4, dtype=np.int64)
    leaves = empty_leaves(2, 4)
    insert_sorted(leaves, some, some, 0)
    copy_rows(leaves, some.copy(), some.copy())
