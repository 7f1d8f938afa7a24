"""The equations of Carman 2020, chapter 4, as they are printed; the library has corrected ones.

OIP has a third form beside the printed one and the library's: the printed equations without their slips, which leave
out what the library's model adds to follow the join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from dovetail.joins.interval.cost import (
    Algorithm,
    CostModel,
    DisjointPartitionCost,
    ForwardScanCost,
    IntervalStatistics,
    MixedCost,
    OverlapPartitionCost,
    SortMergeCost,
    TimeSweepCost,
)
from dovetail.joins.interval.cost.model import Phases

Form = Literal["corrected", "printed"]
Place = Literal["single", "first", "middle", "last"]


def join_estimate(r: IntervalStatistics, s: IntervalStatistics) -> float:
    """JE (4.1): every row of R matches the S rows that start inside it or are active when it starts."""
    return r.rows * s.arrival_rate * (r.duration + s.duration - 1)


def estimate_before(r: IntervalStatistics, s: IntervalStatistics, form: Form = "corrected") -> float:
    """Pairs that (4.1) assumes ahead of the range, JE_before (4.2).

    Corrected: they are S rows that would have started before the range, so their duration counts, not R's.
    """
    d = s.duration if form == "corrected" else r.duration
    return r.arrival_rate * s.arrival_rate * d * (d - 1) / 2


def estimate_after(r: IntervalStatistics, s: IntervalStatistics, form: Form = "corrected") -> float:
    """Pairs that (4.1) assumes behind the range, JE_after (4.2); corrected as `estimate_before`."""
    d = r.duration if form == "corrected" else s.duration
    return r.arrival_rate * s.arrival_rate * d * (d - 1) / 2


def join_estimate_at(place: Place, r: IntervalStatistics, s: IntervalStatistics, form: Form = "corrected") -> float:
    """Pairs whose R row starts in a partition that is the single, the first, a middle or the last one: (4.3), (4.4).

    `r` and `s` describe the rows that start in that partition.
    """
    before = estimate_before(r, s, form) if place in ("single", "first") else 0.0
    after = estimate_after(r, s, form) if place in ("single", "last") else 0.0
    return join_estimate(r, s) - before - after


class _PrintedSize(CostModel):
    """A model with the printed number of pairs."""

    __slots__ = ()

    def join_size(self) -> float:
        """Pairs in the result, JE_single (4.3)."""
        return join_estimate_at("single", self.r, self.s, "printed")


class PrintedSortMergeCost(_PrintedSize, SortMergeCost):
    """Sort-merge as printed: the phases may count more spills than there are."""

    __slots__ = ()

    def phases(self) -> Phases:
        """Spills per phase: (4.11), (4.12), (4.13)."""
        grow, steady = self.spill_increment(), self.steady_spill()
        cool_down = math.floor((steady - self.last_spill()) / grow)
        warm_up = math.floor((steady - self.first_spill()) / grow)
        return Phases(warm_up, self.n_spills() - warm_up - cool_down, cool_down)

    def cpu(self) -> float:
        """Comparisons (4.19); joins of single instants are said to need none that finds the end of matches."""
        instants = self.r.duration == self.s.duration == 1
        return self.join_size() + (0.0 if instants else self.unproductive())


class PrintedTimeSweepCost(_PrintedSize, TimeSweepCost):
    """Time sweep as printed: the phases may count more spills than there are."""

    __slots__ = ()

    def phases(self) -> tuple[Phases, Phases]:
        """Spills per phase of R and of S: (4.25), (4.26)."""
        parts = zip(self.totals(), self.steady_spill(), self.spill_increment(), strict=True)
        ends = ((total, math.floor(frames / grow)) for total, frames, grow in parts)
        first, second = (Phases(0, total - cool_down, cool_down) for total, cool_down in ends)
        return first, second


class PrintedForwardScanCost(_PrintedSize, ForwardScanCost):
    """Forward scan as printed: S is said to hold what starts during an S tuple, and phases have no bound."""

    __slots__ = ()

    def before_c(self) -> float:
        """Frames of R up to the start of the last S tuple in memory, c (4.35)."""
        frames = self.r.duration * self.r.arrival_rate / self.t_f_r
        if self.r.duration * self.s.arrival_rate / self.t_f_s > self.memory.frames:
            return frames
        return frames - (self.memory.frames - self.s.duration * self.s.arrival_rate / self.t_f_s)

    def phases(self) -> Phases:
        """Spills per phase: (4.39), (4.40), (4.41)."""
        warm_up = math.ceil(self.before_c() / self.spill_increment())
        cool_down = math.ceil(self.during_c() / self.spill_increment())
        return Phases(warm_up, self.n_spills() - warm_up - cool_down, cool_down)


class OverlapPartitionEquations(OverlapPartitionCost):
    """OIP by its equations without their slips: no tuples past the end of the range, R read once per S partition."""

    __slots__ = ()

    def group_partitions(self, i: int) -> float:
        """Partitions that span `i` slots, |sl_i|."""
        return self.k - i + 1

    def frames_read(self) -> float:
        """R partitions per overlapping S partition and pass over it: (4.56), and (4.57) without its first term."""
        return sum(
            self.partition_joins(i, j)
            * math.ceil(self.partition_frames(t_s, self.t_f_s) / self.memory.frames)
            * self.partition_frames(t_r, self.t_f_r)
            for (i, t_r), (j, t_s) in product(self.groups(self.r), self.groups(self.s))
        )


class PrintedOverlapPartitionCost(_PrintedSize, OverlapPartitionEquations):
    """OIP as printed."""

    __slots__ = ()

    def available_frames(self) -> int:
        """Frames beside R input and output (4.48), which are added instead of subtracted."""
        return self.memory.frames + self.reserved_frames

    def starts_within(self, x: IntervalStatistics) -> float:
        """Q, with - 1 where + 1 is right."""
        return math.ceil(x.duration / self.slot_width()) * self.slot_width() - x.duration - 1

    def partition_joins(self, i: int, j: int) -> float:
        """Overlapping pairs of partitions in closed form (4.49 to 4.51), which holds while k - i + 1 >= j - 1."""
        return self.group_partitions(i) * (i + j - 1) - j * (j - 1)


class PrintedDisjointPartitionCost(_PrintedSize, DisjointPartitionCost):
    """DIP as printed: only R's frames decide whether it spills."""

    __slots__ = ()

    def available_frames(self) -> int:
        """Frames beside input and output, which are added instead of subtracted."""
        return self.memory.frames + self.reserved_frames

    def needed_frames(self) -> float:
        """Frames of R (4.59)."""
        return float(self.f_r)

    def n_partitions(self, x: IntervalStatistics) -> float:
        """Disjoint partitions of one input, its active tuples: (4.60), (4.72)."""
        return x.active


