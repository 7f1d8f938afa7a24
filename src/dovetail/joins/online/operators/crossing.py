"""Blocks of both sides joined, some of one side in memory against each one of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dovetail.joins.online.blocks import Rule
from dovetail.joins.online.kernels.match import Visits
from dovetail.joins.online.operators.base import NOWHERE, OnlineOperator


class CrossingOperator(OnlineOperator):
    """A join that crosses the blocks of a bucket."""

    def cross(
        self,
        left: Sequence[int],
        right: Sequence[int],
        rule: Rule,
        visits: tuple[Visits, Visits] = (NOWHERE, NOWHERE),
    ) -> Iterator[pa.RecordBatch]:
        """New pairs of these blocks: as many blocks of one side as memory takes, against each one of the other."""
        numbers = (list(left), list(right))
        if not numbers[0] or not numbers[1]:
            return
        sizes = [sum(map(self.blocks[side].bytes_of, numbers[side])) for side in (0, 1)]
        outer = 0 if sizes[0] <= sizes[1] else 1
        at = 0
        while at < len(numbers[outer]):
            batch = self._outer_batch(outer, numbers[outer][at:])
            at += len(batch)
            held = self.hold_blocks(outer, batch)
            yield from self._against(outer, batch, numbers[1 - outer], rule, visits)
            self.let_blocks_go(held)

    def _outer_batch(self, side: int, numbers: list[int]) -> list[int]:
        room = (self.block_room - 2 * self.blocks[1 - side].largest) * 3 // 4
        if not self._finished:  # rows in memory are worth more than a long batch
            room = min(room, self.spec.sizes.outer_blocks * self.blocks[side].largest)
        n = 0
        while n < len(numbers) and (room := room - self.blocks[side].bytes_of(numbers[n])) > 0:
            n += 1
        return numbers[: max(1, n)]

    def _against(
        self, side: int, batch: list[int], others: list[int], rule: Rule, visits: tuple[Visits, Visits]
    ) -> Iterator[pa.RecordBatch]:
        outer, store = self.blocks[side].load(batch, rule), self.blocks[1 - side]
        done = rule == "ticks" and max(batch) < self.blocks[side].drained_blocks
        for number in others:
            if store.meets(number, outer) and not (done and number < store.drained_blocks):
                size = self.hold_blocks(1 - side, [number])
                inner = store.load([number], rule)
                pair = (outer, inner) if side == 0 else (inner, outer)
                yield from self.joined(*pair, self.phase, visits)
                self.let_blocks_go(size)

    def disk_buckets(self) -> list[int]:
        """Buckets with blocks on both sides."""
        held = [set(store.column("bucket")[store.column("dead") == 0].tolist()) for store in self.blocks]
        return sorted(held[0] & held[1])
