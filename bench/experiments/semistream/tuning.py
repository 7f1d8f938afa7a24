"""Costs of buffers, caches and iterations: chapters 5 to 8, by runs, by the printed equations and by our models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from bench.experiment import Chart, Grid, by_column
from bench.experiments.semistream import printed as equation
from bench.experiments.semistream.media import ClockRunner, Runner, built, measured_reads
from bench.experiments.semistream.points import HYBRID, INLJ, MESH, MILLION, Point, X, at, count, memories
from bench.experiments.semistream.printed import UNITS
from bench.experiments.semistream.sweeps import by_size
from bench.judge import Figures
from bench.simulation import SOURCE_DISK
from dovetail.calibrate.measure import calibrate
from dovetail.calibrate.unit_cost import QUICK
from dovetail.engine.profile import Profile
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import MODELS, predict
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS, Policy, Prediction, Setting, UnitCosts, from_profile
from dovetail.joins.semistream.master.pages import Order, Pages
from dovetail.joins.semistream.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Printed:
    """Rows of an iteration that the segment answers, all its rows, and the rate, by the printed equations."""

    w: float
    rows: float
    rate: float


def printed(point: Point, counted_rows: float) -> Printed:
    """By the equations of chapters 5 to 8 at the source's costs.

    (7.6) wants the rows per iteration of a whole run, which are what it is to give; the source measured them.
    """
    of, d, r_t = point.experiment(), point.segment, point.master_rows
    reading = SOURCE_DISK.read_s(d * 120)
    if point.algorithm == "hybridjoin":
        w = equation.eq_5_2(h_s=of.memory.waiting(d), d=d, r_t=r_t)
        return Printed(w, w, w / equation.eq_5_3(c_io=reading, d=d, w=w, **UNITS))
    if point.algorithm == "x_hybridjoin":
        pinned = point.cached_rows
        w = equation.eq_6_9(h_s=of.memory.waiting(d + pinned), d_s=d, d_n=pinned, r_t=r_t)
        return Printed(
            w, w, equation.eq_6_6(w=w, c_loop=equation.eq_6_5(c_io=reading, d_s=d, d_n=pinned, w=w, **UNITS))
        )
    h_r = max(2, of.cached)
    w_s = equation.eq_7_9(h_s=of.memory.waiting(d, of.cached), p_s=equation.eq_7_7(d=d, h_r=h_r, r_t=r_t))
    w_n = equation.eq_7_6(p_n=equation.eq_7_4(h_r=h_r, r_t=r_t), tuples=counted_rows, iterations=1)
    costs = {"c_io": reading, "d": float(d), "w_s": w_s, "w_n": w_n, **UNITS}
    loop = (
        equation.eq_8_1(c_f=SOURCE_COSTS.compare, **costs)
        if point.algorithm == "cachejoin"
        else equation.eq_7_2(**costs)
    )
    return Printed(w_s, w_s + w_n, equation.eq_7_3(w_n=w_n, w_s=w_s, c_loop=loop))


def tables(runner: Runner) -> Figures:
    """Tables 5.1 and 5.2: what was counted, and readings of the printed sizes."""
    found = count(runner.point(HYBRID))
    named = {"found": found, "eq_5_2": equation.eq_5_2, "note": runner.note}
    return Figures(named)


def by_equations(runner: Runner, join: str, within: str, why: str) -> Figures:
    """Sizes of the segment, then of what is kept in memory, by counts, by the equations and by our model."""
    rows, (by_segment, by_kept) = [], by_size(join, runner)
    for point in (*by_segment, *by_kept):
        found = count(point)
        by = printed(point, found.rows_per_load)
        reached = found.rows_per_load * (1.0 if join == X else 1 - found.cached_share)
        kept = point.pinned if join == X else point.cached
        rows.append((point.segment, kept or 0, reached, by.w, found.per_second, by.rate, point.predicted().mu))
    first, second = rows[: len(by_segment)], rows[len(by_segment) :]
    sizes = (("d_N", 1, second),) if join == X else (("d", 0, first), ("h_R", 1, second))
    best = [(size, *(max(some, key=lambda row, i=i: row[i])[place] for i in (4, 5))) for size, place, some in sizes]  # type: ignore[misc]  # a key
    lines = {"counted": 4, "printed": 5, "our model": 6}
    charts = [
        Chart(size, size, "rows a second", {n: [(r[place], r[i]) for r in some] for n, i in lines.items()}, log_x=True)
        for size, place, some in sizes
    ]
    heads = ("d", "kept", "w counted", "w by the equations", "rows/s counted", "by the equations", "our model")
    grid = Grid("Counted and calculated", heads, rows)
    more = {"best": best, "within": within, "why": why, "note": runner.note}
    return replace(Figures.of(rows, "d kept w w_by rate rate_by ours", **more), shown=[*charts, grid])


def loop_cost(runner: Runner, join: str, why: str) -> Figures:
    """Seconds of an iteration by memory: counted, by the equations, by our model."""
    rows = []
    for memory in memories(runner.bench):
        point = runner.point(join, memory_mb=memory)
        found = count(point)
        by = printed(point, found.rows_per_load)
        rows.append((memory, found.rows_per_load / found.per_second, by.rows / by.rate, point.predicted().c_loop))
    return Figures.of(rows, "memory counted by_equations ours", why=why, note=runner.note)


def hybrid_cost(runner: Runner) -> Figures:
    """Figure 5.8: iterations and rates of INLJ, MESHJOIN and HYBRIDJOIN, and by HYBRIDJOIN's printed equations."""
    rows: list[tuple[str, int, float, float, float | None, float, float, float | None]] = []
    for name in (INLJ, MESH, HYBRID):
        for memory in memories(runner.bench) if name != INLJ else (50,):
            point = runner.point(name, memory_mb=memory)
            found, model = count(point), point.predicted()
            by = printed(point, 0) if name == HYBRID else None
            loop = found.rows_per_load / found.per_second
            theirs = (by.rows / by.rate, by.rate) if by else (None, None)
            rows.append((name, memory, loop, model.c_loop, theirs[0], found.per_second, model.mu, theirs[1]))
    more = Figures.of([row for row in rows if row[0] == HYBRID], "h m loop loop_ours loop_printed rate r rate_printed")
    names = "join memory counted ours printed counted_rate ours_rate printed_rate"
    return Figures.of(rows, names, hybrid=more.named, note=runner.note)


