"""The longest overlaps among pairs that an operator gives out, for the query that the source times."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import kernel


class TopOverlaps:
    """The `k` longest overlaps of the pairs offered so far, and how many pairs were offered."""

    def __init__(self, left: tuple[I64, I64], right: tuple[I64, I64], k: int = 100) -> None:
        self.left, self.right, self.k = left, right, k
        self.best: I64 = np.empty(0, np.int64)
        self.pairs = 0
        self._found: I64 = np.empty(0, np.int64)

    def offer(self, left: I64, right: I64) -> None:
        """Pairs by their row numbers."""
        self.pairs += left.size
        if self._found.size < left.size:
            self._found = np.empty(left.size, np.int64)
        floor = int(self.best.min()) if self.best.size == self.k else 0
        n = overlaps_above(left, right, *self.left, *self.right, floor, self._found)
        if n:
            together = np.concatenate([self.best, self._found[:n]])
            self.best = np.sort(together)[-self.k :]


@kernel
def overlaps_above(
    left: I64, right: I64, l_start: I64, l_end: I64, r_start: I64, r_end: I64, floor: int, out: I64
) -> int:
    """Write the overlaps longer than `floor` to `out`; how many there are."""
    n = 0
    for i in range(left.size):
        a, b = left[i], right[i]
        length = min(l_end[a], r_end[b]) - max(l_start[a], r_start[b])
        if length > floor:
            out[n] = length
            n += 1
    return n
