"""Gives owed results without emptying memory: rows in memory are joined with blocks as pieces of their input.

Rows up to the last drain have met each other. So each owed combination has a row that is newer: the new rows of each
input are joined with all rows of the others, and those of earlier inputs are left out that are new themselves.
Reference: docs/algorithms/online.md, 7.5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.rows.named_rows import SHIFT
from dovetail.joins.online.blocks import Part, Rule
from dovetail.joins.online.kernels.match import NEVER
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations, Rules, Source

_EARLY, _NEW = -2, -1
"""Pieces of rows in memory: those that had come before the last drain, and the others."""
_OFFSET = 1 << 30  # of page numbers, above those of blocks
_SHARE = 8  # of the budget that loaded blocks have while rows stay in memory
_ROUNDS = 4  # reads of the others that new rows may take; beyond, memory is emptied and holds more blocks


class WithMemory:
    """The blocks of one input, and its rows in memory as two more pieces; no row may move meanwhile."""

    def __init__(self, join: OnlineOperator, r: int) -> None:
        self.blocks, self.beside = join.blocks[r], join.blocks[r].beside
        self._join, self._r = join, r
        slots = join.pages[r].slots()
        early = join.rows.ats[slots] <= self.blocks.drained
        self._slots: dict[int, I32] = {_EARLY: slots[early], _NEW: slots[~early]}
        living, held = self.blocks.living(), [number for number, some in self._slots.items() if len(some)]
        met = self.blocks.column("newest")[living] <= self.blocks.drained
        self.early = [*living[met].tolist(), *(number for number in held if number == _EARLY)]
        self.new = [*living[~met].tolist(), *(number for number in held if number == _NEW)]

    def bytes_of(self, number: int) -> int:
        """Memory that loading one piece takes; the columns of rows in memory are there."""
        return self.blocks.bytes_of(number) if number >= 0 else self.beside * len(self._slots[number])

    def load(self, number: int, rule: Rule = "ticks") -> Part:
        """One piece; the caller has reserved its `bytes_of`."""
        if number >= 0:
            return self.blocks.load(number, rule)
        join, r, slots = self._join, self._r, self._slots[number]
        rows, pages, n = join.rows, join.pages[r], len(slots)
        refs: I64 = rows.ref[slots] + (_OFFSET << SHIFT)
        used = {page: pages.page(page - _OFFSET) for page in np.unique(refs >> SHIFT).tolist()}
        ats = np.zeros(n, np.int64) if number == _EARLY else rows.ats[slots]
        keys, dts, block = rows.keys[: join.keys.widths[r], slots], np.full(n, NEVER), np.full(n, -1)
        return Part(keys, ats, dts, block, refs, used, join.schemas[r])


def makes_room(join: OnlineOperator) -> int:
    """Bytes for blocks beside the rows in memory, some of which may leave for them; 0 if memory must be emptied."""
    stores = [WithMemory(join, r) for r in range(len(join.names))]
    new = sum(store.bytes_of(number) for store in stores for number in store.new)
    held = sum(store.beside * int(n) for store, n in zip(stores, join.rows.held, strict=True))
    largest = sum(store.largest for store in join.blocks)
    room = max(8 * largest, min(join.fitted.limit // _SHARE, 2 * new))
    needed = 2 * room + 4 * largest + held
    if not join.rows.held.any() or 4 * needed > 3 * join.buffer.room or new > _ROUNDS * room:
        return 0
    while join.budget.available < needed:
        if not join.squeeze_or_flush():
            return 0
    return room


def settle_new(combinations: Combinations, done: Rules, room: int) -> Iterator[pa.RecordBatch]:
    """Every owed combination; `room` is what `makes_room` found."""
    join = combinations.join
    stores = [WithMemory(join, r) for r in range(len(join.names))]
    for r, own in enumerate(stores):
        sources = [
            Source(store, own.new if q == r else store.early if q < r else [*store.early, *store.new])
            for q, store in enumerate(stores)
        ]
        if own.new:
            yield from combinations.join_sources(sources, "ticks", done, (), room)
