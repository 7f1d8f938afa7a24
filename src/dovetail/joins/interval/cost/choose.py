"""The algorithm for a join: avoid a spill first, then the fewest comparisons or the least time, then frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.interval.cost.frames import FrameMemory
from dovetail.joins.interval.cost.join_size import Variant
from dovetail.joins.interval.cost.mixture import MODELS
from dovetail.joins.interval.cost.model import Algorithm
from dovetail.joins.interval.cost.price import Price, Request, UnitCosts, price
from dovetail.joins.interval.cost.statistics import IntervalStatistics

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
    unit_costs: UnitCosts | None = None,
    variant: Variant = "corrected",
    slots: int = 0,
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
    request = Request(left, right, memory, tuple(relations), strict, variant, slots)
    candidates = [(a, swapped) for a in algorithms for swapped in _orientations(a, left, right)]
    prices = [price(request, a, swapped=swapped, unit_costs=unit_costs) for a, swapped in candidates]
    return Choice(tuple(sorted(prices, key=_rank)))


def _orientations(algorithm: Algorithm, left: IntervalStatistics, right: IntervalStatistics) -> tuple[bool, ...]:
    return (False, True) if algorithm in _ORIENTED and left != right else (False,)


def _rank(p: Price) -> tuple[bool, float, float, float]:
    cpu = p.comparisons if p.cpu_seconds is None else p.cpu_seconds
    io = p.frames if p.io_seconds is None else p.io_seconds
    return (p.spills, *((io, cpu) if p.spills else (cpu, io)), p.needed_frames)
