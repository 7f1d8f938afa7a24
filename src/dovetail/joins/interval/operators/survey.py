"""What a first pass over an input learns for the choice of slots."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.joins.interval.cost.statistics import IntervalStatistics
from dovetail.joins.interval.operators.feed import END, START


class Survey:
    """Rows, earliest start, latest end, and durations of the pieces seen, in codes."""

    def __init__(self, halves: int) -> None:
        self.rows = self.begin = self.end = self.longest = self._total = 0
        self._halves = halves

    def add(self, piece: pa.RecordBatch) -> None:
        """Take in one piece."""
        # Python's numbers, not Arrow's: durations of codes that span the whole range of int64 do not fit it.
        start, end = piece.column(START), piece.column(END)
        begin, last = pc.min(start).as_py(), pc.max(end).as_py()
        lengths = pc.subtract(end.cast(pa.float64(), safe=False), start.cast(pa.float64(), safe=False))
        self.begin = min(self.begin, begin) if self.rows else begin
        self.end = max(self.end, last) if self.rows else last
        self.longest = max(self.longest, int(pc.max(lengths).as_py()))
        self._total += int(pc.sum(lengths).as_py())
        self.rows += piece.num_rows

    def statistics(self, begin: int, end: int) -> IntervalStatistics:
        """The same as the cost model wants it, in instants, over the range of both inputs."""
        scale = 1 << self._halves
        longest = max(1.0, min(self.longest, end - begin) / scale)
        mean = min(longest, max(1.0, self._total / self.rows / scale))
        return IntervalStatistics(self.rows, begin / scale, end / scale, mean, longest, 1.0, start_max=end / scale)
