"""The price of one algorithm in one orientation: memory, comparisons, frames, and seconds where costs are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from dovetail.joins.interval.cost.frames import FrameMemory
from dovetail.joins.interval.cost.join_size import Variant, expected_pairs
from dovetail.joins.interval.cost.mixture import MixedCost
from dovetail.joins.interval.cost.model import Algorithm
from dovetail.joins.interval.cost.statistics import IntervalStatistics


class UnitCost(Protocol):
    """The cost of one unit of work."""

    @property
    def seconds(self) -> float:
        """Seconds for the unit."""


class UnitCosts(Protocol):
    """Seconds per unit of work on this machine; `dovetail.engine.profile.Profile` is one."""

    @property
    def compare(self) -> UnitCost:
        """One comparison of two rows."""

    @property
    def emit(self) -> UnitCost:
        """One result row."""

    @property
    def insert(self) -> UnitCost:
        """One row put where the join keeps it."""

    @property
    def evict(self) -> UnitCost:
        """One row taken out again, by itself."""

    def page_read_s(self, nbytes: int, sequential: bool = False) -> float:
        """Seconds to read a page of `nbytes`."""

    def page_write_s(self, nbytes: int) -> float:
        """Seconds to write a page of `nbytes`."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one algorithm would cost. `swapped` means that the operator's R is the right input.

    Frames and spills are zero for a join that stays in memory. `slots` is OIP's k, otherwise zero. Seconds are absent
    without unit costs.
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
class Request:
    """What is to be priced: the two inputs, the join memory, and how to read the equations."""

    left: IntervalStatistics
    right: IntervalStatistics
    memory: FrameMemory
    relations: tuple[str, ...] = ("overlapping",)
    strict: bool = False
    variant: Variant = "corrected"
    slots: int = 0


def price(request: Request, algorithm: Algorithm, *, swapped: bool, unit_costs: UnitCosts | None = None) -> Price:
    """The price of `algorithm` for `request`.

    Comparisons and frames are those of the overlapping join, which bound those of the narrower relations. A join with
    an empty input costs nothing. Seconds also count what a row costs that is kept, which the comparisons leave out:
    where rows find few partners, it is most of the difference between the algorithms.
    """
    bare = _unpriced(request, algorithm, swapped)
    if unit_costs is None:
        return bare
    frame_bytes = request.memory.frame_bytes
    # DIP keeps a file per partition, so that its frames come from all over the disk
    read_s = unit_costs.page_read_s(frame_bytes, sequential=algorithm != "dip")
    return replace(
        bare,
        cpu_seconds=unit_costs.compare.seconds * bare.comparisons
        + unit_costs.emit.seconds * bare.rows
        + _keeping_s(request, algorithm, swapped, unit_costs),
        io_seconds=unit_costs.page_write_s(frame_bytes) * bare.frames_written + read_s * bare.frames_read,
    )


def _keeping_s(request: Request, algorithm: Algorithm, swapped: bool, unit_costs: UnitCosts) -> float:
    """Seconds to keep rows: none that are scanned as they lie, S alone in a list, both in a heap or in partitions.

    Rows leave a list together, but a heap one by one; partitioned rows are put in order once more.
    """
    left, right = request.left.rows, request.right.rows
    if algorithm == "forward_scan" or not left or not right:
        return 0.0
    if algorithm == "sort_merge":
        return unit_costs.insert.seconds * (left if swapped else right)
    return (unit_costs.insert.seconds + unit_costs.evict.seconds) * (left + right)


def _unpriced(request: Request, algorithm: Algorithm, swapped: bool) -> Price:
    r, s = (request.right, request.left) if swapped else (request.left, request.right)
    if not r.rows or not s.rows:
        return Price(algorithm, swapped, False, 0.0, request.memory.frames, 0.0, 0.0)
    refined = request.variant == "corrected"
    cost = MixedCost(algorithm, r, s, request.memory, request.variant, request.slots, refined)
    held = Price(
        algorithm=algorithm,
        swapped=swapped,
        spills=cost.spills(),
        needed_frames=cost.needed_frames(),
        available_frames=cost.available_frames(),
        rows=expected_pairs(request.left, request.right, request.relations, strict=request.strict),
        comparisons=cost.cpu(),
        slots=cost.slots if algorithm == "oip" else 0,
    )
    if not held.spills:
        return held
    n_spills = max(1.0, math.floor(cost.n_spills()))
    return replace(held, n_spills=n_spills, frames_written=cost.frames_written(), frames_read=cost.frames_read())
