"""The algorithm for a join: its model over mixed inputs, its price, and the cheapest of the five."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from dovetail.engine.profile import Profile
from dovetail.errors import PlanError
from dovetail.joins.interval.cost.model import Algorithm, CostModel, expected_pairs
from dovetail.joins.interval.cost.partitions import DisjointPartitionCost, OverlapPartitionCost, choose_slots
from dovetail.joins.interval.cost.sampled import SWEEPS, SampledSide, follow
from dovetail.joins.interval.cost.statistics import FrameMemory, IntervalStatistics
from dovetail.joins.interval.cost.sweeps import ForwardScanCost, SortMergeCost, TimeSweepCost

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
    longest, all arriving at the summed rate. `slots` are OIP's; 0 becomes
    the number that is best for the whole inputs.
    Reference: Carman 2020, 4.4.6, equations 4.66 to 4.72; docs/algorithms/interval.md, 4.8.
    """

    algorithm: Algorithm
    r: IntervalStatistics
    s: IntervalStatistics
    memory: FrameMemory
    slots: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in MODELS:
            raise PlanError(f"unknown algorithm {self.algorithm!r}; the algorithms are {', '.join(MODELS)}.")
        if self.algorithm == "oip" and not self.slots:
            chosen = choose_slots(self.r, self.s, self.memory.tuples_per_frame(self.s.tuple_bytes))
            object.__setattr__(self, "slots", chosen)

    def _model(self, r: IntervalStatistics, s: IntervalStatistics) -> CostModel:
        if self.algorithm == "oip":
            return OverlapPartitionCost(r, s, self.memory, self.slots)
        return MODELS[self.algorithm](r, s, self.memory)

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
            return held_r + self.r.max_duration * self.s.arrival_rate / t_f_s
        return self.worst_case().needed_frames()

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
        """Frames read back by the spilling join; for OIP the sum over subrelations of R (4.71).

        A block of S holds all of its subrelations.
        """
        if self.algorithm == "oip":
            return sum(self._model(part, self.s).frames_read() for part in self.r.subrelations())
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
        if self.algorithm == "oip":
            return max(self.join_size(), sum(pair.cpu() for pair in self._pairs()))
        return self._model(self.r, self.s).cpu()

    def _sweep_cpu(self) -> float:
        if not self.spills():
            return self.join_size()
        worst = TimeSweepCost(self.r.worst_case(), self.s.worst_case(), self.memory)
        return self.join_size() + worst.unproductive()


@dataclass(frozen=True, slots=True)
class Price:
    """The predicted cost of one algorithm. `swapped` means that the operator's R is the right input.

    Frames and spills are zero for a join that stays in memory. `slots` is OIP's k, otherwise zero. `copied_bytes` are
    those of held rows that move when a window is refilled, where samples tell them. Seconds are absent without unit
    costs.
    """

    algorithm: Algorithm
    swapped: bool
    spills: bool
    needed_frames: float
    available_frames: int
    rows: float
    comparisons: float
    n_spills: float = 0.0
    frames_written: float = 0.0
    frames_read: float = 0.0
    slots: int = 0
    copied_bytes: float = 0.0
    cpu_seconds: float | None = None
    io_seconds: float | None = None

    @property
    def frames(self) -> float:
        """Frames written and read, C_IO."""
        return self.frames_written + self.frames_read

    @property
    def seconds(self) -> float | None:
        """Predicted seconds, without the reading and sorting of inputs that all algorithms share."""
        if self.cpu_seconds is None or self.io_seconds is None:
            return None
        return self.cpu_seconds + self.io_seconds

    @property
    def label(self) -> str:
        """The algorithm, with its orientation where the inputs are exchanged."""
        return f"{self.algorithm} (swapped)" if self.swapped else self.algorithm


@dataclass(frozen=True, slots=True)
class Setting:
    """The input of a price: both inputs, the relations, and the join memory."""

    left: IntervalStatistics
    right: IntervalStatistics
    memory: FrameMemory
    relations: tuple[str, ...] = ("overlapping",)
    strict: bool = False
    samples: tuple[SampledSide, SampledSide] | None = None
    partitioning: FrameMemory | None = None

    def memory_of(self, algorithm: Algorithm) -> FrameMemory:
        """The memory for tuples of an algorithm: joins that partition need room to order rows, and hold fewer."""
        return self.memory if algorithm in SWEEPS or self.partitioning is None else self.partitioning


