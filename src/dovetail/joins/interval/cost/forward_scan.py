"""Cost of the forward-scan interval join: the tuples loaded ahead for the earliest unprocessed tuple in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dovetail.joins.interval.cost.model import Algorithm, CostModel, Phases, sum_to


@dataclass(frozen=True, slots=True)
class ForwardScanCost(CostModel):
    """Forward scan: S is freed and R replayed in every spill, the source's simplification.

    The operator spills the counterpart of whichever input holds more; `spilled_first` orients the model alike.
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
        return ForwardScanCost(self.s, self.r, self.memory, self.variant)

    def before_c(self) -> float:
        """Frames of R up to the start of the last S tuple in memory, c (4.35).

        Corrected: S holds what was loaded for an R tuple, d_R * lambda_S, as in the test of the first case.
        """
        frames = self.r.duration * self.r.arrival_rate / self.t_f_r
        if self.r.duration * self.s.arrival_rate / self.t_f_s > self.memory.frames:
            return frames
        d = self.r.duration if self.corrected else self.s.duration
        shared = frames - (self.memory.frames - d * self.s.arrival_rate / self.t_f_s)
        return max(0.0, shared) if self.corrected else shared

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
        return Phases.of(self.n_spills(), warm_up, cool_down, bounded=self.corrected)

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
        """Comparisons without a pair: one per tuple of either input whose scan meets a tuple beyond its end."""
        ends = (max(0.0, x.rows - x.arrival_rate * (x.duration - 1)) for x in (self.r, self.s))
        return sum(ends)

    def cpu(self) -> float:
        """Pairs, and one comparison per tuple that ends its scan (4.47)."""
        return self.join_size() + self.unproductive()
