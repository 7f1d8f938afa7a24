"""Slots of equal width over a time range, and the partition that each interval belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.errors import PlanError
from dovetail.joins.interval.operators.feed import END, START

_WORD = 2**64
MOST_SLOTS = 2**30


@dataclass(frozen=True, slots=True)
class Slots:
    """`count` slots over [begin, end), numbered from 1; slot 0 is before the range and slot `count` + 1 after it.

    With half steps (`halves` = 1) two neighbouring codes are one instant, so that equal bounds share a slot.
    Reference: Carman 2020, 3.3.4, with the order of 4.4.4; docs/algorithms/interval.md, 2.4.

    >>> slots = Slots(3, 0, 30)
    >>> ends, starts = zip(*(divmod(code, slots.base) for code in sorted(slots.parts(
    ...     np.array([0, 0, 0, 10, 10, 20]), np.array([10, 20, 30, 20, 30, 30])).tolist())))
    >>> [(slots.base - 1 - start, end) for start, end in zip(starts, ends)]
    [(1, 1), (2, 2), (1, 2), (3, 3), (2, 3), (1, 3)]
    """

    count: int
    begin: int
    end: int
    halves: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_SLOTS:
            raise PlanError(f"slots={self.count} must be between 1 and {MOST_SLOTS}")
        if self.begin >= self.end:
            raise PlanError(f"the time range [{self.begin}, {self.end}) is empty")

    @property
    def base(self) -> int:
        """The number of slots, those before and after the range included."""
        return self.count + 2

    @property
    def width(self) -> int:
        """K: how many instants a slot has."""
        return -(-(self._last - self._first + 1) // self.count)

    @property
    def _first(self) -> int:
        return self.begin >> self.halves

    @property
    def _last(self) -> int:
        return (self.end - 1) >> self.halves

    def parts(self, start: I64, end: I64) -> I64:
        """The partition of each interval, as one number that ascends by end slot, then by descending start slot."""
        first, last = self._slots(start >> self.halves), self._slots((end - 1) >> self.halves)
        return int64s(last * self.base + (self.base - 1 - first))

    def of(self, batch: pa.RecordBatch) -> I64:
        """The partition of each row."""
        return self.parts(batch.column(START).to_numpy(), batch.column(END).to_numpy())

    def _slots(self, instants: I64) -> npt.NDArray[np.int64]:
        # Distances may pass 2^63, so they are taken in unsigned words, where they wrap to the right value.
        distance = instants.view(np.uint64) - np.uint64(self._first % _WORD)
        inside = (distance // np.uint64(self.width)).astype(np.int64) + 1
        after = np.where(instants > self._last, self.count + 1, np.minimum(inside, self.count))
        return np.where(instants < self._first, 0, after)