def price(setting: Setting, algorithm: Algorithm, *, swapped: bool, unit_costs: Profile | None = None) -> Price:
    """The price of `algorithm` for `setting`.

    Comparisons and frames are those of the overlapping join, which bound those of the narrower relations. A join with
    an empty input costs nothing. Seconds also include the cost of keeping a row, which comparisons leave out: if rows
    have few partners, it is most of the difference between the algorithms.
    """
    bare = _unpriced(setting, algorithm, swapped)
    if unit_costs is None:
        return bare
    frame_bytes = setting.memory_of(algorithm).frame_bytes
    # DIP keeps a file per partition, so that its frames are spread over the disk
    read_s = unit_costs.page_read_s(frame_bytes, sequential=algorithm != "dip")
    return replace(
        bare,
        cpu_seconds=unit_costs.compare.seconds * bare.comparisons
        + unit_costs.emit.seconds * bare.rows
        + unit_costs.insert.seconds * bare.copied_bytes / _COPIED_BYTES
        + _keeping_s(setting, algorithm, swapped, bare.rows, unit_costs),
        io_seconds=unit_costs.page_write_s(frame_bytes) * bare.frames_written + read_s * bare.frames_read,
    )


_ROW_COSTS: Final[dict[Algorithm, tuple[float, float]]] = {
    "sort_merge": (1.5, 0.0),
    "forward_scan": (0.8, 0.8),
    "time_sweep": (1.7, 1.7),
    "oip": (2.0, 2.0),
    "dip": (2.0, 2.0),
}
"""Of a row of R and of S, in insertions, fitted to settings of the exam that are not held out
(`bench/experiments/models/exam.py`): sort-merge reads S where it lies and pays for R, the other sweeps select rows of
both, partitioned rows are sorted."""
_COPIED_BYTES: Final = 16  # of a held row that are copied in the time of an insertion
_REFILLED: Final = 0.2  # of the memory for active tuples: input that refills a window at a time
_PAIR_COSTS: Final[dict[Algorithm, float]] = {"sort_merge": 14.0, "time_sweep": 4.0}
"""Of a pair, in comparisons beside its own: sort-merge visits active rows one by one, forward scan finds runs."""


def _keeping_s(setting: Setting, algorithm: Algorithm, swapped: bool, pairs: float, unit_costs: Profile) -> float:
    """Seconds for rows and pairs beside comparisons and output."""
    left, right = setting.left.rows, setting.right.rows
    if not left or not right:
        return 0.0
    (r, s), (of_r, of_s) = (right, left) if swapped else (left, right), _ROW_COSTS[algorithm]
    rows = unit_costs.insert.seconds * (of_r * r + of_s * s)
    return rows + unit_costs.compare.seconds * _PAIR_COSTS.get(algorithm, 0.0) * pairs


def _unpriced(setting: Setting, algorithm: Algorithm, swapped: bool) -> Price:
    r, s = (setting.right, setting.left) if swapped else (setting.left, setting.right)
    if not r.rows or not s.rows:
        return Price(algorithm, swapped, False, 0.0, setting.memory.frames, 0.0, 0.0)
    cost = MixedCost(algorithm, r, s, setting.memory_of(algorithm))
    held = Price(
        algorithm=algorithm,
        swapped=swapped,
        spills=cost.spills(),
        needed_frames=cost.needed_frames(),
        available_frames=cost.available_frames(),
        rows=expected_pairs(setting.left, setting.right, setting.relations, strict=setting.strict),
        comparisons=cost.cpu(),
        slots=cost.slots if algorithm == "oip" else 0,
    )
    if setting.samples is not None and algorithm in SWEEPS:
        return _followed(held, setting, setting.samples[::-1] if swapped else setting.samples)
    if setting.samples is not None:
        return _partitioned(held, cost)
    if not held.spills:
        return held
    n_spills = max(1.0, math.floor(cost.n_spills()))
    return replace(held, n_spills=n_spills, frames_written=cost.frames_written(), frames_read=cost.frames_read())


def _followed(held: Price, setting: Setting, samples: tuple[SampledSide, SampledSide]) -> Price:
    """The price with memory and frames as the samples tell them."""
    memory, widest = setting.memory, max(side.row_bytes for side in samples)
    capacity = memory.tuples(widest) * widest
    moved = follow(held.algorithm, *samples, capacity)
    sizes = [1 / memory.tuples_per_frame(side.row_bytes) for side in samples]
    written, read = (
        sum(rows * size for rows, size in zip(what, sizes, strict=True)) for what in (moved.written, moved.read)
    )
    refills = sum(side.each * len(side.start) for side in samples) / (capacity * _REFILLED)
    return replace(
        held,
        spills=moved.needed > capacity,
        needed_frames=moved.needed / capacity * memory.frames,
        available_frames=memory.frames,
        n_spills=moved.spills,
        frames_written=written,
        frames_read=read,
        copied_bytes=refills * moved.usual,
    )