@cache
def _calibrated() -> Profile:
    """The costs of steps on this machine as it is now, whether or not it was calibrated before."""
    return calibrate(QUICK, with_spark=False).profile


def units_of(pages: Pages) -> UnitCosts:
    """This machine's costs, as they were just timed: steps, and reads of this store; rows come from an array, not from
    the JVM."""
    return replace(from_profile(_calibrated(), read=measured_reads(pages)), receive=0.0)


def calculated(of: Point, pages: Pages, costs: UnitCosts) -> Prediction:
    """Our model's figures of the join that is built for this point over a store of this machine."""
    join, rows, n_pages = built(of, pages), int(pages.starts[-1]), len(pages.starts) - 1
    each = rows / n_pages
    kept = join.sizes.cached or round((join.sizes.pinned or 0) * each)
    order: Order = "none" if of.order == "none" else "frequency"
    setting = Setting(
        2**40,
        Zipf(rows, of.exponent),
        page_bytes=120,
        costs=costs,
        order=order,
        policy=Policy(lookup="oldest", cache="random", threshold=5),
        stored_row_bytes=pages.stored_bytes(0, n_pages) / rows,
    )
    segment = max(1, round((join.sizes.per_segment or 1) * each))
    waiting = None if of.algorithm == "inlj" else join.sizes.waiting
    sizes = Sizes(per_segment=segment, parts=join.sizes.parts or 1, waiting=waiting)
    return predict(of.algorithm, setting, MODELS[of.algorithm].keeping(sizes, kept, setting))


def costs_by_clock(runner: ClockRunner, joins: Sequence[str]) -> Figures:
    """Costs of a row by our models and by the clock, for every join."""
    pages, rows = runner.pages(2 * MILLION // runner.divide), []
    costs = units_of(pages)
    for name in joins:
        for memory in (50, 150, 250) if name != INLJ else (50,):
            of = runner.point(name, memory_mb=memory)
            found, model = runner.count(of), calculated(of, pages, costs)
            us, by_model, w = 1e6 / found.per_second, 1e6 / model.mu, 1 / model.loads_per_tuple
            rows.append((name, memory, us, by_model, by_model / us - 1, found.rows_per_load, w))
    off = {name: [row[4] for row in rows if row[0] == name] for name in joins}
    lines = {name: [(r[2], r[3]) for r in rows if r[0] == name] for name in joins}
    chart = Chart("A stream row", "measured, us", "calculated, us", lines, log_x=True, log_y=True)
    figures = Figures.of(rows, "join memory us ours off load load_ours", by_join=off, note=runner.note)
    return replace(figures, shown=[chart])


def tuned_by_model(runner: ClockRunner, join: str, sizes: Mapping[str, Mapping[str, Any]]) -> Figures:
    """Rates over sizes, by the clock and by the model: `best` and `chosen` sizes, and what the chosen one loses."""
    plain = runner.point(join)
    pages = runner.pages(plain.master_rows)
    costs, found, every = units_of(pages), [], list[float]()
    off, shown = list[float](), list[Chart | Grid]()
    for size, told in sizes.items():
        values, fields = told["values"], {name: value for name, value in told.items() if name not in ("values", "of")}
        points = [at(plain, **fields | {told["of"]: value}) for value in values]
        model, clock = [calculated(of, pages, costs).mu for of in points], [runner.rate(of) for of in points]
        best, chosen = (values[rates.index(max(rates))] for rates in (clock, model))
        found.append((size, best, chosen, 1 - clock[model.index(max(model))] / max(clock)))
        every += clock
        off += [m / c - 1 for m, c in zip(model, clock, strict=True)]
        grid = by_column(f"By {size}", size, values, {"rows/s by the clock": clock, "by the model": model})
        shown += [grid.chart("rows a second", title=f"{join}: {size}", log_x=True), grid]
    gain = max(every) / runner.rate(plain)
    return Figures({"sizes": found, "off": off, "gain": gain, "note": runner.note}, shown)
