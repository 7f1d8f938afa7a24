"""Cost models of the joins that sweep over both inputs in start order: sort-merge, time sweep, forward scan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
        return Phases.of(self.n_spills(), warm_up, cool_down)

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
        """Pairs, and one comparison per R tuple that finds the end of its matches (4.19)."""
        return self.join_size() + self.unproductive()

    def unproductive(self) -> float:
        """Comparisons without a pair: all R tuples except those that are active when S ends."""
        return max(0.0, self.r.rows - self.r.arrival_rate * (self.r.duration - 1))


def freed_share(l_r: float, l_s: float) -> float:
    """The share of memory that a spill frees in the long run, beta; 2/3 for equal inputs."""
    low, high = sorted((l_r, l_s))
    return (low + high) / (2 * low + high)


@dataclass(frozen=True, slots=True)
class TimeSweepCost(CostModel):
    """Time sweep: whichever input holds more is freed and the other replayed, so both may be written.

    Symmetric in R and S.
    Reference: Carman 2020, 4.4.2, equations 4.20 to 4.33; docs/algorithms/interval.md, 4.4.
    """

    name: ClassVar[Algorithm] = "time_sweep"
    reserved_frames: ClassVar[int] = 5

    def needed_frames(self) -> float:
        """Frames of the active tuples, left side of (4.20)."""
        return self.r.active / self.t_f_r + self.s.active / self.t_f_s

    def beta(self) -> float:
        """Share of memory freed per spill."""
        return freed_share(self.r.active, self.s.active)

    def steady_spill(self) -> tuple[float, float]:
        """Frames replayed per spill of R and of S: (4.21), (4.22)."""
        return (
            min(self.f_r, self.r.arrival_rate / self.t_f_r * (self.s.duration - 1)),
            min(self.f_s, self.s.arrival_rate / self.t_f_s * (self.r.duration - 1)),
        )

    def spill_increment(self) -> tuple[float, float]:
        """Frames by which spills of R and of S shrink at the end (4.23)."""
        return (
            self.r.arrival_rate / self.t_f_r * (self.t_m_s / 2 / self.s.arrival_rate),
            self.s.arrival_rate / self.t_f_s * (self.t_m_r / 2 / self.r.arrival_rate),
        )

    def totals(self) -> tuple[float, float]:
        """Spills of R and of S, I_total (4.24)."""
        return self._total(self.f_r), self._total(self.f_s)

    def _total(self, frames: int) -> float:
        return math.floor(frames / (self.beta() * self.memory.frames))

    def n_spills(self) -> float:
        """Spills of both inputs."""
        return sum(self.totals())

    def phases(self) -> tuple[Phases, Phases]:
        """Spills per phase of R and of S: (4.25), (4.26)."""
        parts = zip(self.totals(), self.steady_spill(), self.spill_increment(), strict=True)
        first, second = (Phases.of(n, 0, math.floor(x / inc)) for n, x, inc in parts)
        return first, second

    def frames_written(self) -> float:
        """Both inputs once (4.27)."""
        return float(self.f_r + self.f_s)

    def steady_frames(self) -> tuple[float, float]:
        """Frames read in the steady state from R's file and from S's (4.28)."""
        (r, s), (x_r, x_s) = self.phases(), self.steady_spill()
        return r.steady * x_r, s.steady * x_s

    def cool_down_frames(self) -> tuple[float, float]:
        """Frames read at the end from R's file and from S's (4.29)."""
        (r, s), (inc_r, inc_s) = self.phases(), self.spill_increment()
        return inc_r * sum_to(r.cool_down), inc_s * sum_to(s.cool_down)

    def frames_read(self) -> float:
        """Frames read in all, (4.30) without its first term."""
        return sum(self.steady_frames()) + sum(self.cool_down_frames())

    def unproductive(self) -> float:
        """Comparisons without a pair while spilling (4.32); T_M is that of the input that is freed.

        The equation charges a freed tuple lambda comparisons. Dropping it takes one, so this is high for lambda > 1.
        """
        r, s = self.phases()
        held_s, held_r = self.beta() * self.t_m_s, self.beta() * self.t_m_r
        return held_s * r.steady * self.r.arrival_rate + held_r * s.steady * self.s.arrival_rate

    def cpu(self) -> float:
        """Pairs alone in memory (4.31), with the comparisons of spilling otherwise (4.33)."""
        return self.join_size() + (self.unproductive() if self.spills() else 0.0)


@dataclass(frozen=True, slots=True)
class ForwardScanCost(CostModel):
    """Forward scan: S is freed and R replayed in every spill, the source's simplification.

    The operator spills the counterpart of whichever input holds more; `spilled_first` orients the model the same way.
    Reference: Carman 2020, 4.4.3, equations 4.34 to 4.47; docs/algorithms/interval.md, 4.5.
    """

    name: ClassVar[Algorithm] = "forward_scan"
    reserved_frames: ClassVar[int] = 5

    def held_frames(self) -> tuple[float, float]:
        """Frames of R loaded for an S tuple, and of S loaded for an R tuple: the terms of (4.34)."""
        return (
            self.r.arrival_rate * self.s.duration / self.t_f_r,
            self.s.arrival_rate * self.r.duration / self.t_f_s,
        )

    def needed_frames(self) -> float:
        """Frames loaded ahead of both inputs, left side of (4.34)."""
        return sum(self.held_frames())

    def spilled_first(self) -> ForwardScanCost:
        """The model whose R is the input that the operator spills: the one that holds fewer frames."""
        held_r, held_s = self.held_frames()
        if held_s >= held_r:
            return self
        return replace(self, r=self.s, s=self.r)

    def before_c(self) -> float:
        """Frames of R up to the start of the last S tuple in memory, c (4.35).

        Corrected: S holds what was loaded for an R tuple, d_R * lambda_S, as in the test of the first case.
        """
        frames = self.r.duration * self.r.arrival_rate / self.t_f_r
        if self.r.duration * self.s.arrival_rate / self.t_f_s > self.memory.frames:
            return frames
        return max(0.0, frames - (self.memory.frames - self.r.duration * self.s.arrival_rate / self.t_f_s))

    def during_c(self) -> float:
        """Frames of R while c lasts (4.36)."""
        return self.s.duration * self.r.arrival_rate / self.t_f_r

    def spill_increment(self) -> float:
        """Frames by which spills grow and shrink (4.37)."""
        return self.t_m_s / self.s.arrival_rate * (self.r.arrival_rate / self.t_f_r)

    def n_spills(self) -> float:
        """Spills in all (4.38); fractional, as printed."""
        held = min(self.memory.frames, self.r.duration * self.s.arrival_rate / self.t_f_s)
        return max(0.0, self.f_s / held - 1)

    def phases(self) -> Phases:
        """Spills per phase: (4.39), (4.40), (4.41)."""
        warm_up = math.ceil(self.before_c() / self.spill_increment())
        cool_down = math.ceil(self.during_c() / self.spill_increment())
        return Phases.of(self.n_spills(), warm_up, cool_down)

    def frames_written(self) -> float:
        """R once (4.42)."""
        return float(self.f_r)

    def steady_frames(self) -> float:
        """Frames read in the steady state (4.43)."""
        return self.phases().steady * (self.before_c() + self.during_c())

    def warm_up_frames(self) -> float:
        """Frames read while spills grow (4.44)."""
        n = self.phases().warm_up
        return n * self.during_c() + self.spill_increment() * sum_to(n)

    def cool_down_frames(self) -> float:
        """Frames read while spills shrink (4.45)."""
        n = self.phases().cool_down
        return n * self.before_c() + self.spill_increment() * sum_to(n)

    def frames_read(self) -> float:
        """Frames read in all phases, (4.46) without its first term."""
        return self.steady_frames() + self.warm_up_frames() + self.cool_down_frames()

    def unproductive(self) -> float:
        """Comparisons without a pair: one per tuple of either input whose scan reaches a tuple beyond its end."""
        ends = (max(0.0, x.rows - x.arrival_rate * (x.duration - 1)) for x in (self.r, self.s))
        return sum(ends)

    def cpu(self) -> float:
        """Pairs, and one comparison per tuple that ends its scan (4.47)."""
        return self.join_size() + self.unproductive()
