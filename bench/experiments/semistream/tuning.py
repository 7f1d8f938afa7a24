"""Buffers, caches and what an iteration costs: chapters 5 to 8, by runs, by the printed equations and by our models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.experiment import Chart, Findings, Grid, Part, by_column, close, judged, wave
from bench.experiments.semistream import printed as equation
from bench.experiments.semistream.media import ClockRunner, Runner, built, measured_reads
from bench.experiments.semistream.points import (
    CACHE,
    HYBRID,
    INLJ,
    MESH,
    MILLION,
    OPTIMISED,
    R_MESH,
    Point,
    X,
    at,
    best_by_model,
    count,
    master_rows,
    memories,
)
from bench.experiments.semistream.printed import UNITS
from bench.simulation import SOURCE_DISK
from dovetail.engine.profile import load_profile
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import MODELS, predict
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS, Policy, Prediction, Setting, UnitCosts, from_profile
from dovetail.joins.semistream.master.pages import Order, Pages
from dovetail.joins.semistream.sizes import Sizes

TABLE_5_2 = {
    "read": 9_939_229, "remove": 572_032, "receive": 408_641, "admit": 391_092, "probe": 1_308_500, "emit": 218_000,
}  # fmt: skip
LOOP_S, W_5, RATE_5 = 0.012837, 109, 8_491
BUFFERS = (125, 250, 500, 1000, 2000, 4000, 8000, 16_000)
SWAPPED = (250, 500, 1000, 2000, 4000, 8000)
PINNED = (0, 1, 2, 4, 8, 16)  # of 500 rows
SEGMENTS = (250, 500, 1000, 2000, 4000, 8000, 16_000)
CACHES = (4000, 8000, 16_000, 32_000, 64_000, 128_000)


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


def tables(runner: Runner) -> Findings:
    """Tables 5.1 and 5.2: how they add up, and what was counted."""
    found, total = count(runner.point(HYBRID)), sum(TABLE_5_2.values()) / 1e9
    parts = [
        close("the sum of table 5.1", 0.059 + 47.66 + 2.24, 49.959, 1e-6),
        close("the sum of table 5.2", total, LOOP_S, 1e-3),
        close("109 rows over that time", equation.eq_5_4(w=W_5, c_loop=total), RATE_5, 1e-3),
        close("w as counted", found.rows_per_load, W_5, 0.1),
        close("the rate as counted", found.per_second, RATE_5, 0.1),
    ]
    readings = [
        ("kappa 1.36 as printed, 512 rows", 159.6, 7.5, 313_074, equation.eq_5_2(h_s=313_074, d=512, r_t=2e6)),
        ("queue nodes of 12 bytes", 255.3, 12.0, 195_734, equation.eq_5_2(h_s=195_734, d=512, r_t=2e6)),
        ("fudge factor 8, 12 bytes (ours)", 160.0, 12.0, 304_470, equation.eq_5_2(h_s=304_470, d=500, r_t=2e6)),
    ]
    heads = ("reading of table 5.1", "bytes in the table", "in the queue", "h_S", "w by 5.2")
    steps = [(name, cost, cost / 1e9 / total) for name, cost in TABLE_5_2.items()]
    tables = Grid("Readings", heads, readings), Grid("Table 5.2, ns", ("step", "cost", "share"), steps)
    return judged(parts, f"No one set of printed constants gives table 5.1. {runner.note}", *tables)


def buffer(runner: Runner) -> Findings:
    """Figure 5.3: rates over the disk buffer."""
    plain, orders = runner.point(HYBRID), {"in order of use": "key", "in any order": "none"}
    curves = {
        name: [
            (d * 120 / 1e6, runner.rate(replace(plain, segment=d, order=order)))  # type: ignore[arg-type]  # an order
            for d in (BUFFERS[::2] if runner.few else BUFFERS)
        ]
        for name, order in orders.items()
    }
    in_order, shuffled = curves.values()
    best, other = (max(points, key=lambda point: point[1]) for points in (in_order, shuffled))
    share = dict(in_order)[0.06] / best[1]
    parts = [
        (f"the rate rises and falls with one maximum, {best[1]:,.0f} rows/s", wave([r for _, r in in_order], 0.02)),
        (f"it is at 60 kB: found at {best[0]:.2g} MB, where 60 kB reach {share:.0%} of it", 0.04 <= best[0] <= 0.09),
    ]
    chart = Chart("HYBRIDJOIN, exponent 1", "disk buffer, MB", "rows a second", curves, log_x=True)
    note = (
        f"With master data in any order the maximum is at {other[0]:.2g} MB, {other[1]:,.0f} rows/s; in order of use "
        f"one large segment has so much of the stream that its load empties the queue. {runner.note}"
    )
    return judged(parts, note, chart)


def pinned_rows(runner: Runner) -> Findings:
    """Figure 6.4: rows that the pinned part answers."""
    rooms = memories(runner.bench)
    found = [runner.count(runner.point(X, memory_mb=memory)) for memory in rooms]
    through = [4000 * of.rows_per_load * of.cached_share / 1e6 for of in found]
    parts = [
        (f"{through[0]:.2f} million rows went through the pinned part at 50 MB, printed 0.4", 0.3 < through[0] < 0.6),
        (f"and {through[-1]:.2f} million at 250 MB, printed above 2", through[-1] > 2),
    ]
    rows = list(zip(rooms, through, strict=True))
    grid = Grid("In 4,000 iterations: million rows", ("memory, MB", X), rows)
    return judged(parts, runner.note, grid.chart("million rows", title="In 4,000 iterations"), grid)


def _map(
    found: dict[tuple[int, int], float], axes: tuple[str, str], curves: dict[str, list[float]], note: str
) -> Findings:
    """Rates over two sizes; over each of them the rate rises, then falls."""
    parts = [
        (f"{over} the rate is {', '.join(f'{rate:,.0f}' for rate in rates)}: it rises, then falls", wave(rates, 0.01))
        for over, rates in curves.items()
    ]
    best = max(found, key=found.__getitem__)
    points = [(*sizes, rate) for sizes, rate in sorted(found.items())]
    chart = Chart("Rows a second", *axes, {"rate": points}, kind="heat")
    return judged(parts, f"The best of the grid is {best[0]:,} and {best[1]:,}. {note}", chart)


def x_map(runner: Runner) -> Findings:
    """Figure 6.5."""
    plain, few = runner.point(X), runner.few
    swapped, pinned = (SWAPPED[1:4], PINNED[::2]) if few else (SWAPPED, PINNED)
    sizes = {(d, -(-500 * p // d) * d) for d in swapped for p in pinned} | {(d, max(500, d)) for d in swapped}
    found = {size: runner.rate(replace(plain, segment=size[0], pinned=size[1])) for size in sorted(sizes)}
    curves = {
        "over the pinned rows with 500 swapped": [found[500, 500 * p] for p in pinned],
        "over the swapped rows": [found[d, max(500, d)] for d in swapped],
    }
    return _map(found, ("swapped rows, d_S", "pinned rows, d_N"), curves, runner.note)


def cache_map(runner: Runner) -> Findings:
    """Figure 7.2."""
    plain, few = runner.point(OPTIMISED), runner.few
    caches, segments = (CACHES[3:], SEGMENTS[1:4]) if few else (CACHES, SEGMENTS[1:])
    room = caches[-1] if few else 64_000
    sizes = [(d, n) for n in caches for d in segments if n // plain.divide >= d]  # the table holds whole segments
    found = {(d, n): runner.rate(replace(plain, segment=d, cached=n)) for d, n in sizes}
    curves = {
        "over h_R at 500 rows a segment": [found[500, n] for n in caches],
        f"over d with {room:,} rows in the table": [found[d, room] for d in segments if (d, room) in found],
    }
    return _map(found, ("rows of a segment, d", "rows in the table, h_R"), curves, runner.note)


def by_equations(runner: Runner, join: str, within: str, why: str) -> Findings:
    """Sizes of the segment, then of what is kept in memory, by counts, by the equations and by our model."""
    plain = runner.point(join)
    if join == X:
        by_segment = [replace(plain, segment=d, pinned=max(500, d)) for d in SWAPPED]
        by_kept = [replace(plain, pinned=500 * p) for p in PINNED[1:]]
    else:
        by_segment = [replace(plain, segment=d, cached=64_000) for d in SEGMENTS]
        by_kept = [replace(plain, cached=n) for n in CACHES]
    rows = []
    for point in (*by_segment, *by_kept):
        found = count(point)
        by = printed(point, found.rows_per_load)
        reached = found.rows_per_load * (1.0 if join == X else 1 - found.cached_share)
        kept = point.pinned if join == X else point.cached
        rows.append((point.segment, kept or 0, reached, by.w, found.per_second, by.rate, point.predicted().mu))
    off, ours = ([row[i] / row[4] - 1 for row in rows] for i in (5, 6))
    first, second = rows[: len(by_segment)], rows[len(by_segment) :]
    parts = [
        (f"calculated rates lie {min(off):+.0%} to {max(off):+.0%} from counted ones, printed: within {within}",
         max(map(abs, off)) < 0.05),
    ]  # fmt: skip
    sizes = (("d_N", 1, second),) if join == X else (("d", 0, first), ("h_R", 1, second))
    for size, place, some in sizes:
        best, by_them = (max(some, key=lambda row, i=i: row[i])[place] for i in (4, 5))  # type: ignore[misc]  # a key
        parts.append((f"the best {size} is {by_them:,} by the equations and {best:,} counted", best == by_them))
    low = [row[2] / row[3] for row in rows]
    note = (
        f"{why}: w is {min(low):.1f} to {max(low):.1f} times what they say. Our model is within "
        f"{max(map(abs, ours)):.0%}. {runner.note}"
    )
    lines = {"counted": 4, "printed": 5, "our model": 6}
    charts = [
        Chart(size, size, "rows a second", {n: [(r[place], r[i]) for r in some] for n, i in lines.items()}, log_x=True)
        for size, place, some in sizes
    ]
    heads = ("d", "kept", "w counted", "w by the equations", "rows/s counted", "by the equations", "our model")
    return judged(parts, note, *charts, Grid("Counted and calculated", heads, rows))


def x_tuned(runner: Runner) -> Findings:
    """Figure 6.8."""
    plain, gains, shown = runner.point(X), list[float](), list[Chart | Grid]()
    axes = {"master rows": ("rows", master_rows(runner.bench)), "memory, MB": ("memory_mb", memories(runner.bench))}
    for name, (axis, values) in axes.items():
        rows = []
        for value in values:
            untuned = at(plain, **{axis: value})
            choices = [replace(untuned, segment=d, pinned=d * n) for d in (500, 2000, 4000, 8000) for n in (1, 2, 4)]
            tuned = best_by_model(choices)
            rows.append((value, runner.rate(untuned), runner.rate(tuned), tuned.segment, tuned.pinned or 0))
        gains += [row[2] / row[1] for row in rows]
        grid = Grid(f"By {name}", (name, "untuned, rows/s", "tuned", "d_S", "d_N"), rows)
        shown += [grid.chart("rows a second", {"untuned": 1, "tuned": 2}, log_x=axis == "rows"), grid]
    says = f"tuned it has {min(gains):.2f} to {max(gains):.2f} times the rate (significant: 1.1)"
    note = f"Sizes chosen by our model, rates counted. {runner.note}"
    return judged([(says, min(gains) > 1.1)], note, *shown)


def loop_cost(runner: Runner, join: str) -> Findings:
    """Seconds of an iteration by memory: counted, by the equations, by our model."""
    rows = []
    for memory in memories(runner.bench):
        point = runner.point(join, memory_mb=memory)
        found = count(point)
        by = printed(point, found.rows_per_load)
        rows.append((memory, found.rows_per_load / found.per_second, by.rows / by.rate, point.predicted().c_loop))
    theirs, ours = (max(abs(row[i] / row[1] - 1) for row in rows) for i in (2, 3))
    parts = [
        (f"an iteration by the equations is within {theirs:.0%} of counts (10 % was allowed)", theirs < 0.1),
        (f"by our model within {ours:.0%} (10 % was allowed)", ours < 0.1),
    ]
    grid = Grid("An iteration, exponent 1", ("memory, MB", "counted, s", "by the equations", "our model"), rows)
    return judged(parts, runner.note, grid.chart("seconds"), grid)


def hybrid_cost(runner: Runner) -> Findings:
    """Figure 5.8."""
    rows: list[tuple[str, int, float, float, float | None, float, float, float | None]] = []
    for name in (INLJ, MESH, HYBRID):
        for memory in memories(runner.bench) if name != INLJ else (50,):
            point = runner.point(name, memory_mb=memory)
            found, model = count(point), point.predicted()
            by = printed(point, 0) if name == HYBRID else None
            loop = found.rows_per_load / found.per_second
            theirs = (by.rows / by.rate, by.rate) if by else (None, None)
            rows.append((name, memory, loop, model.c_loop, theirs[0], found.per_second, model.mu, theirs[1]))
    hybrid = [row for row in rows if row[0] == HYBRID]
    ours = max(abs(row[3] / row[2] - 1) for row in rows)
    loops = max(abs((row[4] or 0) / row[2] - 1) for row in hybrid)
    rates = max(abs((row[7] or 0) / row[5] - 1) for row in hybrid)
    parts = [
        (f"costs of an iteration by our models are within {ours:.1%} of counts (5 % was allowed)", ours < 0.05),
        (f"HYBRIDJOIN's printed ones, 5.2 and 5.3, within {loops:.1%} (10 % was allowed)", loops < 0.1),
        (f"rates by 5.4 within {rates:.1%} (10 % was allowed)", rates < 0.1),
    ]
    lines = {
        name: [(r[1], r[i] or 0.0) for r in hybrid] for name, i in (("counted", 2), ("our model", 3), ("printed", 4))
    }
    chart = Chart("HYBRIDJOIN: an iteration", "memory, MB", "seconds", lines)
    heads = ("join", "memory, MB", "counted, s", "our model", "printed", "counted, rows/s", "our model", "printed")
    grid = Grid("An iteration, exponent 1", heads, rows)
    return judged(parts, f"Equation 5.2 has 1.36 where 2 is right. {runner.note}", chart, grid)


def units_of(pages: Pages) -> UnitCosts:
    """This machine's costs: reads of this store as they were just timed; rows come from an array, not from the JVM."""
    return replace(from_profile(load_profile(), read=measured_reads(pages)), receive=0.0)


