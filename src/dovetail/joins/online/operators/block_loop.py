"""Blocks of all inputs joined in nested loops that stop after each block and change roles: the disk phases of DINER,
MINER and oldest-first.

`Odometer` is where the loops stand: a box of block combinations that are done, and a batch under way. Blocks 0 to
joined[r] - 1 of all inputs have met each other. A batch joins the next blocks of the outer input with all of these of
the others, counted like the digits of an odometer. Sizes are given each time, as blocks may be added at any moment;
`joined` and the batch change only as written here.
Reference: Bornea 2010, algorithm 4 and 4.2; docs/algorithms/online.md, 3.5, 3.6 and 4.3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from dovetail.engine.operator import Until
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.pairs import Pairs, Sorted
from dovetail.joins.online.operators.parts import Disk

Arrange = Callable[[int], list[int]]
"""The other inputs for an outer one, each after its neighbour on the way to it; the last turns fastest."""
L = TypeVar("L")


@dataclass(slots=True)
class Odometer:
    """Positions of the reactive phase."""

    joined: list[int]
    started: bool = False
    in_flight: bool = False
    outer: int = 0
    outer_blocks: int = 0
    digits: list[int] = field(default_factory=list)
    current: list[int] = field(default_factory=list)

    def ready(self, sizes: Sequence[int], blocks: Callable[[int], int], arrange: Arrange) -> bool:
        """Whether a batch is under way now; `blocks` says how many an outer input can have in memory."""
        if not self.started:
            self.started = True
            self.outer = min(range(len(sizes)), key=lambda r: sizes[r])
            self.joined = [0 if r == self.outer else size for r, size in enumerate(sizes)]
        while not self.in_flight:
            # Asked before a batch: otherwise the loop would never end when nothing new is on the outer side.
            if self.joined[self.outer] == sizes[self.outer]:
                behind = [r for r, size in enumerate(sizes) if self.joined[r] < size]
                if not behind:
                    return False
                self.outer = behind[0]
            self._begin(min(sizes[self.outer] - self.joined[self.outer], blocks(self.outer)), arrange)
        return True

    def _begin(self, blocks: int, arrange: Arrange) -> None:
        self.outer_blocks, self.digits = blocks, arrange(self.outer)
        self.current, self.in_flight = [0] * len(self.digits), True
        if any(self.joined[r] == 0 for r in self.digits):
            self._complete()

    def _complete(self) -> None:
        self.joined[self.outer] += self.outer_blocks
        self.in_flight = False

    @property
    def batch(self) -> range:
        """The outer blocks under way."""
        first = self.joined[self.outer]
        return range(first, first + self.outer_blocks)

    def advance(self, digit: int) -> int:
        """Turn one digit, those after it to 0; gives the first digit that changed, -1 when the batch is complete."""
        self.current[digit + 1 :] = [0] * (len(self.digits) - digit - 1)
        self.current[digit] += 1
        while self.current[digit] >= self.joined[self.digits[digit]]:
            self.current[digit] = 0
            digit -= 1
            if digit < 0:
                self._complete()
                return -1
            self.current[digit] += 1
        return digit


class Matcher(ABC, Generic[L]):
    """How loaded blocks are joined, input by input: L is what is loaded so far of the outer input and those after."""

    @abstractmethod
    def outer_blocks(self, r: int, first: int) -> int:
        """How many blocks of an outer input, from this one on, may be in memory together; at least one."""

    @abstractmethod
    def path(self, outer: int) -> list[int]:
        """The other inputs, each after its neighbour on the way to the outer one."""

    @abstractmethod
    def first(self, order: Sequence[int], numbers: Sequence[int]) -> L | None:
        """Blocks of the outer input, which is the first in this order of inputs; None if they have no rows."""

    @abstractmethod
    def passes_over(self, level: L, r: int, number: int) -> bool:
        """Whether the directory already tells that a block of the next input matches nothing."""

    @abstractmethod
    def extended(self, level: L, r: int, number: int) -> L | None:
        """What is loaded, with a block of the next input; None if no combination is left."""

    @abstractmethod
    def answers(self, level: L) -> Iterator[pa.RecordBatch]:
        """New combinations of what is loaded of all inputs."""


class PairMatcher(Matcher[tuple[Sorted, ...]]):
    """Blocks of two inputs: sorted, and matched by range."""

    def __init__(self, join: OnlineOperator) -> None:
        self._join, self._pairs, self._outer = join, Pairs(join), 0

    def outer_blocks(self, r: int, first: int) -> int:
        """As printed, or in clean-up all that memory takes."""
        join, store, inner = self._join, self._join.blocks[r], self._join.blocks[1 - r]
        room = (join.block_room - 2 * inner.largest) * 3 // 4
        most = len(store) - first
        if not join.finished:
            most, room = min(most, join.spec.sizes.outer_blocks), room // 2
        n = 0
        while n < most and (room := room - store.bytes_of(first + n)) > 0:
            n += 1
        return max(1, n)

    def path(self, outer: int) -> list[int]:
        """The other input."""
        return [1 - outer]

    def first(self, order: Sequence[int], numbers: Sequence[int]) -> tuple[Sorted, ...]:
        """Blocks of the outer side."""
        self._outer = order[0]
        return (self._pairs.load(self._outer, numbers),)

    def passes_over(self, level: tuple[Sorted, ...], r: int, number: int) -> bool:
        """The directory knows the keys of a block."""
        return not self._join.blocks[r].meets(number, level[0].reach)

    def extended(self, level: tuple[Sorted, ...], r: int, number: int) -> tuple[Sorted, ...]:
        """Both sides."""
        return (level[0], self._pairs.load(r, [number]))

    def answers(self, level: tuple[Sorted, ...]) -> Iterator[pa.RecordBatch]:
        """New pairs."""
        left, right = level if self._outer == 0 else level[::-1]
        return self._pairs.of(left, right, self._join.phase)


def _never() -> bool:
    return False


class BlockLoop(Disk):
    """Nested loops over the blocks of all inputs; a combination is new if its rows were never in memory together.

    The unit of work is one inner block against the outer batch, after which `until` is asked. Where room for the
    batch is missing, rows are flushed for it, and the new blocks are met later.
    """

    def __init__(self, join: OnlineOperator, matcher: Matcher[L]) -> None:
        super().__init__(join)
        self.matcher, self.odometer = matcher, Odometer([0] * len(join.names))

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nested loops over blocks, from where they stopped."""
        while self.odometer.ready(self.sizes(), self._outer_blocks, self.matcher.path):
            if (yield from self._batch(until)):
                return

    def sizes(self) -> list[int]:
        """Blocks of each input."""
        return [len(store) for store in self.blocks]

    def _outer_blocks(self, r: int) -> int:
        return self.matcher.outer_blocks(r, self.odometer.joined[r])

    def _batch(self, until: Until) -> Generator[pa.RecordBatch, None, bool]:
        """Steps of the batch under way, until it is complete or `until()`, which is what it returns.

        A prefix of digits that leaves no partial combination is passed over at once.
        """
        odometer, matcher, join = self.odometer, self.matcher, self.join
        held = [join.hold_blocks(odometer.outer, odometer.batch)]
        levels = [matcher.first([odometer.outer, *odometer.digits], odometer.batch)]
        stop = False
        while odometer.in_flight and not stop:
            digit = len(levels) - 1
            level = levels[-1]
            if level is not None and digit < len(odometer.digits):
                r, number = odometer.digits[digit], odometer.current[digit]
                if matcher.passes_over(level, r, number):
                    odometer.advance(digit)
                    continue
                held.append(join.hold_blocks(r, [number]))
                levels.append(matcher.extended(level, r, number))
                continue
            if level is not None:
                yield from matcher.answers(level)
            changed = odometer.advance(digit - 1)
            while len(levels) > changed + 1 and len(levels) > 1:
                levels.pop()
                join.let_blocks_go(held.pop())
            stop = until()
        join.let_blocks_go(sum(held))
        return stop

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every block meets every one of the other inputs."""
        yield from self.react(_never)

    def renumber(self) -> None:
        """All blocks that are left have met."""
        self.odometer = Odometer(self.sizes(), started=True)
