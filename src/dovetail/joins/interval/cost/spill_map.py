"""Where sort-merge, time sweep and forward scan run out of memory, over arrival rates and durations of S."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.forward_scan import ForwardScanCost
from dovetail.joins.interval.cost.frames import FrameMemory
from dovetail.joins.interval.cost.sort_merge import SortMergeCost
from dovetail.joins.interval.cost.statistics import IntervalStatistics
from dovetail.joins.interval.cost.time_sweep import TimeSweepCost

Streamed = Literal["sort_merge", "sort_merge (swapped)", "time_sweep", "forward_scan"]

_LETTERS: Final[dict[Streamed, str]] = {
    "sort_merge": "M",
    "sort_merge (swapped)": "m",
    "time_sweep": "T",
    "forward_scan": "F",
}


def uniform(arrival_rate: float, duration: float, time_range: float, tuple_bytes: float) -> IntervalStatistics:
    """An input of one duration in which `arrival_rate` rows start at every instant of `time_range`."""
    return IntervalStatistics(
        arrival_rate * time_range,
        0,
        time_range - 1 + duration,
        duration,
        duration,
        tuple_bytes,
        start_max=time_range - 1,
    )


def spilling(r: IntervalStatistics, s: IntervalStatistics, memory: FrameMemory) -> frozenset[Streamed]:
    """The streaming joins that would spill; sort-merge in both orientations."""
    tests: dict[Streamed, bool] = {
        "sort_merge": SortMergeCost(r, s, memory).spills(),
        "sort_merge (swapped)": SortMergeCost(s, r, memory).spills(),
        "time_sweep": TimeSweepCost(r, s, memory).spills(),
        "forward_scan": ForwardScanCost(r, s, memory).spills(),
    }
    return frozenset(name for name, spills in tests.items() if spills)


@dataclass(frozen=True, slots=True)
class SpillMap:
    """Spilling joins per duration (outer) and arrival rate (inner) of S, for a fixed R.

    OIP and DIP are left out: they spill by the size of their inputs alone.
    Reference: Carman 2020, 4.6, figures 4.12 and 4.13; docs/algorithms/interval.md, 4.9.
    """

    arrival_rates: tuple[float, ...]
    durations: tuple[float, ...]
    cells: tuple[tuple[frozenset[Streamed], ...], ...]

    def at(self, arrival_rate: float, duration: float) -> frozenset[Streamed]:
        """The joins that spill at one point of the grid."""
        try:
            return self.cells[self.durations.index(duration)][self.arrival_rates.index(arrival_rate)]
        except ValueError as missing:
            raise PlanError(
                f"rate {arrival_rate:g}, duration {duration:g} is not on the map; its rates are {self.arrival_rates}, "
                f"its durations {self.durations}."
            ) from missing

    def __str__(self) -> str:
        """The map, longest durations first: M m T F for sort-merge, swapped, time sweep, forward scan; '.' for none."""
        rows = zip(self.durations, self.cells, strict=True)
        body = [f"{d:>8g}  " + " ".join(_letters(cell) for cell in row) for d, row in sorted(rows, reverse=True)]
        return "\n".join(
            [*body, f"{'d_S':>8}  " + " ".join(f"{rate:<4g}" for rate in self.arrival_rates) + " lambda_S"]
        )


def _letters(cell: frozenset[Streamed]) -> str:
    return "".join(letter for name, letter in _LETTERS.items() if name in cell).ljust(4, ".")


def spill_map(
    arrival_rate_r: float,
    duration_r: float,
    arrival_rates: Sequence[float],
    durations: Sequence[float],
    memory: FrameMemory,
    *,
    tuple_bytes: float = 2_296,
    time_range: float = 10_000,
) -> SpillMap:
    """The map of every rate and duration of S given, for an R of one rate and duration; both sides alike in width."""
    r = uniform(arrival_rate_r, duration_r, time_range, tuple_bytes)
    cells = tuple(
        tuple(spilling(r, uniform(rate, d, time_range, tuple_bytes), memory) for rate in arrival_rates)
        for d in durations
    )
    return SpillMap(tuple(arrival_rates), tuple(durations), cells)
