"""ReactiveNL: blocks of two sides joined in a nested loop that can stop after each inner block and swap roles.

Reference: Bornea 2010, algorithm 4; docs/algorithms/online.md, 3.5 and 3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class NestedLoop:
    """Where the loop stands: outer blocks up to `joined[outer]` have met inner blocks up to `joined[1 - outer]`.

    Besides, `outer_mem` further outer blocks have met the inner blocks before `inner`. Blocks are counted from 0.
    """

    started: bool = False
    outer: int = 0
    joined_outer: int = 0
    joined_inner: int = 0
    inner: int = 0
    outer_mem: int = 0

    def begin(self, sizes: tuple[int, int]) -> None:
        """At the first call: the side with fewer blocks is the outer one, and no block of it has met any."""
        if not self.started:
            self.outer = 0 if sizes[0] <= sizes[1] else 1
            self.joined_outer, self.joined_inner = 0, sizes[1 - self.outer]
            self.inner, self.started = 0, True

    def next_batch(self, sizes: tuple[int, int], most: Callable[[int, int], int]) -> range | None:
        """The outer blocks of the batch to work on, or None if every block of one side has met every one of the other.

        `most(side, first)` says how many blocks a batch may have. A batch in progress keeps its size.
        """
        if self.joined_outer >= sizes[self.outer]:
            # Asked before the inner loop: otherwise the loop would never end when nothing new is on the outer side.
            if self.joined_inner >= sizes[1 - self.outer]:
                return None
            self.swap()
        if self.inner == 0:
            left = sizes[self.outer] - self.joined_outer
            self.outer_mem = min(left, max(1, most(self.outer, self.joined_outer)))
        return range(self.joined_outer, self.joined_outer + self.outer_mem)

    def swap(self) -> None:
        """The inner side becomes the outer one; what has been joined stays."""
        self.outer = 1 - self.outer
        self.joined_outer, self.joined_inner = self.joined_inner, self.joined_outer
        self.inner = 0

    @property
    def batch_done(self) -> bool:
        """Whether the batch has met all inner blocks that it must; later ones come after the next swap."""
        return self.inner >= self.joined_inner

    def close_batch(self) -> None:
        """The batch belongs to what has been joined."""
        self.joined_outer += self.outer_mem
        self.inner = 0
