"""Cost of the disjoint interval partitioning join: partitions in which no two intervals overlap, merged pairwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dovetail.joins.interval.cost.model import Algorithm, CostModel
from dovetail.joins.interval.cost.statistics import IntervalStatistics


@dataclass(frozen=True, slots=True)
class DisjointPartitionCost(CostModel):
    """DIP: S is joined in batches held whole, R is read once per batch.

    Overflow passes of the partitioning are not in the source's I/O; `overflow_frames` has them.
    Reference: Carman 2020, equations 4.59 to 4.65 and 4.72; docs/algorithms/interval.md, 4.7 and 4.8.
    """

    name: ClassVar[Algorithm] = "dip"
    reserved_frames: ClassVar[int] = 2

    def partitioning_spills(self, x: IntervalStatistics) -> bool:
        """Whether one input outgrows memory while it is partitioned (4.59)."""
        return self.memory.frames_of(x.rows, x.tuple_bytes) > self.available_frames()

    def available_frames(self) -> int:
        """Frames beside input and output; the printed test adds the two reserved frames instead of subtracting them."""
        reserved = self.reserved_frames if self.corrected else -self.reserved_frames
        return self.memory.frames - reserved

    def needed_frames(self) -> float:
        """Frames of R, and corrected of the larger input: S is partitioned in the same memory after R."""
        return float(max(self.f_r, self.f_s) if self.corrected else self.f_r)

    def n_partitions(self, x: IntervalStatistics) -> float:
        """Disjoint partitions of one input, its active tuples: (4.60), (4.72)."""
        return max(1.0, x.active) if self.corrected else x.active

    def partition_frames(self, x: IntervalStatistics) -> int:
        """Frames of one partition (4.61)."""
        return math.ceil(self.memory.frames_of(x.rows, x.tuple_bytes) / self.n_partitions(x))

    def frames_written(self) -> float:
        """Both inputs once (4.62)."""
        return float(self.f_r + self.f_s)

    def n_batches(self) -> int:
        """Batches of S (4.63)."""
        return math.ceil(self._all_partitions(self.s) / (self.memory.frames - 1))

    def _all_partitions(self, x: IntervalStatistics) -> float:
        return self.n_partitions(x) * self.partition_frames(x)

    def n_spills(self) -> float:
        """Passes over R beyond the first."""
        return self.n_batches() - 1

    def frames_read(self) -> float:
        """R once per batch and S once, (4.64) without its first term."""
        return self.n_batches() * self._all_partitions(self.r) + self._all_partitions(self.s)

    def overflow_frames(self) -> float:
        """Frames written and read again because a pass opens at most F_M - 1 partitions; ours, not part of `io`."""
        return 2 * (self._overflow(self.r, self.f_r) + self._overflow(self.s, self.f_s))

    def _overflow(self, x: IntervalStatistics, frames: int) -> float:
        passes = self.n_partitions(x) / (self.memory.frames - 1)
        return frames * sum(1 - p / passes for p in range(1, math.ceil(passes)))

    def cpu(self) -> float:
        """Pairs, and one comparison per R tuple and S tuple that ends with it (4.65)."""
        return self.join_size() + self.r.rows * self.s.arrival_rate
