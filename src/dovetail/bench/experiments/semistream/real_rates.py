"""The rates of chapters 5 to 8 and of seed 004 by the clock: master data on the real disk and in a real database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from dovetail.bench.experiment import Chart, Experiment, Findings, Grid
from dovetail.bench.experiments.parts import Part
from dovetail.bench.experiments.semistream.axes import over
from dovetail.bench.experiments.semistream.counting import MEASURES, MILLION
from dovetail.bench.experiments.semistream.judging import grid, judged, ratios
from dovetail.bench.experiments.semistream.timing import NEEDS_SERVER, Real, Timed, page_file, run, server_table
from dovetail.bench.workbench import Workbench
from dovetail.semistream.lookup import Lookup
from dovetail.semistream.master.pages import Pages

INLJ, MESH, R_MESH, HYBRID, POSITION = "INLJ", "MESHJOIN", "R-MESHJOIN", "HYBRIDJOIN", "HYBRIDJOIN, second position"
X, OPTIMISED, CACHE, OURS = (
    "X-HYBRIDJOIN",
    "Optimised X-HYBRIDJOIN",
    "CACHEJOIN, unsorted",
    "HYBRIDJOIN in rounds (ours)",
)
JOINS = {
    INLJ: Real(algorithm="inlj"),
    MESH: Real(algorithm="meshjoin"),
    R_MESH: Real(algorithm="r_meshjoin"),
    HYBRID: Real(algorithm="hybridjoin"),
    POSITION: Real(algorithm="hybridjoin", lookup=Lookup("alternate", 0.3)),
    X: Real(algorithm="x_hybridjoin"),
    OPTIMISED: Real(algorithm="optimised_x_hybridjoin"),
    CACHE: Real(algorithm="cachejoin", scattered=True),
    OURS: Real(algorithm="hybridjoin", lookup=Lookup("guarded", 0.3), ours=True),
}
Store = Callable[[Workbench, int], AbstractContextManager[Pages]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the master data is: how it is opened, and what master rows and memory are divided by."""

    name: str
    store: Store
    small: int
    full: int

    def divide(self, bench: Workbench) -> int:
        """What the source's sizes are divided by."""
        return self.full if bench.scale == "full" else self.small

    def note(self, bench: Workbench) -> str:
        """Where and at what scale, in a sentence."""
        kind = "a page file, as far as it is not in the system's cache," if self.name == "disk" else "PostgreSQL here"
        return (
            f"By the clock, master data in {kind} at 1/{self.divide(bench)} of the source's master data and memory, "
            "h_S/n_p = 76 at 50 MB and 2 million rows; every answer was checked."
        )


DISK = Place("disk", page_file, small=10, full=1)
DATABASE = Place("database", server_table, small=25, full=4)
_Curves = dict[str, list[Timed]]


def measure(bench: Workbench, place: Place, axis: str, values: Sequence[float], names: Sequence[str]) -> _Curves:
    """Every join at every value of an axis; `rows` are master rows at the source's scale."""
    divide, found = place.divide(bench), {name: list[Timed]() for name in names}
    for value in values:
        rows = int(value if axis == "rows" else 2 * MILLION) // divide
        with place.store(bench, rows) as pages:
            for name in names:
                of = JOINS[name] if axis == "rows" else replace(JOINS[name], **{axis: value})  # type: ignore[arg-type]  # a field
                found[name].append(run(of, pages, divide, place.name))
    return found


def rates(found: _Curves) -> dict[str, list[float]]:
    """Rows a second."""
    return {name: [one.per_second for one in row] for name, row in found.items()}


def checked(found: _Curves) -> int:
    """Rows whose answers were checked."""
    return sum(one.checked for row in found.values() for one in row)


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


def _by(axis: str, shown: str, values: Sequence[float], place: Place) -> Callable[[Workbench], Findings]:
    def run_it(bench: Workbench) -> Findings:
        found = measure(bench, place, axis, values, tuple(JOINS))
        found_rates = rates(found)
        ours = over(found_rates[OURS], found_rates[HYBRID])
        note = (
            f"Loaded in rounds, as the library does, HYBRIDJOIN has {ratios(ours)} times its rate. {place.note(bench)}"
        )
        return judged(_order(found_rates), note, *drawn(found, shown, values), rows=checked(found))

    return run_it


def _by_skew(place: Place) -> Callable[[Workbench], Findings]:
    values = (0.0, 0.5, 1.0)

    def run_it(bench: Workbench) -> Findings:
        found = measure(bench, place, "exponent", values, (MESH, HYBRID, POSITION, OPTIMISED, CACHE, OURS))
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
        return judged(checks, place.note(bench), *drawn(found, "exponent", values), rows=checked(found))

    return run_it


_MASTER = tuple(int(n * MILLION) for n in (0.5, 2, 4))
_CLAIM = (
    "INLJ, MESHJOIN, HYBRIDJOIN, X-HYBRIDJOIN and Optimised X-HYBRIDJOIN are each faster than the one before, "
    "CACHEJOIN and a second look-up position faster than HYBRIDJOIN, {what} (exponent 1)."
)
_BY_ROWS = ("figure 5.7 (c)", "figure 6.3 (a)", "figure 7.4 (a)", "figure 8.3 (a)", "seed 004 figure 5 (b)")
_BY_MEMORY = ("figure 5.7 (d)", "figure 6.3 (b)", "figure 7.4 (b)", "figure 8.3 (b)", "seed 004 figure 5 (a)")
_BY_SKEW = ("figure 5.7 (e)", "figure 8.3 (c)", "seed 004 figure 5 (c)")
_SKEW_CLAIM = (
    "HYBRIDJOIN is below MESHJOIN for uniform keys only and its advantage grows with skew, as the gains of CACHEJOIN "
    "and of a second look-up position do, the latter without a loss for uniform keys."
)


def _timed(
    name: str, places: tuple[str, ...], claim: str, work: Callable[[Workbench], Findings], place: Place
) -> Experiment:
    needs = NEEDS_SERVER if place is DATABASE else ()
    of = ("semistream", "seed 000", places, claim, work, (*MEASURES, "bench/enrichment_server"), "measured")
    return Experiment(f"semistream-{name}", *of, requires=needs)  # type: ignore[arg-type]  # a ground


EXPERIMENTS = (
    _timed(
        "disk-master-rate",
        _BY_ROWS,
        _CLAIM.format(what="for any size of the master data"),
        _by("rows", "master rows of the source", _MASTER, DISK),
        DISK,
    ),
    _timed(
        "disk-memory-rate",
        _BY_MEMORY,
        _CLAIM.format(what="with any memory"),
        _by("memory_mb", "memory of the source, MB", (50, 150, 250), DISK),
        DISK,
    ),
    _timed("disk-skew-rate", _BY_SKEW, _SKEW_CLAIM, _by_skew(DISK), DISK),
    _timed(
        "database-master-rate",
        _BY_ROWS,
        _CLAIM.format(what="for any size of the master data"),
        _by("rows", "master rows of the source", _MASTER[:2], DATABASE),
        DATABASE,
    ),
    _timed(
        "database-memory-rate",
        _BY_MEMORY,
        _CLAIM.format(what="with any memory"),
        _by("memory_mb", "memory of the source, MB", (50, 250), DATABASE),
        DATABASE,
    ),
    _timed("database-skew-rate", _BY_SKEW, _SKEW_CLAIM, _by_skew(DATABASE), DATABASE),
)