def _partitioned(held: Price, cost: MixedCost) -> Price:
    """The price with memory and frames as our operators use them: both inputs stay in memory while they fit together.

    If they do not, R goes to disk, and S too if it does not fit alone.
    """
    memory = cost.memory
    f_r, f_s = (memory.frames_of(x.rows, x.tuple_bytes) for x in (cost.r, cost.s))
    held = replace(held, needed_frames=f_r + f_s, available_frames=memory.frames, spills=f_r + f_s > memory.frames)
    if not held.spills:
        return held
    if max(f_r, f_s) <= memory.frames or (f_s <= memory.frames and held.algorithm == "oip"):
        return replace(held, n_spills=1.0, frames_written=f_r, frames_read=f_r)
    inner = f_s if held.algorithm == "oip" else 0
    written, read = cost.frames_written() + inner, cost.frames_read() + inner
    return replace(held, n_spills=max(1.0, cost.n_spills()), frames_written=written, frames_read=read)


ALGORITHMS: Final[tuple[Algorithm, ...]] = tuple(MODELS)
_ORIENTED: Final = ("sort_merge", "oip", "dip")  # the sweep and the forward scan treat both inputs alike

_COLUMNS: Final = ("algorithm", "spills", "need", "of", "comparisons", "spill count", "frames", "seconds")


@dataclass(frozen=True, slots=True)
class Choice:
    """The winner and every price it was chosen from, best first."""

    prices: tuple[Price, ...]

    @property
    def best(self) -> Price:
        """The price of the algorithm to run."""
        return self.prices[0]

    @property
    def reason(self) -> str:
        """Why the winner won, in one line."""
        if not self.best.spills:
            losers = sum(p.spills for p in self.prices)
            rest = f"; {losers} of {len(self.prices)} would spill" if losers else ""
            cheap = "with the fewest comparisons" if self.best.cpu_seconds is None else "and takes the least time"
            return f"{self.best.label}: stays in memory {cheap}{rest}"
        return f"{self.best.label}: all candidates spill, this one moves the fewest frames"

    def explain(self) -> str:
        """The reason, the predicted rows, and the table of prices with the losers."""
        table = [_COLUMNS, *(_cells(p) for p in self.prices)]
        widths = [max(len(row[i]) for row in table) for i in range(len(_COLUMNS))]
        lines = [
            "  ".join(_pad(cell, w, i) for i, (cell, w) in enumerate(zip(row, widths, strict=True))) for row in table
        ]
        return "\n".join([self.reason, f"predicted rows: {self.best.rows:,.0f}", *(line.rstrip() for line in lines)])


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def _cells(p: Price) -> tuple[str, ...]:
    seconds = "-" if p.seconds is None else f"{p.seconds:.3g}"
    return (
        p.label,
        "yes" if p.spills else "no",
        f"{p.needed_frames:,.1f}",
        f"{p.available_frames:,}",
        f"{p.comparisons:,.0f}",
        f"{p.n_spills:,.0f}",
        f"{p.frames:,.0f}",
        seconds,
    )


def choose(
    left: IntervalStatistics,
    right: IntervalStatistics,
    memory: FrameMemory,
    *,
    algorithms: Sequence[Algorithm] = ALGORITHMS,
    relations: Sequence[str] = ("overlapping",),
    strict: bool = False,
    unit_costs: Profile | None = None,
    samples: tuple[SampledSide, SampledSide] | None = None,
    partitioning: FrameMemory | None = None,
) -> Choice:
    """The cheapest of `algorithms` for this join, with the price of every candidate in every orientation that differs.

    Candidates that stay in memory come first, by comparisons; those that spill by frames. Unit costs turn both into
    seconds, with what a kept row costs beside its comparisons, and tell dear writes from cheap reads; they do not
    change the order of the rules. Ties go to the algorithm that needs less memory.
    Reference: Carman 2020, 4.6 and chapter 5; docs/algorithms/interval.md, 4.9.
    """
    unknown = [a for a in algorithms if a not in MODELS]
    if unknown or not algorithms:
        raise PlanError(f"algorithms {unknown or 'none'} were given; choose among {', '.join(MODELS)}.")
    setting = Setting(left, right, memory, tuple(relations), strict, samples, partitioning)
    candidates = [(a, swapped) for a in algorithms for swapped in _orientations(a, left, right)]
    prices = [price(setting, a, swapped=swapped, unit_costs=unit_costs) for a, swapped in candidates]
    return Choice(tuple(sorted(prices, key=_rank)))


def _orientations(algorithm: Algorithm, left: IntervalStatistics, right: IntervalStatistics) -> tuple[bool, ...]:
    return (False, True) if algorithm in _ORIENTED and left != right else (False,)


def _rank(p: Price) -> tuple[bool, float, float, float]:
    cpu = p.comparisons if p.cpu_seconds is None else p.cpu_seconds
    io = p.frames if p.io_seconds is None else p.io_seconds
    return (p.spills, *((io, cpu) if p.spills else (cpu, io)), p.needed_frames)
