"""The common part of the cost models: whether a join spills, how many comparisons and frames it takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.join_size import Variant, expected_pairs, join_estimate_at
from dovetail.joins.interval.cost.statistics import FrameMemory, IntervalStatistics

Algorithm = Literal["sort_merge", "time_sweep", "forward_scan", "oip", "dip"]


@dataclass(frozen=True, slots=True)
class CostModel(ABC):
    """One local join of R (`r`, left) with S (`s`, right), each of one duration, in a join memory.

    `frames_written`, `frames_read`, `io` and `n_spills` describe the spilling run; they mean nothing when `spills()` is
    false. CPU is the number of comparisons, I/O the frames that the join itself writes and reads.
    `variant="printed"` evaluates the equations as the source has them, `"corrected"` with their slips removed and
    the number of spills per phase kept from going negative.
    Reference: Carman 2020, 4.2 to 4.4; docs/algorithms/interval.md, 4.1 to 4.7.
    """

    r: IntervalStatistics
    s: IntervalStatistics
    memory: FrameMemory
    variant: Variant = "corrected"

    name: ClassVar[Algorithm]
    reserved_frames: ClassVar[int]

    def __post_init__(self) -> None:
        if self.variant not in ("corrected", "printed"):
            raise PlanError(f"unknown variant {self.variant!r}; it is 'corrected' or 'printed'.")
        if not self.r.rows or not self.s.rows:
            raise PlanError("an input without rows has no cost model; such a join returns nothing and reads nothing.")

    @property
    def corrected(self) -> bool:
        """Whether slips of the source are removed."""
        return self.variant == "corrected"

    @property
    def t_f_r(self) -> int:
        """R tuples per frame, T_f.R."""
        return self.memory.tuples_per_frame(self.r.tuple_bytes)

    @property
    def t_f_s(self) -> int:
        """S tuples per frame, T_f.S."""
        return self.memory.tuples_per_frame(self.s.tuple_bytes)

    @property
    def t_m_r(self) -> int:
        """R tuples in all memory, T_M.R."""
        return self.memory.tuples(self.r.tuple_bytes)

    @property
    def t_m_s(self) -> int:
        """S tuples in all memory, T_M.S."""
        return self.memory.tuples(self.s.tuple_bytes)

    @property
    def f_r(self) -> int:
        """Frames of R, F_R."""
        return self.memory.frames_of(self.r.rows, self.r.tuple_bytes)

    @property
    def f_s(self) -> int:
        """Frames of S, F_S."""
        return self.memory.frames_of(self.s.rows, self.s.tuple_bytes)

    def join_size(self) -> float:
        """Pairs in the result, JE_single (4.3)."""
        if self.corrected:
            return expected_pairs(self.r, self.s)
        return join_estimate_at("single", self.r, self.s, "printed")

    @abstractmethod
    def needed_frames(self) -> float:
        """Frames that the join must hold at once to run without spilling."""

    def available_frames(self) -> int:
        """Frames left for tuples beside inputs, output and spill buffers."""
        return self.memory.frames - self.reserved_frames

    def spills(self) -> bool:
        """Whether the join runs out of memory."""
        return self.needed_frames() > self.available_frames()

    @abstractmethod
    def n_spills(self) -> float:
        """How often memory fills."""

    @abstractmethod
    def frames_written(self) -> float:
        """Frames written by the spilling join."""

    @abstractmethod
    def frames_read(self) -> float:
        """Frames read back by the spilling join."""

    def io(self) -> float:
        """C_IO: frames written and read."""
        return self.frames_written() + self.frames_read()

    @abstractmethod
    def cpu(self) -> float:
        """C_CPU: comparisons, productive or not."""


@dataclass(frozen=True, slots=True)
class Phases:
    """Spills while the active set grows, while it stays, and while it shrinks."""

    warm_up: float
    steady: float
    cool_down: float

    @classmethod
    def of(cls, total: float, warm_up: float, cool_down: float, *, bounded: bool) -> Phases:
        """`total` spills in phases; `bounded` keeps the outer phases from counting more spills than there are."""
        if bounded:
            warm_up = min(warm_up, total)
            cool_down = min(cool_down, total - warm_up)
        return cls(warm_up, total - warm_up - cool_down, cool_down)


def sum_to(n: float) -> float:
    """1 + 2 + ... + n, continued smoothly to fractional n."""
    return n * (n + 1) / 2
