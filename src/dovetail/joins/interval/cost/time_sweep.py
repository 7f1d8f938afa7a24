"""Cost of the time-sweep interval join: the tuples of both inputs that contain the current instant in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from dovetail.joins.interval.cost.model import Algorithm, CostModel, Phases, sum_to


def freed_shares(l_r: float, l_s: float) -> Iterator[float]:
    """The share of memory that each spill in turn frees, beta_1, beta_2, ..., for L_R and L_S active tuples.

    >>> from itertools import islice
    >>> list(islice(freed_shares(1, 1), 4))
    [0.5, 0.75, 0.625, 0.6875]
    """
    smaller = min(l_r, l_s) / (l_r + l_s)
    share = smaller
    while True:
        yield share
        share = 1 - smaller * share


def freed_share(l_r: float, l_s: float) -> float:
    """The limit of `freed_shares`, beta; 2/3 for equal inputs."""
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

    def betas(self, n: int) -> tuple[float, ...]:
        """Shares of the first `n` spills."""
        return tuple(islice(freed_shares(self.r.active, self.s.active), n))

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
        first, second = (Phases.of(n, 0, math.floor(x / inc), bounded=self.corrected) for n, x, inc in parts)
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
