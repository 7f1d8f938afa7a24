"""What an online join holds: rows in memory, blocks on disk, and room made for either inside the budget."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.layout import Layout
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.answers import Answers, with_phase
from dovetail.joins.online.blocks import BlockStore, Leaving
from dovetail.joins.online.joining import JoiningOperator
from dovetail.joins.online.kernels.rows import (
    CLOCK,
    DROPPED,
    GONE,
    H_BUCKET,
    H_KIND,
    H_ROWS,
    H_SIDE,
    H_TICK,
    HEADS,
    LEFT,
    Rows,
    empty_outcome,
    empty_rows,
    release,
)
from dovetail.joins.online.keys import SIDES, RowKeys
from dovetail.joins.online.row_pages import RowPages, mean_row_bytes
from dovetail.joins.online.sizes import PAIR_BYTES, Fitted

if TYPE_CHECKING:
    from dovetail.joins.online.operators.spec import OnlineJoin


class HoldingOperator(JoiningOperator[BlockStore]):
    """An online join's memory and disk. Rows leave memory by the flush policy of the algorithm, and only so."""

    rows: Rows
    fitted: Fitted

    def __init__(
        self,
        spec: OnlineJoin,
        budget: MemoryBudget,
        schemas: Mapping[str, pa.Schema],
        layout: Layout,
        spill_dir: Path | None,
    ) -> None:
        super().__init__(SIDES, schemas, with_phase(layout, spec.with_phase), budget)
        self.spec, self._layout = spec, layout
        self.keys = RowKeys(spec.predicate, schemas, spec.hash_bits)
        self.blocks = [self._blocks_of(side, spill_dir) for side in (0, 1)]

    def begin(self, seen: Mapping[int, int]) -> None:
        """Split the budget, once, for rows as wide as those seen, by side; nothing is in memory before."""
        if not self._begun:
            self.allocate(self.spec.fit(self._limit, self.schemas, seen))
            self._begun = True

    def allocate(self, fitted: Fitted) -> None:
        """Reserve and make everything that the split gives room for."""
        self.fitted, needs = fitted, self.spec.footprint()
        self._index.grow(needs.fixed + needs.slot * fitted.slots + needs.bucket * fitted.partitions)
        self.rows = empty_rows(fitted.slots, fitted.rows, fitted.row_bytes, self.keys.coded)
        self.out = empty_outcome(fitted.pairs, fitted.slots, self.flushes_listed())
        self.pages = [self._pages_of(side) for side in (0, 1)]
        room = self.own(self.budget.reserve("answers"))
        room.grow(fitted.answer_bytes)
        self.answers = Answers(self._layout, self.schema, self.keys, room, sum(fitted.widths), self.progress)
        self._pairs = self.own(self.budget.reserve("pairs"))
        self._pairs.grow(PAIR_BYTES * fitted.pairs)

    def _pages_of(self, side: int) -> RowPages:
        reservation = self.budget.reserve(f"rows of {SIDES[side]}")
        return self.own(RowPages(self.schemas[side], reservation, self.rows.ref, self.fitted.chunk_bytes))

    def _blocks_of(self, side: int, spill_dir: Path | None) -> BlockStore:
        name = f"online-{SIDES[side]}"
        return self.own(BlockStore(side, self.schemas[side], self.keys, self.budget, spill_dir, name))

    def flushes_listed(self) -> int:
        """How many flushes a kernel may list before they are written."""
        return 24

    @property
    def clock(self) -> int:
        """The last tick."""
        return int(self.rows.meta[CLOCK])

    def tick(self) -> int:
        """The next tick."""
        self.rows.meta[CLOCK] += 1
        return self.clock

    def in_memory(self, side: int) -> int:
        """Rows of one side in memory."""
        return int(self.rows.meta[LEFT + side])

    def rows_held(self) -> int:
        """Rows of both sides in memory."""
        return self.in_memory(0) + self.in_memory(1)

    def write_gone(self) -> None:
        """Write the rows that left, and make their slots free."""
        heads, gone = self.out.heads[: self.out.n[HEADS]].copy(), self.out.gone[: self.out.n[GONE]].copy()
        self.out.n[GONE] = self.out.n[HEADS] = 0
        self.write_flushes(heads, gone)

    def write_flushes(self, heads: I64, gone: I32) -> None:
        """Write rows that left in these flushes, one after the other; dropped ones are only forgotten."""
        flush = np.repeat(np.arange(len(heads)), heads[:, H_ROWS])
        for side in (0, 1):
            mine = heads[flush, H_SIDE] == side
            if mine.any():
                slots = gone[mine]
                kept = heads[flush[mine], H_KIND] != DROPPED
                self._write_side(side, heads, slots[kept], flush[mine][kept])
                self.pages[side].forget(self.rows.ref[slots])
                release(self.rows, slots)

    def _write_side(self, side: int, heads: I64, slots: I32, flush: I64) -> None:
        """Rows sorted by key within each flush, gathered for several flushes at a time but never for too many rows."""
        self.metrics.add("rows_flushed", len(slots), SIDES[side])
        order = np.lexsort((self.rows.key[slots], flush))
        slots, flush = slots[order], flush[order]
        window = max(self.fitted.block_rows, self.fitted.chunk_bytes // self.fitted.widths[side])
        for start in range(0, len(slots), window):
            rows, of = self.leaving(side, slots[start : start + window]), flush[start : start + window]
            edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(of)]
            for first, last in pairwise(edges):
                head = heads[of[first]].tolist()
                self.write(side, head[H_BUCKET], head[H_KIND], head[H_TICK], rows.slice(first, last - first))

    def leaving(self, side: int, slots: I32) -> Leaving:
        """The rows of these slots."""
        r = self.rows
        return Leaving(self.pages[side].gather(r.ref[slots], distinct=True), r.key[slots], r.code[slots], r.ats[slots])

    def write(self, side: int, bucket: int, kind: int, tick: int, rows: Leaving) -> None:
        """Rows that left go to disk; they are sorted by key."""
        self.write_blocks(side, rows, tick, bucket)

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        """Sorted rows go to disk in blocks, fewer in each where rows are wide: two blocks must fit in memory."""
        most = self._limit // (8 * max(1, mean_row_bytes(rows.batch)))
        self.blocks[side].append_cut(rows, max(1, min(self.fitted.block_rows, most)), tick, bucket, group)

    def empty_memory(self) -> None:
        """Every row leaves memory, and the index with them: all the budget is for blocks."""
        self.flush_all()
        clock = self.clock
        self.rows = empty_rows(0, 0, 0, coded=False)
        self.rows.meta[CLOCK] = clock
        self.out = empty_outcome(0, 0, 0)
        self.drop_index()
        self._index.close()

    def forget_memory(self) -> None:
        """What is in memory is owed nothing any more: all the budget is for blocks."""
        for pages in self.pages:
            pages.close()
        self.rows.meta[LEFT] = self.rows.meta[LEFT + 1] = 0
        self.empty_memory()

    def drop_index(self) -> None:
        """Forget arrays that only rows in memory need."""

    @property
    def can_react(self) -> bool:
        """Whether blocks of both sides fit beside the index; else all work on disk waits for the end of input."""
        return self._finished or self.block_room > 3 * (self.blocks[0].largest + self.blocks[1].largest) + 1024
