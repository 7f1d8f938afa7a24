"""Loaded rows of two inputs joined: sorted, matched by range, and blocks of both crossed inside the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.online.blocks import Part, Rule, united
from dovetail.joins.online.kernels.match import Stretch, Visits, match
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.row_pages import NamedRows

NOWHERE = Visits(int64s(np.empty(0, np.int64)), int64s(np.empty(0, np.int64)))
_FIRST, _LAST = -(2**63), 2**63 - 1


class Sorted(NamedTuple):
    """Rows of one of two inputs, ready to be matched; `refs` name each of `rows`. `reach` is the first and last key
    that any of them can match."""

    stretch: Stretch
    refs: I64
    reach: tuple[int, int]
    rows: NamedRows

    @classmethod
    def of(cls, part: Part, keys: JoinKeys, side: int) -> Sorted:
        """Loaded rows in the order in which they are matched: by key, or where there are two by code, then key."""
        code, key = part.keys[0], part.keys[-1]
        order = np.lexsort((key, code)) if keys.coded else np.argsort(key, kind="stable")
        key, code, ats, dts = (int64s(column[order]) for column in (key, code, part.ats, part.dts))
        low, high = keys.ranges(side, key)
        stretch = Stretch(key, code, int64s(low), int64s(high), ats, dts)
        return cls(stretch, part.refs[order], _reach(low, high), part.rows)


def _reach(low: I64, high: I64) -> tuple[int, int]:
    """The smallest and the largest key of these ranges, those apart that are empty."""
    some = low <= high
    return (int(low[some].min()), int(high[some].max())) if some.any() else (_LAST, _FIRST)


class Pairs:
    """The new pairs of a join of two inputs, of rows that are loaded, or of blocks."""

    def __init__(self, join: OnlineOperator) -> None:
        self.join, self.blocks = join, join.blocks

    def load(self, side: int, numbers: Sequence[int], rule: Rule = "ticks") -> Sorted:
        """Blocks of one side; the caller has reserved their `bytes_of`."""
        part = united([self.blocks[side].load(number, rule) for number in numbers])
        return Sorted.of(part, self.join.keys, side)

    def of(
        self, left: Sorted, right: Sorted, phase: str, visits: tuple[Visits, Visits] = (NOWHERE, NOWHERE)
    ) -> Iterator[pa.RecordBatch]:
        """New pairs of loaded rows; `visits` are those of left's and of right's disk part."""
        join = self.join
        n = max(8, join.fitted.combinations // 2)  # two numbers each, beside the slots of the arriving phase
        cursor = np.array([0, 0, -1, 0], np.int64)
        rows, mates = np.empty(n, np.int64), np.empty(n, np.int64)
        while cursor[0] < len(right.refs):
            found = match(left.stretch, right.stretch, join.keys.coded, *visits, cursor, rows, mates)
            refs = [left.refs[rows[:found]], right.refs[mates[:found]]]
            yield from join.answers.batches([left.rows, right.rows], refs, phase)
        join.compared(int(cursor[3]))

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
            held = self.join.hold_blocks(outer, batch)
            yield from self._against(outer, batch, numbers[1 - outer], rule, visits)
            self.join.let_blocks_go(held)

    def _outer_batch(self, side: int, numbers: list[int]) -> list[int]:
        join, store = self.join, self.blocks[side]
        room = (join.block_room - 2 * self.blocks[1 - side].largest) * 3 // 4
        if not join.finished:  # rows in memory are worth more than a long batch
            room = min(room, join.spec.sizes.outer_blocks * store.largest)
        n = 0
        while n < len(numbers) and (room := room - store.bytes_of(numbers[n])) > 0:
            n += 1
        return numbers[: max(1, n)]

    def _against(
        self, side: int, batch: list[int], others: list[int], rule: Rule, visits: tuple[Visits, Visits]
    ) -> Iterator[pa.RecordBatch]:
        outer, store = self.load(side, batch, rule), self.blocks[1 - side]
        done = rule == "ticks" and max(batch) < self.blocks[side].drained_blocks
        for number in others:
            if store.meets(number, outer.reach) and not (done and number < store.drained_blocks):
                size = self.join.hold_blocks(1 - side, [number])
                inner = self.load(1 - side, [number], rule)
                pair = (outer, inner) if side == 0 else (inner, outer)
                yield from self.of(*pair, self.join.phase, visits)
                self.join.let_blocks_go(size)

    def buckets(self) -> list[int]:
        """Buckets with blocks on both sides."""
        held = [set(store.column("bucket")[store.column("dead") == 0].tolist()) for store in self.blocks]
        return sorted(held[0] & held[1])

    def of_bucket(
        self, bucket: int, rule: Rule, visits: tuple[Visits, Visits] = (NOWHERE, NOWHERE)
    ) -> Iterator[pa.RecordBatch]:
        """New pairs of all blocks of a bucket."""
        left, right = (store.of_bucket(bucket).tolist() for store in self.blocks)
        return self.cross(left, right, rule, visits)
