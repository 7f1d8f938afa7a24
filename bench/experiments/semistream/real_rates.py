"""The rates of chapters 5 to 8 and of Naeem 2014 by the clock: master data on the real disk and in a real database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid
from bench.experiments.parts import Part
from bench.experiments.semistream.axes import over
from bench.experiments.semistream.counting import MILLION, Point
from bench.experiments.semistream.judging import grid, judged, ratios
from bench.experiments.semistream.media import DISK, ClockRunner, ClockWork, on_stores
from bench.experiments.semistream.timing import Timed
from dovetail.joins.semistream.options import Lookup

INLJ, MESH, R_MESH, HYBRID, POSITION = "INLJ", "MESHJOIN", "R-MESHJOIN", "HYBRIDJOIN", "HYBRIDJOIN, second position"
X, OPTIMISED, CACHE, OURS = (
    "X-HYBRIDJOIN",
    "Optimised X-HYBRIDJOIN",
    "CACHEJOIN, unsorted",
    "HYBRIDJOIN in rounds (ours)",
)
JOINS = {
    INLJ: Point(divide=1, algorithm="inlj"),
    MESH: Point(divide=1, algorithm="meshjoin"),
    R_MESH: Point(divide=1, algorithm="r_meshjoin"),
    HYBRID: Point(divide=1),
    POSITION: Point(divide=1, lookup=Lookup("alternate", 0.3)),
    X: Point(divide=1, algorithm="x_hybridjoin"),
    OPTIMISED: Point(divide=1, algorithm="optimised_x_hybridjoin"),
    CACHE: Point(divide=1, algorithm="cachejoin", order="none"),
    OURS: Point(divide=1, lookup=Lookup("guarded", 0.3)),
}
_Curves = dict[str, list[Timed]]


def measure(runner: ClockRunner, axis: str, values: Sequence[float], names: Sequence[str]) -> _Curves:
    """Every join at every value of an axis; `rows` are master rows at the source's scale."""
    found = {name: list[Timed]() for name in names}
    for value in values:
        for name in names:
            point = replace(JOINS[name], divide=runner.divide, **{axis: value})  # type: ignore[arg-type]  # a field
            found[name].append(runner.count(point, rounds=name == OURS))
    return found


def rates(found: _Curves) -> dict[str, list[float]]:
    """Rows a second."""
    return {name: [one.per_second for one in row] for name, row in found.items()}


def drawn(found: _Curves, axis: str, values: Sequence[float]) -> tuple[list[Chart], list[Grid]]:
    """The rates as a chart and a table."""
    lines = {name: list(zip(values, row, strict=True)) for name, row in rates(found).items()}
    rows = [(value, *(row[at] for row in rates(found).values())) for at, value in enumerate(values)]
    return [Chart("Service rate", axis, "rows a second", lines, log_y=True)], [
        grid("Rows a second", (axis, *found), rows)
    ]


def _faster(found: dict[str, list[float]], first: str, second: str) -> Part:
    gains = over(found[first], found[second])
    return Part(f"{first} has {ratios(gains)} times the rate of {second}", min(gains) > 1)


def _order(found: dict[str, list[float]]) -> list[Part]:
    return [
        _faster(found, HYBRID, MESH),
        _faster(found, MESH, INLJ),
        _faster(found, X, HYBRID),
        _faster(found, OPTIMISED, X),
        _faster(found, CACHE, HYBRID),
        _faster(found, POSITION, HYBRID),
    ]


def _by(axis: str, shown: str, values: Sequence[float]) -> ClockWork:
    def run_it(bench: BenchContext, runner: ClockRunner) -> Findings:
        some = values if runner.medium is DISK else values[:: len(values) - 1]
        found = measure(runner, axis, some, tuple(JOINS))
        found_rates = rates(found)
        ours = over(found_rates[OURS], found_rates[HYBRID])
        note = f"Loaded in rounds, as the library does, HYBRIDJOIN has {ratios(ours)} times its rate. {runner.note}"
        return judged(_order(found_rates), note, *drawn(found, shown, some))

    return run_it


def _by_skew(bench: BenchContext, runner: ClockRunner) -> Findings:
    values = (0.0, 0.5, 1.0)
    found = measure(runner, "exponent", values, (MESH, HYBRID, POSITION, OPTIMISED, CACHE, OURS))
    by = rates(found)
    hybrid, second = over(by[HYBRID], by[MESH]), over(by[POSITION], by[HYBRID])
    cache = over(by[CACHE], by[HYBRID])
    checks = [
        Part(f"HYBRIDJOIN is below MESHJOIN for uniform keys: {hybrid[0]:.2f} times its rate", hybrid[0] < 1),
        Part(f"HYBRIDJOIN's advantage grows with skew: {ratios(hybrid)}", hybrid[-1] > 1.1 * hybrid[0]),
        Part(f"the gain of a second position grows with skew: {ratios(second)}", second[-1] > 1.1 * second[0]),
        Part(f"and it is no loss for uniform keys: {second[0]:.2f}", second[0] > 0.97),
        Part(f"CACHEJOIN's gain over HYBRIDJOIN grows with skew: {ratios(cache)}", cache[-1] > 1.1 * cache[0]),
    ]
    return judged(checks, runner.note, *drawn(found, "exponent", values))


_MASTER = tuple(int(n * MILLION) for n in (0.5, 2, 4))
_CLAIM = (
    "INLJ, MESHJOIN, HYBRIDJOIN, X-HYBRIDJOIN and Optimised X-HYBRIDJOIN are each faster than the one before, "
    "CACHEJOIN and a second look-up position faster than HYBRIDJOIN, {what} (exponent 1)."
)
_BY_ROWS = ("figure 5.7 (c)", "figure 6.3 (a)", "figure 7.4 (a)", "figure 8.3 (a)", "Naeem 2014 figure 5 (b)")
_BY_MEMORY = ("figure 5.7 (d)", "figure 6.3 (b)", "figure 7.4 (b)", "figure 8.3 (b)", "Naeem 2014 figure 5 (a)")
_BY_SKEW = ("figure 5.7 (e)", "figure 8.3 (c)", "Naeem 2014 figure 5 (c)")
_SKEW_CLAIM = (
    "HYBRIDJOIN is below MESHJOIN for uniform keys only and its advantage grows with skew, as the gains of CACHEJOIN "
    "and of a second look-up position do, the latter without a loss for uniform keys."
)


EXPERIMENTS = (
    *on_stores(
        "master-rate",
        _BY_ROWS,
        _CLAIM.format(what="for any size of the master data"),
        _by("rows", "master rows of the source", _MASTER),
    ),
    *on_stores(
        "memory-rate",
        _BY_MEMORY,
        _CLAIM.format(what="with any memory"),
        _by("memory_mb", "memory of the source, MB", (50, 150, 250)),
    ),
    *on_stores("skew-rate", _BY_SKEW, _SKEW_CLAIM, _by_skew),
)
