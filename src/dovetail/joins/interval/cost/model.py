"""The common part of the cost models: the number of pairs, whether a join spills, its comparisons and its frames.

The number of pairs is estimated for whole inputs, for partitions of them, and for every Allen relation.
Notation: T rows, lambda arrival rate, d duration, range = instants at which rows start.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.statistics import FrameMemory, IntervalStatistics

Range = tuple[float, float]
_Offsets = Callable[[float, float], Range]

_EMPTY: Final[Range] = (1.0, 0.0)


def _point(at: float, holds: bool) -> Range:
    return (at, at) if holds else _EMPTY


_STRICT: Final[dict[str, _Offsets]] = {
    "contains": lambda r, s: (1, r - s - 1),
    "during": lambda r, s: (r - s + 1, -1),
    "starts": lambda r, s: _point(0, r < s),
    "started_by": lambda r, s: _point(0, r > s),
    "finishes": lambda r, s: _point(r - s, r < s),
    "finished_by": lambda r, s: _point(r - s, r > s),
}

# low <= S.start - R.start <= high, for R of duration r and S of duration s (table 6.2 of the source)
_OFFSETS: Final[dict[str, _Offsets]] = {
    "overlapping": lambda r, s: (1 - s, r - 1),
    "before": lambda r, s: (r + 1, math.inf),
    "after": lambda r, s: (-math.inf, -s - 1),
    "meets": lambda r, s: (r, r),
    "met_by": lambda r, s: (-s, -s),
    "overlaps": lambda r, s: (max(1, r - s + 1), r - 1),
    "overlapped_by": lambda r, s: (1 - s, min(-1, r - s - 1)),
    "covers": lambda r, s: (0, r - s),
    "covered_by": lambda r, s: (r - s, 0),
    "starts": lambda r, s: _point(0, r <= s),
    "started_by": lambda r, s: _point(0, r >= s),
    "ends": lambda r, s: _point(r - s, r <= s),
    "ended_by": lambda r, s: _point(r - s, r >= s),
    "equals": lambda r, s: _point(0, r == s),
    "contains": _STRICT["contains"],
    "during": _STRICT["during"],
    "finishes": _STRICT["finishes"],
    "finished_by": _STRICT["finished_by"],
}

_STRICT_NAMES: Final = {"covers": "contains", "covered_by": "during", "ends": "finishes", "ended_by": "finished_by"}

RELATIONS: Final = tuple(_OFFSETS)


def offset_ranges(relations: Iterable[str], d_r: float, d_s: float, *, strict: bool = False) -> tuple[Range, ...]:
    """Disjoint ranges of S.start - R.start in which at least one relation holds, ascending.

    `strict` reads covers, starts, ends and their inverses as Allen's relations; Allen's own names always are.
    """
    found = sorted(x for x in (_offsets(name, strict)(d_r, d_s) for name in relations) if x[0] <= x[1])
    merged: list[Range] = []
    for low, high in found:
        if merged and low < merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _offsets(name: str, strict: bool) -> _Offsets:
    if name not in _OFFSETS:
        raise PlanError(f"unknown relation {name!r}; the relations are {', '.join(RELATIONS)}.")
    if strict:
        allen = _STRICT_NAMES.get(name, name)
        return _STRICT.get(allen, _OFFSETS[allen])
    return _OFFSETS[name]


def lattice_pairs(n: float, m: float, low: float, high: float) -> float:
    """Pairs (x, y) of whole numbers, 0 <= x < n and 0 <= y < m, with low <= y - x <= high.

    A closed form; for fractional arguments a smooth continuation that treats both sides alike.
    """
    low, high = max(low, -n), min(high, m)
    if n <= 0 or m <= 0 or high < low:
        return 0.0
    forth = _at_most(n, m, high) - _at_most(n, m, low - 1)
    back = _at_most(m, n, -low) - _at_most(m, n, -high - 1)
    return max(0.0, min(n * m, (forth + back) / 2))


def _at_most(n: float, m: float, h: float) -> float:
    # the quarter plane above the diagonal is a triangle; inclusion and exclusion cut the n x m box out of it
    return _triangle(n + h) - _triangle(h) - _triangle(n + h - m) + _triangle(h - m)


def _triangle(z: float) -> float:
    return z * (z + 1) / 2 if z > 0 else 0.0


def expected_pairs(
    r: IntervalStatistics, s: IntervalStatistics, relations: Iterable[str] = ("overlapping",), *, strict: bool = False
) -> float:
    """Result rows of a join on any of `relations`, each pair once, summed over the classes of both inputs.

    Equal to JE_single (Carman 2020, 4.3) for "overlapping" over one range, and exact when the same number of rows
    starts at every instant. Unlike (4.3), it is also right for inputs over different ranges and for durations beyond
    the range. Relations that ask for equal durations are exact only where a class has a single length.
    """
    names = tuple(relations)
    if not names:
        raise PlanError("no relation was given; name at least one.")
    return math.fsum(_class_pairs(a, b, names, strict) for a in r.subrelations() for b in s.subrelations())


def _class_pairs(r: IntervalStatistics, s: IntervalStatistics, relations: tuple[str, ...], strict: bool) -> float:
    if not r.rows or not s.rows:
        return 0.0
    shift = s.start_min - r.start_min
    ranges = offset_ranges(relations, r.duration, s.duration, strict=strict)
    pairs = sum(lattice_pairs(r.time_range, s.time_range, low - shift, high - shift) for low, high in ranges)
    return r.arrival_rate * s.arrival_rate * pairs


Algorithm = Literal["sort_merge", "time_sweep", "forward_scan", "oip", "dip"]


@dataclass(frozen=True, slots=True)
class CostModel(ABC):
    """One local join of R (`r`, left) with S (`s`, right), each of one duration, in a join memory.

    `frames_written`, `frames_read`, `io` and `n_spills` describe the spilling run; they are undefined if `spills()` is
    false. CPU is the number of comparisons, I/O the frames that the join itself writes and reads. Slips of the source's
    equations are removed, and the number of spills per phase does not go negative.
    Reference: Carman 2020, 4.2 to 4.4; docs/algorithms/interval.md, 4.1 to 4.7.
    """

    r: IntervalStatistics
    s: IntervalStatistics
    memory: FrameMemory

    name: ClassVar[Algorithm]
    reserved_frames: ClassVar[int]

    def __post_init__(self) -> None:
        if not self.r.rows or not self.s.rows:
            raise PlanError("an input without rows has no cost model; such a join returns nothing and reads nothing.")

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
        return expected_pairs(self.r, self.s)

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
    def of(cls, total: float, warm_up: float, cool_down: float) -> Phases:
        """`total` spills in phases; the outer phases count no more spills than there are."""
        warm_up = min(warm_up, total)
        cool_down = min(cool_down, total - warm_up)
        return cls(warm_up, total - warm_up - cool_down, cool_down)


def sum_to(n: float) -> float:
    """1 + 2 + ... + n, continued smoothly to fractional n."""
    return n * (n + 1) / 2
