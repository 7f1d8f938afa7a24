"""Chapters 5 to 8 and Naeem 2014 by the clock: rates, costs and tuning over stores of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid
from bench.experiments.parts import Part
from bench.experiments.semistream.judging import grid, judged, ratios
from bench.experiments.semistream.media import DISK, ClockRunner, ClockWork, Timed, built, on_stores
from bench.experiments.semistream.points import MILLION, Point, over
from dovetail.engine.profile import load_profile
from dovetail.joins.semistream.cost import Policy, Prediction, Setting, Sizes, UnitCosts, Zipf, from_profile, predict
from dovetail.joins.semistream.cost.measure_reads import measured_reads
from dovetail.joins.semistream.lookup import Lookup
from dovetail.joins.semistream.master.pages import Pages


def units_of(pages: Pages) -> UnitCosts:
    """This machine's costs: reads of this store as they were just timed; rows come from an array, not from the JVM."""
    return replace(from_profile(load_profile(), read=measured_reads(pages)), receive=0.0)


def calculated(of: Point, pages: Pages, costs: UnitCosts) -> Prediction:
    """What the model says of the join that is built for this point."""
    join = built(of, pages)
    rows, n_pages = int(pages.starts[-1]), len(pages.starts) - 1
    each = rows / n_pages
    segment = max(1, round((join.sizes.per_segment or 1) * each))
    kept = join.sizes.cached or round((join.sizes.pinned or 0) * each)
    policy = Policy(lookup="oldest", cache="random", threshold=5)
    order = "none" if of.order == "none" else "frequency"
    stored = pages.stored_bytes(0, n_pages) / rows
    setting = Setting(2**40, Zipf(rows, of.exponent), costs=costs, order=order, policy=policy, stored_row_bytes=stored)  # type: ignore[arg-type]  # an order
    sizes = Sizes(segment, kept, join.sizes.parts or 1, None if of.algorithm == "inlj" else join.sizes.waiting)
    return predict(of.algorithm, setting, sizes)


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

_NAMES = (INLJ, MESH, R_MESH, HYBRID, X, OPTIMISED, CACHE)

_MEMORY = (50, 150, 250)

_CLOSE = 0.25

_PLACES = (
    "figure 3.8",
    "figure 4.8 (a)",
    "figure 5.8",
    "figure 6.9",
    "figure 7.5",
    "figure 8.4",
    "Naeem 2011 figure 8",
)


