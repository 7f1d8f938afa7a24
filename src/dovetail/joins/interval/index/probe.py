"""A batch of left rows on its way through an index: where their bounds fall among the sorted right bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.joins.interval.index.zones import BOUNDARIES
from dovetail.joins.interval.kernels.rank_merge import positions_below
from dovetail.joins.interval.kernels.rank_sort import stable_order

# Below these sizes the right bounds stay in cache, or the batch is too short for its own sort to pay.
_SORT_PROBES = 4096
_SORT_AGAINST = 1 << 15


@dataclass
class Probes:
    """Left rows with the segment of the right side that each may match (-1: none).

    With `as_codes` the bounds are compared as half-open codes; otherwise as they were written, start >> h and
    (end - shift) >> h.
    """

    segment: I64
    start: I64
    end: I64
    offsets: I64
    h: int
    shift: int
    as_codes: bool
    _orders: dict[bool, I64] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many left rows there are."""
        return len(self.start)

    def take(self, rows: Bool) -> Probes:
        """The left rows under this mask."""
        segment, start, end = (int64s(array[rows]) for array in (self.segment, self.start, self.end))
        return Probes(segment, start, end, self.offsets, self.h, self.shift, self.as_codes)

    def points(self) -> Bool:
        """Which left intervals are a single point as written; as codes none is."""
        if self.as_codes or (self.h, self.shift) == (0, 0):
            return np.zeros(self.rows, np.bool_)
        points: Bool = (self.start >> self.h) == ((self.end - self.shift) >> self.h)
        return points

    def first_of_segment(self) -> I64:
        """The first right row that each left row may match."""
        return np.where(self.segment < 0, 0, self.offsets[self.segment])

    def end_of_segment(self) -> I64:
        """One past the last right row that each left row may match."""
        return np.where(self.segment < 0, 0, self.offsets[self.segment + 1])

    def sought(self, boundary: int, among_ends: bool) -> I64:
        """The code that right starts (or ends) are compared with at this boundary; see BOUNDARIES."""
        of_end, inclusive = BOUNDARIES[boundary].of_end, BOUNDARIES[boundary].inclusive
        code = self.end if of_end else self.start
        if self.as_codes:
            return code
        written = (code - self.shift if of_end else code) >> self.h
        # A written bound b stands for the codes b << h up to the next; all of them are at or below an inclusive one.
        highest = (written << self.h) | ((1 << self.h) - 1 if inclusive else 0)
        return int64s(highest + (self.shift if among_ends else 0))

    def below(self, values: I64, boundary: int, among_ends: bool) -> I64:
        """Where this boundary of each left row falls in its segment of the sorted right starts (or ends)."""
        order = self.order(BOUNDARIES[boundary].of_end, len(values))
        sought = self.sought(boundary, among_ends)
        inclusive = BOUNDARIES[boundary].inclusive
        return positions_below(values, self.offsets, self.segment, sought, inclusive, order)

    def order(self, by_end: bool, against: int) -> I64:
        """An order in which to visit the rows: by key and bound where that saves more than it costs."""
        if by_end not in self._orders:
            self._orders[by_end] = self._sorted_order(self.end if by_end else self.start, against)
        return self._orders[by_end]

    def _sorted_order(self, bound: I64, against: int) -> I64:
        if self.rows < _SORT_PROBES or against < _SORT_AGAINST:
            return int64s(np.arange(self.rows, dtype=np.int64))
        order = stable_order(bound)
        return order if len(self.offsets) == 2 else stable_order(self.segment, order)
