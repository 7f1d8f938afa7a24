"""Ranges cut into cells, so that all ranges which can have a value are in one.

Reference: docs/algorithms/semistream.md, 6.19.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import kernel, register_warmup

LEAST = 8  # ranges that begin in a cell, at least


@kernel
def _cut(
    group: I64, start: I64, end: I64, least: int, rows: I64, cells: I64, heads: I64, open_: I64
) -> tuple[int, int]:
    """The number of rows and cells, which are written unless `rows` is empty."""
    n, given, made, held, row = len(group), 0, 0, 0, 0
    writes = len(rows) > 0
    while row < n:
        carried = 0
        if row > 0 and group[row] == group[row - 1]:  # ranges of the cell before that reach into this one
            for at in range(held):
                if end[open_[at]] >= start[row]:
                    open_[carried] = open_[at]
                    carried += 1
        held = carried
        first, wanted = row, max(least, carried)
        while row < n and group[row] == group[first] and (row - first < wanted or start[row] == start[row - 1]):
            open_[held] = row
            held += 1
            row += 1
        if writes:
            for at in range(held):
                rows[given + at], cells[given + at] = open_[at], made
            heads[made] = first
        given += held
        made += 1
    return given, made


@kernel
def _first_overlap(group: I64, start: I64, end: I64, touching: bool) -> tuple[int, int]:
    """The first range that begins before one above it has ended, or when it ends; and that one. -1, -1 for none."""
    last = 0
    for row in range(1, len(group)):
        if group[row] != group[row - 1]:
            last = row
            continue
        if start[row] < end[last] or (touching and start[row] == end[last]):
            return row, last
        if end[row] > end[last]:
            last = row
    return -1, -1


def cut_cells(group: I64, start: I64, end: I64, least: int = LEAST) -> tuple[I64, I64, I64]:
    """Rows in the order of cells, the cell of each, and the row with which each cell begins.

    Rows are sorted by group and start; cells hold rows of one group. A cell begins with the start of a row, and ends
    before that of the next cell. It holds the rows that begin there, at least `least` and as many as reach into it from
    the cell before unless the group ends, and these too: so there are not more than four times as many rows as before,
    and seldom twice as many.
    """
    some, spare = np.empty(0, np.int64), np.empty(len(group), np.int64)
    given, made = _cut(group, start, end, least, some, some, some, spare)
    rows, cells, heads = np.empty(given, np.int64), np.empty(given, np.int64), np.empty(made, np.int64)
    _cut(group, start, end, least, rows, cells, heads, spare)
    return rows, cells, heads


def first_overlap(group: I64, start: I64, end: I64, touching: bool = False) -> tuple[int, int] | None:
    """Two rows of one group that overlap, sorted as for `cut_cells`; ranges that only touch do if `touching`."""
    found = _first_overlap(group, start, end, touching)
    return None if found[0] < 0 else found


@register_warmup
def _warm() -> None:
    some = np.arange(2, dtype=np.int64)
    cut_cells(some, some, some)
    first_overlap(some, some, some)
    first_overlap(some, some, some, True)