def _costs(bench: BenchContext, runner: ClockRunner) -> Findings:
    rows, pages = [], runner.pages(2 * MILLION // runner.divide)
    costs = units_of(pages)
    for name in _NAMES:
        for memory in _MEMORY if name != INLJ else _MEMORY[:1]:
            of = replace(JOINS[name], divide=runner.divide, memory_mb=memory)
            rows.append((name, memory, runner.count(of), calculated(of, pages, costs)))
    return _judged(runner, rows)


def _judged(runner: ClockRunner, rows: Sequence[tuple[str, float, Timed, Prediction]]) -> Findings:
    table, checks = [], []
    for name, memory, found, model in rows:
        us, by_model = 1e6 / found.per_second, 1e6 / model.mu
        w = 1 / model.loads_per_tuple
        table.append((name, memory, us, by_model, by_model / us - 1, found.rows_per_load, w))
    for name in _NAMES:
        off = [row[4] for row in table if row[0] == name]
        says = f"{name}: {min(off):+.0%} to {max(off):+.0%}" if len(off) > 1 else f"{name}: {off[0]:+.0%}"
        checks.append(Part(says, max(map(abs, off)) <= _CLOSE))
    loads = max(abs(row[6] / row[5] - 1) for row in table)
    note = (
        f"Calculated microseconds a row against the clock; {_CLOSE:.0%} was allowed. Rows per load are predicted "
        f"within {loads:.0%}; the rest is unit costs. {runner.note}"
    )
    lines = {name: [(r[2], r[3]) for r in table if r[0] == name] for name in _NAMES}
    chart = Chart("A stream row", "measured, us", "calculated, us", lines, log_x=True, log_y=True)
    heads = ("join", "memory, MB", "us a row, measured", "calculated", "off by", "rows per load", "calculated")
    return judged(checks, note, [chart], [grid("Exponent 1", heads, table)])


_COST_CLAIM = "Calculated costs are close to measured ones, for every join."

_SEGMENTS = (250, 500, 1000, 2000)

_PINNED = (500, 1000, 2000, 4000)

_CACHES = (16_000, 32_000, 64_000, 128_000)

_TABLE = 64_000  # rows in the table while segments are tuned

_NEAR = 0.1


@dataclass(frozen=True, slots=True)
class _Curve:
    """Rates over one size, by the clock and by the model."""

    size: str
    values: Sequence[int]
    clock: list[float]
    model: list[float]

    @property
    def regret(self) -> float:
        """What the size that the model would take loses against the best one."""
        return 1 - self.clock[self.model.index(max(self.model))] / max(self.clock)

    def says(self) -> str:
        """The best sizes by both."""
        best, chosen = (self.values[rates.index(max(rates))] for rates in (self.clock, self.model))
        return f"the best {self.size} is {chosen:,} by the model and {best:,} by the clock"


def _curve(runner: ClockRunner, plain: Point, field: str, size: str, values: Sequence[int]) -> _Curve:
    points = [replace(plain, **{field: value}) for value in values]  # type: ignore[arg-type]  # a field
    pages = runner.pages(plain.master_rows)
    costs = units_of(pages)
    model = [calculated(point, pages, costs).mu for point in points]
    return _Curve(size, values, [runner.rate(point) for point in points], model)


def _tuned(bench: BenchContext, runner: ClockRunner, name: str) -> Findings:
    plain = replace(JOINS[name], divide=runner.divide)
    if name == X:
        curves = [_curve(runner, replace(plain, pinned=2000), "segment", "d_S", _SEGMENTS),
                  _curve(runner, plain, "pinned", "d_N", _PINNED)]  # fmt: skip
    else:
        curves = [_curve(runner, replace(plain, cached=_TABLE), "segment", "d", _SEGMENTS),
                  _curve(runner, plain, "cached", "h_R", _CACHES)]  # fmt: skip
    checks = [
        Part(f"{of.says()}, which loses {of.regret:.0%} of the rate ({_NEAR:.0%} was allowed)", of.regret <= _NEAR)
        for of in curves
    ]
    off = [m / c - 1 for of in curves for m, c in zip(of.model, of.clock, strict=True)]
    checks.append(Part(f"calculated rates lie {min(off):+.0%} to {max(off):+.0%} from the clock's (25 % was allowed)",
                       max(map(abs, off)) <= 0.25))  # fmt: skip
    if name == X:
        best, untuned = max(rate for of in curves for rate in of.clock), runner.rate(plain)
        checks.append(
            Part(f"tuned it has {best / untuned:.2f} times the rate (significant: 1.1)", best > 1.1 * untuned)
        )
    charts, tables = [], []
    for of in curves:
        lines = {"clock": [*zip(of.values, of.clock, strict=True)], "model": [*zip(of.values, of.model, strict=True)]}
        charts.append(Chart(f"{name}: {of.size}", of.size, "rows a second", lines, log_x=True))
        tables.append(grid(f"By {of.size}", (of.size, "rows/s by the clock", "by the model"),
                           zip(of.values, of.clock, of.model, strict=True)))  # fmt: skip
    return judged(checks, f"Our models with this machine's unit costs. {runner.note}", charts, tables)


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
    *on_stores("cost", _PLACES, _COST_CLAIM, _costs),
    *on_stores(
        "x-tuning-by-model",
        ("figure 6.7", "figure 6.8"),
        "Tuning by calculation agrees with tuning by measurement, and tuned X-HYBRIDJOIN is significantly faster.",
        partial(_tuned, name=X),
    ),
    *on_stores(
        "optimised-tuning-by-model",
        ("figure 7.3",),
        "Tuning Optimised X-HYBRIDJOIN by calculation agrees with tuning by measurement.",
        partial(_tuned, name=OPTIMISED),
    ),
    *on_stores(
        "cache-tuning-by-model",
        ("figure 8.2",),
        "Tuning CACHEJOIN by calculation agrees with tuning by measurement.",
        partial(_tuned, name=CACHE),
    ),
)
