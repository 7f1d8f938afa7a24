"""Cost models of the joins that partition both inputs: overlap partitions (OIP) and disjoint partitions (DIP)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Final

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.model import Algorithm, CostModel, lattice_pairs
from dovetail.joins.interval.cost.statistics import IntervalStatistics

COMPARE_COST: Final = 0.5
FRAME_COST: Final = 10.0
_ROUNDS: Final = 1_000  # the iteration ends in a cycle of one or two values long before


def usable_partitions(x: IntervalStatistics, k: int, time_range: float) -> float:
    """Partitions of one input that can be non-empty with `k` slots: its longest interval bounds the slots spanned."""
    m = math.ceil(k * min(1.0, x.max_duration / time_range))
    return min(x.rows, k * m + k - m * m / 2 - m / 2)


def choose_slots(
    r: IntervalStatistics,
    s: IntervalStatistics,
    tuples_per_frame: int,
    *,
    compare_cost: float = COMPARE_COST,
    frame_cost: float = FRAME_COST,
) -> int:
    """Slots k that balance comparisons that find nothing against partitions that are nearly empty.

    A fixpoint from k = 1, ended when a value repeats the previous one or the one before; at least 1 and at most one
    slot per instant.
    Reference: the algorithm that Carman 2020, 3.3.4 builds on without its formula; docs/algorithms/interval.md, 2.4.
    """
    if compare_cost <= 0 or frame_cost < 0:
        raise PlanError(f"costs of {compare_cost:g} per comparison and {frame_cost:g} per frame were given; give > 0.")
    if not r.rows or not s.rows:
        return 1
    time_range = max(r.time_range, s.time_range)
    previous, k = 0, 1
    for _ in range(_ROUNDS):
        following = _next_slots(r, s, k, time_range, compare_cost, frame_cost / tuples_per_frame, frame_cost)
        following = max(1, min(following, math.ceil(time_range)))
        if following in (k, previous):
            return following
        previous, k = k, following
    return k


def _next_slots(
    r: IntervalStatistics,
    s: IntervalStatistics,
    k: int,
    time_range: float,
    compare_cost: float,
    tuple_cost: float,
    frame_cost: float,
) -> int:
    tightening = usable_partitions(s, k, time_range) / ((k * k + k) / 2)
    scale = 3 * s.rows / (2 * (frame_cost + 2 * compare_cost) * tightening)
    benefit = tuple_cost + 4 * r.rows * compare_cost / usable_partitions(r, k, time_range)
    return math.floor(math.cbrt(scale * benefit))


@dataclass(frozen=True, slots=True)
class OverlapPartitionCost(CostModel):
    """OIP with `slots` slots (k); 0 becomes what `choose_slots` picks.

    A slot group i holds the partitions that span i slots. The model follows the join where the equations do not:
    tuples that reach past the end of the range, which the equations leave out, get slots of their own; and R is read
    once per block of S that fits memory, not once per S partition.
    Reference: Carman 2020, 4.4.4, equations 4.48 to 4.58; docs/algorithms/interval.md, 4.6.
    """

    slots: int = 0

    name: ClassVar[Algorithm] = "oip"
    reserved_frames: ClassVar[int] = 2

    def __post_init__(self) -> None:
        CostModel.__post_init__(self)
        if self.slots < 0:
            raise PlanError(f"{self.slots} slots were asked for; give at least 1, or 0 to have them chosen.")
        if not self.slots:
            object.__setattr__(self, "slots", choose_slots(self.r, self.s, self.t_f_s))

    @property
    def k(self) -> int:
        """Slots in use."""
        return self.slots

    def available_frames(self) -> int:
        """Frames beside R input and output (4.48)."""
        return self.memory.frames - self.reserved_frames

    def needed_frames(self) -> float:
        """Frames of S, left side of (4.48): the partitions of R's first slot need S up to its last partition."""
        return float(self.f_s)

    def slot_width(self) -> int:
        """Instants per slot, K (4.52)."""
        return math.ceil(max(self.r.time_range, self.s.time_range) / self.k)

    def starts_within(self, x: IntervalStatistics) -> float:
        """Q: starts of a slot from which an interval spans the smaller of its two possible numbers of slots.

        Corrected: + 1 where the source prints - 1 (for K = 5 and d = 13 the starts 0, 1 and 2, so three).
        """
        width = self.slot_width()
        return min(width, math.ceil(x.duration / width) * width - x.duration + 1)

    def groups(self, x: IntervalStatistics) -> Iterator[tuple[int, float]]:
        """Non-empty slot groups of one input, with the tuples of each partition in them (4.53)."""
        width, short = self.slot_width(), self.starts_within(x)
        span = math.ceil(x.duration / width)
        sizes = ((span, short * x.arrival_rate), (span + 1, (width - short) * x.arrival_rate))
        return ((i, size) for i, size in sizes if size != 0)

    def group_partitions(self, i: int) -> float:
        """Partitions that span `i` slots, |sl_i|: one from every slot in which rows start."""
        return self.used_slots()

    def used_slots(self) -> float:
        """Slots that the range covers, which are fewer than k when the rounded width overshoots it."""
        return max(self.r.time_range, self.s.time_range) / self.slot_width()

    def partition_joins(self, i: int, j: int) -> float:
        """Overlapping pairs of an R partition over `i` and an S partition over `j` slots (4.49 to 4.51).

        Corrected: counted directly, since the closed form only holds while k - i + 1 >= j - 1.
        """
        return lattice_pairs(self.group_partitions(i), self.group_partitions(j), 1 - j, i - 1)

    def partition_frames(self, tuples: float, tuples_per_frame: int) -> int:
        """Frames of a partition (4.54)."""
        return math.ceil(tuples / tuples_per_frame)

    def frames_written(self) -> float:
        """R once (4.55)."""
        return float(self.f_r)

    def n_spills(self) -> float:
        """Blocks of S beyond the first, each of which scans R again."""
        return self.n_blocks() - 1

    def n_blocks(self) -> int:
        """Blocks of S, each as large as memory beside R input and output."""
        return math.ceil(self.f_s / (self.memory.frames - self.reserved_frames))

    def frames_read(self) -> float:
        """Frames of the R partitions that overlap a block of S, summed over blocks.

        S is ordered by end slot. A block touches the end slots of its tuples and reaches back by the longest of
        them; an R partition reaches in from as many slots before as it spans beyond the first.
        """
        held = (self.memory.frames - self.reserved_frames) * self.t_f_s
        touched = held / (self.s.arrival_rate * self.slot_width()) + 1
        reach = touched + math.ceil(self.s.max_duration / self.slot_width())
        per_block = sum(
            self.partition_frames(t_r, self.t_f_r) * min(self.used_slots(), reach + i - 1)
            for i, t_r in self.groups(self.r)
        )
        return self.n_blocks() * per_block

    def cpu(self) -> float:
        """Nested loops over every overlapping pair of partitions (4.58)."""
        return sum(
            self.partition_joins(i, j) * t_r * t_s
            for (i, t_r), (j, t_s) in product(self.groups(self.r), self.groups(self.s))
        )


@dataclass(frozen=True, slots=True)
class DisjointPartitionCost(CostModel):
    """DIP: S is joined in batches held whole, R is read once per batch.

    Overflow passes of the partitioning are not in the source's I/O, nor here.
    Reference: Carman 2020, equations 4.59 to 4.65 and 4.72; docs/algorithms/interval.md, 4.7 and 4.8.
    """

    name: ClassVar[Algorithm] = "dip"
    reserved_frames: ClassVar[int] = 2

    def available_frames(self) -> int:
        """Frames beside input and output."""
        return self.memory.frames - self.reserved_frames

    def needed_frames(self) -> float:
        """Frames of the larger input: S is partitioned in the same memory after R."""
        return float(max(self.f_r, self.f_s))

    def n_partitions(self, x: IntervalStatistics) -> float:
        """Disjoint partitions of one input, its active tuples: (4.60), (4.72)."""
        return max(1.0, x.active)

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

    def cpu(self) -> float:
        """Pairs, and one comparison per R tuple and S tuple that ends with it (4.65)."""
        return self.join_size() + self.r.rows * self.s.arrival_rate
