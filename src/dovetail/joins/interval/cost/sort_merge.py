"""Cost of the sort-merge interval join: one R tuple at a time, the S tuples that it overlaps in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dovetail.joins.interval.cost.model import Algorithm, CostModel, Phases, sum_to


@dataclass(frozen=True, slots=True)
class SortMergeCost(CostModel):
    """Sort-merge: R is spilled and replayed, S is held. Exchange `r` and `s` for the other orientation.

    Reference: Carman 2020, 4.4.1, equations 4.5 to 4.19; docs/algorithms/interval.md, 4.3.
    """

    name: ClassVar[Algorithm] = "sort_merge"
    reserved_frames: ClassVar[int] = 4

    def needed_frames(self) -> float:
        """Frames of the S tuples that one R tuple overlaps, left side of (4.5)."""
        return self.s.arrival_rate * (self.r.duration + self.s.duration - 1) / self.t_f_s

    def steady_spill(self) -> float:
        """Frames of R replayed per spill in the steady state (4.6)."""
        return self._spill_over(self.r.duration + self.s.duration - 1)

    def last_spill(self) -> float:
        """Frames of the last spill (4.7)."""
        return self._spill_over(self.r.duration)

    def first_spill(self) -> float:
        """Frames of the first spill (4.8)."""
        return self._spill_over(self.s.duration)

    def spill_increment(self) -> float:
        """Frames by which spills grow and shrink (4.9)."""
        return self.r.arrival_rate / self.t_f_r * (self.t_m_s / self.s.arrival_rate)

    def _spill_over(self, instants: float) -> float:
        return min(self.f_r, self.r.arrival_rate / self.t_f_r * instants)

    def n_spills(self) -> float:
        """Spills in all, I_total(S) (4.10)."""
        return self.f_s // self.memory.frames

    def phases(self) -> Phases:
        """Spills per phase: (4.11), (4.12), (4.13)."""
        grow, steady = self.spill_increment(), self.steady_spill()
        cool_down = math.floor((steady - self.last_spill()) / grow)
        warm_up = math.floor((steady - self.first_spill()) / grow)
        return Phases.of(self.n_spills(), warm_up, cool_down, bounded=self.corrected)

    def frames_written(self) -> float:
        """R once, because replayed tuples stay in their file (4.14)."""
        return float(self.f_r)

    def steady_frames(self) -> float:
        """Frames read in the steady state (4.15)."""
        return self.phases().steady * self.steady_spill()

    def cool_down_frames(self) -> float:
        """Frames read while spills shrink (4.16)."""
        n = self.phases().cool_down
        return self.spill_increment() * sum_to(n - 1) + n * self.last_spill()

    def warm_up_frames(self) -> float:
        """Frames read while spills grow (4.17)."""
        n = self.phases().warm_up
        return self.spill_increment() * sum_to(n - 1) + n * self.first_spill()

    def frames_read(self) -> float:
        """Frames read in all phases, (4.18) without its first term."""
        return self.steady_frames() + self.cool_down_frames() + self.warm_up_frames()

    def cpu(self) -> float:
        """Pairs, and one comparison per R tuple that finds the end of its matches (4.19).

        Printed: joins of single instants are said to need no such comparison. The procedure makes it all the same.
        """
        if not self.corrected and self.r.duration == self.s.duration == 1:
            return self.join_size()
        return self.join_size() + self.unproductive()

    def unproductive(self) -> float:
        """Comparisons without a pair: all R tuples but those that still run when S ends."""
        return max(0.0, self.r.rows - self.r.arrival_rate * (self.r.duration - 1))