PRINTED: Final[dict[Algorithm, type[CostModel]]] = {
    "time_sweep": PrintedTimeSweepCost,
    "sort_merge": PrintedSortMergeCost,
    "forward_scan": PrintedForwardScanCost,
    "oip": PrintedOverlapPartitionCost,
    "dip": PrintedDisjointPartitionCost,
}


@dataclass(frozen=True, slots=True)
class MixedEquations(MixedCost):
    """A join of mixed inputs by the equations without their slips; differs from the library's model for OIP alone."""

    def _model(self, r: IntervalStatistics, s: IntervalStatistics) -> CostModel:
        if self.algorithm == "oip":
            return OverlapPartitionEquations(r, s, self.memory, self.slots)
        return MixedCost._model(self, r, s)

    def frames_read(self) -> float:
        """Frames read back by the spilling join; for OIP the sum over pairs of subrelations (4.71)."""
        if self.algorithm == "oip":
            return sum(pair.frames_read() for pair in self._pairs())
        return MixedCost.frames_read(self)


@dataclass(frozen=True, slots=True)
class PrintedMixedCost(MixedEquations):
    """A join of mixed inputs as printed."""

    def _model(self, r: IntervalStatistics, s: IntervalStatistics) -> CostModel:
        if self.algorithm == "oip":
            return PrintedOverlapPartitionCost(r, s, self.memory, self.slots)
        return PRINTED[self.algorithm](r, s, self.memory)

    def needed_frames(self) -> float:
        """Left side of the spill test; the forward scan's (4.70) looks at as many classes of R as S has."""
        if self.algorithm != "forward_scan" or not self.r.classes:
            return MixedEquations.needed_frames(self)
        t_f_r, t_f_s = (self.memory.tuples_per_frame(x.tuple_bytes) for x in (self.r, self.s))
        longest = max(d for _, d in self.r.classes[: len(self.s.subrelations())])
        return self.s.max_duration * self.r.arrival_rate / t_f_r + longest * self.s.arrival_rate / t_f_s

    def cpu(self) -> float:
        """Comparisons (4.66) of all pairs of subrelations; a spilling time sweep (4.67) counts its pairs twice."""
        if self.algorithm != "time_sweep":
            return sum(pair.cpu() for pair in self._pairs())
        pairs = sum(pair.join_size() for pair in self._pairs())
        if not self.spills():
            return pairs
        worst = PrintedTimeSweepCost(self.r.worst_case(), self.s.worst_case(), self.memory)
        simple = not self.r.classes and not self.s.classes
        return pairs + worst.unproductive() + (0.0 if simple else worst.join_size())