def calculated(of: Point, pages: Pages, costs: UnitCosts) -> Prediction:
    """What our model says of the join that is built for this point over a store of this machine."""
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


_PRICED = (INLJ, MESH, R_MESH, HYBRID, X, OPTIMISED, CACHE)
_CLOSE = 0.25


def costs_by_clock(runner: ClockRunner) -> Findings:
    """Costs of a row by our models and by the clock, for every join."""
    pages, rows = runner.pages(2 * MILLION // runner.divide), []
    costs = units_of(pages)
    for name in _PRICED:
        for memory in (50, 150, 250) if name != INLJ else (50,):
            of = runner.point(name, memory_mb=memory)
            found, model = runner.count(of), calculated(of, pages, costs)
            us, by_model, w = 1e6 / found.per_second, 1e6 / model.mu, 1 / model.loads_per_tuple
            rows.append((name, memory, us, by_model, by_model / us - 1, found.rows_per_load, w))
    parts = []
    for name in _PRICED:
        off = [row[4] for row in rows if row[0] == name]
        says = f"{name}: {min(off):+.0%} to {max(off):+.0%}" if len(off) > 1 else f"{name}: {off[0]:+.0%}"
        parts.append((says, max(map(abs, off)) <= _CLOSE))
    loads = max(abs(row[6] / row[5] - 1) for row in rows)
    note = (
        f"Calculated microseconds a row against the clock; {_CLOSE:.0%} was allowed. Rows per load are predicted "
        f"within {loads:.0%}; the rest is unit costs. {runner.note}"
    )
    lines = {name: [(r[2], r[3]) for r in rows if r[0] == name] for name in _PRICED}
    chart = Chart("A stream row", "measured, us", "calculated, us", lines, log_x=True, log_y=True)
    heads = ("join", "memory, MB", "us a row, measured", "calculated", "off by", "rows per load", "calculated")
    return judged(parts, note, chart, Grid("Exponent 1", heads, rows))


def tuned_by_model(runner: ClockRunner, join: str) -> Findings:
    """Rates over two sizes, by the clock and by the model: what the size that the model would take loses."""
    plain = runner.point(join)
    pages = runner.pages(plain.master_rows)
    costs = units_of(pages)
    sizes: dict[str, tuple[str, Sequence[int], Point]] = {
        "d": ("segment", (250, 500, 1000, 2000), replace(plain, cached=64_000)),
        "h_R": ("cached", (16_000, 32_000, 64_000, 128_000), plain),
    }
    if join == X:
        sizes = {
            "d_S": ("segment", (250, 500, 1000, 2000), replace(plain, pinned=2000)),
            "d_N": ("pinned", (500, 1000, 2000, 4000), plain),
        }
    parts, every, off, shown = list[Part](), list[float](), list[float](), list[Chart | Grid]()
    for size, (field, values, base) in sizes.items():
        points = [at(base, **{field: value}) for value in values]
        model, clock = [calculated(of, pages, costs).mu for of in points], [runner.rate(of) for of in points]
        best, chosen = (values[rates.index(max(rates))] for rates in (clock, model))
        regret = 1 - clock[model.index(max(model))] / max(clock)
        says = (
            f"the best {size} is {chosen:,} by the model and {best:,} by the clock: it loses {regret:.0%} of the rate"
        )
        parts.append((f"{says} (10 % was allowed)", regret <= 0.1))
        every += clock
        off += [m / c - 1 for m, c in zip(model, clock, strict=True)]
        grid = by_column(f"By {size}", size, values, {"rows/s by the clock": clock, "by the model": model})
        shown += [grid.chart("rows a second", title=f"{join}: {size}", log_x=True), grid]
    says = f"calculated rates lie {min(off):+.0%} to {max(off):+.0%} from the clock's (25 % was allowed)"
    parts.append((says, max(map(abs, off)) <= 0.25))
    if join == X:
        gain = max(every) / runner.rate(plain)
        parts.append((f"tuned it has {gain:.2f} times the rate (significant: 1.1)", gain > 1.1))
    return judged(parts, f"Our models with this machine's unit costs. {runner.note}", *shown)
