"""Known faults of online joins that can be put into any of them: in the clock, in the clean-up, in nested loops.

Reference: docs/algorithms/online.md, 5.1 (T1 to T5, T9, T12).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.joins.online.blocks import Leaving
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import Arrange, BlockLoop, Odometer
from dovetail.joins.online.sizes import Fitted


def faulty(fault: type[Any]) -> type[OnlineOperator]:
    """The running join with a faulty part: its own class, or that of its keys, disk, combinations or odometer."""
    if issubclass(fault, OnlineOperator):
        return fault

    class Faulty(OnlineOperator):
        def allocate(self, fitted: Fitted) -> None:
            super().allocate(fitted)
            if issubclass(fault, Odometer):
                assert isinstance(self.disk, BlockLoop)
                self.disk.odometer, self.disk._settles = fault([0] * len(self.names)), False
                return
            parts = [self.keys, self.disk, getattr(self.disk, "combinations", None)]
            (part,) = (part for part in parts if part is not None and issubclass(fault, type(part)))
            part.__class__ = fault  # type: ignore[assignment]  # one of the parts

    return Faulty


class CoarseClock(OnlineOperator):
    """T1: four events share a tick."""

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        super().write_blocks(side, rows._replace(ats=rows.ats // 4), tick // 4, bucket, group)


class FlushWithoutTick(OnlineOperator):
    """T1: a flush is stamped with the tick of the last arrival."""

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        super().write_blocks(side, rows, tick - 1, bucket, group)


class TickAtTheDoor(OnlineOperator):
    """T2: the arrival tick is taken when rows enter the input buffer, not when they probe."""

    def allocate(self, fitted: Fitted) -> None:
        super().allocate(fitted)
        self.doors: list[int] = []

    def receive(self, *arguments: Any) -> Iterator[pa.RecordBatch]:
        self.doors.append(self.clock)
        yield from super().receive(*arguments)

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        doors = np.array(self.doors)
        entered = doors[np.searchsorted(doors, rows.ats, side="left") - 1]
        super().write_blocks(side, rows._replace(ats=entered), tick, bucket, group)


class TickAfterRoom(OnlineOperator):
    """T2b: the arrival tick is taken after the flush that made room for the row, though it probed before."""

    def allocate(self, fitted: Fitted) -> None:
        super().allocate(fitted)
        self.flushes: set[int] = set()

    def write_blocks(self, side: int, rows: Leaving, tick: int, bucket: int = 0, group: int = 0) -> None:
        self.flushes.add(tick)
        late = [2 * self._after(int(ats)) for ats in rows.ats]
        super().write_blocks(side, rows._replace(ats=np.array(late, np.int64)), 2 * tick, bucket, group)

    def _after(self, ats: int) -> float:
        last = ats
        while last + 1 in self.flushes:
            last += 1
        return ats if last == ats else last + 0.5


class MemoryForgotten(OnlineOperator):
    """T3: rows still in memory take no part in the clean-up."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.begin({})
        self.finished = True
        yield from self.disk.settle_all()


class GreedyOdometer(Odometer):
    """T5: the outer batch under way grows when there is more."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        found = super().ready(sizes, blocks, arrange)
        if found:
            self.outer_blocks = sizes[self.outer] - self.joined[self.outer]
        return found


class MovingInner(Odometer):
    """T4: blocks appended to inner inputs while the loop runs count as joined."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        if self.started and self.joined[self.outer] < sizes[self.outer]:
            self.joined = [self.joined[r] if r == self.outer else size for r, size in enumerate(sizes)]
        return super().ready(sizes, blocks, arrange)


class ForgetfulOdometer(Odometer):
    """T12: at a role change all inputs count as joined as far as they go now."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        outer = self.outer
        if self.started and not self.in_flight and self.joined[outer] == sizes[outer]:
            behind = [r for r, size in enumerate(sizes) if self.joined[r] < size]
            if behind:
                self.joined = [self.joined[r] if r == behind[0] else size for r, size in enumerate(sizes)]
        return super().ready(sizes, blocks, arrange)


class StubbornOdometer(Odometer):
    """T9: no role change when the outer input has nothing new on entry."""

    def ready(self, sizes: Sequence[int], blocks: Any, arrange: Arrange) -> bool:
        if self.started and not self.in_flight and self.joined[self.outer] == sizes[self.outer]:
            return False
        return super().ready(sizes, blocks, arrange)


class ShortOdometer(Odometer):
    """E5: the last inner block is left out."""

    def advance(self, digit: int) -> int:
        if self.current[digit] + 2 == self.joined[self.digits[digit]]:
            self.current[digit] += 1
        return super().advance(digit)
