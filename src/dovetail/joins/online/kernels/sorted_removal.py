"""The kernels that take rows out of the sorted index."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.compile import kernel
from dovetail.joins.online.kernels.sorted_leaves import LIVE, USED, Leaves


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
