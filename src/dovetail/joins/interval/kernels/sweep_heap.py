"""A binary min-heap of (end point, reference) in two arrays, the earliest end on top."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.inline import inlined


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
