"""Where MINER's nested loops over blocks stand: a box of block combinations that are done, and a batch under way.

Blocks 0 to joined[r] - 1 of all inputs have met each other. A batch joins the next blocks of the outer input with all
of these of the others, counted like the digits of an odometer. Sizes are given anew each time, as blocks may be added
at any moment; `joined` and the batch change only as written here.
Reference: Bornea 2010, 4.2; docs/algorithms/online.md, 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Arrange = Callable[[int], list[int]]
"""The other inputs for an outer one, each after its neighbour on the way to it; the last turns fastest."""


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

    def all_done(self, sizes: Sequence[int]) -> None:
        """Every combination of these blocks was produced."""
        self.started, self.in_flight, self.joined = True, False, list(sizes)
