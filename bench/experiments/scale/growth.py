"""Growth curves: the same join over inputs of doubled size, timed, checked, and fitted by a line on two log scales."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid, Opinion
from dovetail.errors import DataError

DOUBLINGS: Final = 5
LINEAR: Final = 1.15
"""Slopes up to this count as near-linear: doubled input takes at most 2.2 times as long."""
IN_PART: Final = 1.4
"""Up to this slope, the claim of linear growth still holds in part, even if no curve is near-linear."""
ROUNDS: Final = 2
_CONSTANT: Final = 0.25  # of the time of the smallest size; where less is added, a slope says nothing


@dataclass(frozen=True, slots=True)
class Prepared:
    """One size of input, ready: how much it is, the answer by another way, and the run that gives it.

    The answer is a number of rows, or where `rows` says how many there are, another figure.
    """

    size: float
    expected: int
    run: Callable[[], int]
    release: Callable[[], object] = lambda: None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """What one size took at best, and how many answers it has."""

    size: float
    seconds: float
    answers: int


Prepare = Callable[[BenchContext, int], Prepared]


def sizes(first: int) -> list[int]:
    """A size and its doublings."""
    return [first << n for n in range(DOUBLINGS + 1)]


def timed(prepared: Prepared, name: str, rounds: int = ROUNDS) -> Point:
    """The best of some rounds; DataError where a run gives another number of answers than it should."""
    best = float("inf")
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            found = prepared.run()
            best = min(best, time.perf_counter() - began)
            if found != prepared.expected:
                raise DataError(f"{name} at {prepared.size:,.4g} gave {found:,}, not {prepared.expected:,}.")
    finally:
        prepared.release()
    return Point(prepared.size, best, prepared.expected if prepared.rows is None else prepared.rows)


def curves(bench: BenchContext, ways: Mapping[str, Prepare], at: Sequence[int]) -> dict[str, list[Point]]:
    """Every way at every size; one run at the smallest size, which is not timed, comes first."""
    for name, prepare in ways.items():
        timed(prepare(bench, at[0]), name, 1)
    return {name: [timed(prepare(bench, size), name) for size in at] for name, prepare in ways.items()}


def slope(points: Sequence[Point]) -> float:
    """The exponent of growth: the slope of the line through log seconds over log size."""
    x, y = (np.log([getattr(point, name) for point in points]) for name in ("size", "seconds"))
    return float(np.polyfit(x, y, 1)[0])


def larger_half(points: Sequence[Point]) -> Sequence[Point]:
    """The points from the middle on, where the constant cost of a query weighs less."""
    return points[len(points) // 2 :]


def added_slope(points: Sequence[Point]) -> float | None:
    """The exponent of what the larger half takes beyond the smallest size, by what it has beyond it.

    It does not see the constant cost of a query. None where that is nearly all, so that chance would decide.
    """
    first = points[0]
    added = [Point(p.size - first.size, p.seconds - first.seconds, p.answers) for p in larger_half(points)]
    if min(point.seconds for point in added) < _CONSTANT * first.seconds:
        return None
    return slope(added)


def found(lines: Mapping[str, Sequence[Point]], unit: str, what: str) -> Findings:
    """The verdict: near-linear if the slopes over the larger half are, on every curve."""
    slopes = {name: slope(larger_half(points)) for name, points in lines.items()}
    added = {name: added_slope(points) for name, points in lines.items()}
    worst = {name: max(value, added[name] or 0.0) for name, value in slopes.items()}
    verdict = _verdict(worst.values())
    told = ", ".join(f"{name} {value:.2f} ({_shown(added[name])})" for name, value in slopes.items())
    first, last = next(iter(lines.values()))[0].size, next(iter(lines.values()))[-1].size
    why = (
        f"{what}, from {first:,.4g} to {last:,.4g} {unit} (doubled five times); slope of log seconds over log size in "
        f"the larger half, and in brackets of what is added to the smallest size: {told}. Near-linear is up to "
        f"{LINEAR:.2f} for both."
    )
    chart = Chart(
        "Growth with the input",
        unit,
        "seconds",
        {name: [(point.size, round(point.seconds, 4)) for point in points] for name, points in lines.items()},
        log_x=True,
        log_y=True,
    )
    rows: list[list[Cell]] = [
        [name, float(f"{p.size:.4g}"), round(p.seconds, 3), p.answers, float(f"{p.size / p.seconds:.4g}")]
        for name, points in lines.items()
        for p in points
    ]
    fits: list[list[Cell]] = [
        [name, round(slope(points), 3), round(slopes[name], 3), _shown(added[name])] for name, points in lines.items()
    ]
    tables = [
        Grid("Slopes", ("curve", "all sizes", "larger half", "larger half, beyond the smallest"), fits),
        Grid("Times", ("curve", unit, "seconds", "answers", f"{unit} a second"), rows),
    ]
    return Findings(verdict, why, [chart], tables, sum(p.answers for points in lines.values() for p in points))


def _verdict(slopes: Collection[float]) -> Opinion:
    """Holds if all curves are near-linear; in part if some are, or if none is much steeper."""
    if max(slopes) <= LINEAR:
        return "holds"
    return "holds in part" if min(slopes) <= LINEAR or max(slopes) <= IN_PART else "does not hold"


def _shown(value: float | None) -> str:
    return "all constant" if value is None else f"{value:.2f}"
