"""Costs of inputs that mix arrival rates and durations: unions of subrelations, each with one of both."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.dip import DisjointPartitionCost
from dovetail.joins.interval.cost.forward_scan import ForwardScanCost
from dovetail.joins.interval.cost.frames import FrameMemory
from dovetail.joins.interval.cost.join_size import Variant, expected_pairs
from dovetail.joins.interval.cost.model import Algorithm, CostModel
from dovetail.joins.interval.cost.oip import OverlapPartitionCost
from dovetail.joins.interval.cost.slots import choose_slots
from dovetail.joins.interval.cost.sort_merge import SortMergeCost
from dovetail.joins.interval.cost.statistics import IntervalStatistics
from dovetail.joins.interval.cost.time_sweep import TimeSweepCost

MODELS: Final[dict[Algorithm, type[CostModel]]] = {
    "time_sweep": TimeSweepCost,
    "sort_merge": SortMergeCost,
    "forward_scan": ForwardScanCost,
    "oip": OverlapPartitionCost,
    "dip": DisjointPartitionCost,
}


@dataclass(frozen=True, slots=True)
class MixedCost:
    """One local join of mixed inputs; for inputs of a single duration the same figures as its simple model.

    Comparisons are summed over pairs of subrelations. Memory and I/O take the worst case: every row as long as the
    longest, all arriving at the summed rate. `slots` and `refined` are OIP's;
    slots of 0 are chosen once for the whole inputs.
    Reference: Carman 2020, 4.4.6, equations 4.66 to 4.72; docs/algorithms/interval.md, 4.8.
    """

    algorithm: Algorithm
    r: IntervalStatistics
    s: IntervalStatistics
    memory: FrameMemory
    variant: Variant = "corrected"
    slots: int = 0
    refined: bool = False

    def __post_init__(self) -> None:
        if self.algorithm not in MODELS:
            raise PlanError(f"unknown algorithm {self.algorithm!r}; the algorithms are {', '.join(MODELS)}.")
        if self.algorithm == "oip" and not self.slots:
            chosen = choose_slots(self.r, self.s, self.memory.tuples_per_frame(self.s.tuple_bytes))
            object.__setattr__(self, "slots", chosen)

    @property
    def corrected(self) -> bool:
        """Whether slips of the source are removed."""
        return self.variant == "corrected"

    def _model(self, r: IntervalStatistics, s: IntervalStatistics) -> CostModel:
        if self.algorithm == "oip":
            return OverlapPartitionCost(r, s, self.memory, self.variant, self.slots, self.refined)
        return MODELS[self.algorithm](r, s, self.memory, self.variant)

    def _pairs(self) -> list[CostModel]:
        return [self._model(a, b) for a, b in product(self.r.subrelations(), self.s.subrelations())]

    def worst_case(self) -> CostModel:
        """The simple model that stands for the whole join in I/O; DIP and OIP depend on sizes, not on the longest."""
        if self.algorithm in ("oip", "dip"):
            return self._model(self.r, self.s)
        model = self._model(self.r.worst_case(), self.s.worst_case())
        return model.spilled_first() if isinstance(model, ForwardScanCost) else model

    def join_size(self) -> float:
        """Pairs of all pairs of subrelations."""
        return expected_pairs(self.r, self.s)

    def needed_frames(self) -> float:
        """Left side of the spill test: (4.68), (4.69), (4.70); OIP and DIP as in their simple models."""
        t_f_r, t_f_s = (self.memory.tuples_per_frame(x.tuple_bytes) for x in (self.r, self.s))
        if self.algorithm == "sort_merge":
            longest = self.r.max_duration
            return sum(x.arrival_rate * (longest + x.duration - 1) for x in self.s.subrelations()) / t_f_s
        if self.algorithm == "time_sweep":
            return self.r.active / t_f_r + self.s.active / t_f_s
        if self.algorithm == "forward_scan":
            held_r = self.s.max_duration * self.r.arrival_rate / t_f_r
            return held_r + self._longest_r() * self.s.arrival_rate / t_f_s
        return self.worst_case().needed_frames()

    def _longest_r(self) -> float:
        # (4.70) as printed lets the number of S's classes bound the search among R's
        if self.corrected or not self.r.classes:
            return self.r.max_duration
        return max(d for _, d in self.r.classes[: len(self.s.subrelations())])

    def available_frames(self) -> int:
        """Frames left for tuples."""
        return self.worst_case().available_frames()

    def spills(self) -> bool:
        """Whether the join runs out of memory."""
        return self.needed_frames() > self.available_frames()

    def n_spills(self) -> float:
        """How often memory fills, in the worst case."""
        return self.worst_case().n_spills()

    def frames_written(self) -> float:
        """Frames written by the spilling join; OIP writes the whole of R once."""
        return self.worst_case().frames_written()

    def frames_read(self) -> float:
        """Frames read back by the spilling join; for OIP the sum over subrelations (4.71).

        Refined: subrelations of R only, because a block of S holds all of its subrelations.
        """
        if self.algorithm == "oip" and self.refined:
            return sum(self._model(part, self.s).frames_read() for part in self.r.subrelations())
        if self.algorithm == "oip":
            return sum(pair.frames_read() for pair in self._pairs())
        return self.worst_case().frames_read()

    def io(self) -> float:
        """C_IO: frames written and read."""
        return self.frames_written() + self.frames_read()

    def cpu(self) -> float:
        """C_CPU: comparisons (4.66), for a spilling time sweep (4.67).

        Corrected: a tuple ends its scan once, not once per subrelation of the other input; the spilling sweep adds only
        its unproductive comparisons, not the pairs a second time; and OIP compares at least every pair it returns.
        """
        if self.algorithm == "time_sweep":
            return self._sweep_cpu()
        if not self.corrected:
            return sum(pair.cpu() for pair in self._pairs())
        if self.algorithm == "oip":
            return max(self.join_size(), sum(pair.cpu() for pair in self._pairs()))
        return self._model(self.r, self.s).cpu()

    def _sweep_cpu(self) -> float:
        pairs = self.join_size() if self.corrected else sum(pair.join_size() for pair in self._pairs())
        if not self.spills():
            return pairs
        worst = TimeSweepCost(self.r.worst_case(), self.s.worst_case(), self.memory, self.variant)
        simple = not self.r.classes and not self.s.classes
        counted_twice = 0.0 if self.corrected or simple else worst.join_size()
        return pairs + counted_twice + worst.unproductive()
