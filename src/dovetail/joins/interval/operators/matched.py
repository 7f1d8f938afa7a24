"""Which rows of a side have found a partner: one bit per row, for outer, semi and anti joins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.interval.kernels.sweep_bits import set_bits


class Matched:
    """A bitmap over the ordinals of one side, charged to the budget; rows never seen are unmatched.

    Bits are numbered as Arrow numbers them, lowest first.
    """

    def __init__(self, side: str, budget: MemoryBudget) -> None:
        self.side = side
        self.bits: U8 = np.zeros(0, np.uint8)
        self._memory = budget.reserve(f"{side} matched")

    def add(self, ordinals: I64) -> None:
        """Mark these rows."""
        if ordinals.size:
            self._reach(int(ordinals.max()) // 8 + 1)
            set_bits(self.bits, ordinals)

    def mask(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Whether each of the `count` rows from ordinal `first` on has matched."""
        mask = np.zeros(count, np.bool_)
        known = self.bits[first // 8 : (first + count + 7) // 8]
        found = np.unpackbits(known, bitorder="little")[first % 8 :][:count]
        mask[: found.size] = found
        return mask

    def close(self) -> None:
        """Give the memory back; the bitmap is gone."""
        self.bits = np.zeros(0, np.uint8)
        self._memory.close()

    def _reach(self, size: int) -> None:
        if size > self.bits.size:
            size = max(size, self.bits.size * 3 // 2)
            self._memory.grow(size)
            grown = np.zeros(size, np.uint8)
            grown[: self.bits.size] = self.bits
            self.bits = grown
            self._memory.resize(size)
