"""Joins whose flushed blocks meet in a nested loop with changing roles: the disk phases of DINER and oldest-first."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa

from dovetail.engine.operator import Until
from dovetail.joins.online.nested_loop import NestedLoop
from dovetail.joins.online.operators.base import OnlineOperator


def _never() -> bool:
    return False


class BlockLoopOperator(OnlineOperator):
    """Blocks of one disk partition a side; a pair is new if its rows were never in memory together.

    The unit of work is one inner block against the outer batch, after which `until` is asked. Where room for the
    batch is missing, rows are flushed for it, and the new blocks are met later.
    """

    loop: NestedLoop

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """The nested loop, until all blocks have met or `until()`."""
        self.loop.begin(self._n_blocks())
        while (batch := self.loop.next_batch(self._n_blocks(), self.outer_limit)) is not None:
            stop = False
            if not self.loop.batch_done:
                stop = yield from self._run(batch, until)
            if self.loop.batch_done:
                self.loop.close_batch()
            if stop:
                return

    def _n_blocks(self) -> tuple[int, int]:
        return len(self.blocks[0]), len(self.blocks[1])

    def outer_limit(self, side: int, first: int) -> int:
        """How many outer blocks from `first` on a batch may have: as printed, or in clean-up all that memory takes."""
        store, inner = self.blocks[side], self.blocks[1 - side]
        room = (self.block_room - 2 * inner.largest) * 3 // 4
        most = len(store) - first
        if not self._finished:
            most, room = min(most, self.spec.sizes.outer_blocks), room // 2
        n = 0
        while n < most and (room := room - store.bytes_of(first + n)) > 0:
            n += 1
        return n

    def _run(self, batch: range, until: Until) -> Generator[pa.RecordBatch, None, bool]:
        """Inner blocks against one outer batch, until all have met it or `until()`, which is what it returns."""
        loop, inner_side = self.loop, 1 - self.loop.outer
        held = self.hold_blocks(loop.outer, batch)
        outer = self.blocks[loop.outer].load(batch)
        stop = False
        while not loop.batch_done and not stop:
            if not self.blocks[inner_side].meets(loop.inner, outer):
                loop.inner += 1
                continue
            size = self.hold_blocks(inner_side, [loop.inner])
            inner = self.blocks[inner_side].load([loop.inner])
            pair = (outer, inner) if loop.outer == 0 else (inner, outer)
            yield from self.joined(*pair, self.phase)
            self.let_blocks_go(size)
            loop.inner += 1
            stop = until()
        self.let_blocks_go(held)
        return stop

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every block meets every one of the other side."""
        yield from self.react(_never)

    def renumber(self) -> None:
        """All blocks that are left have met."""
        self.loop = NestedLoop(True, 0, len(self.blocks[0]), len(self.blocks[1]))
