"""Growth of each family: the same join over inputs of doubled size, timed, checked and fitted by a line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from bench.case import Scale
from bench.context import BenchContext
from bench.experiment import Chart, Grid
from bench.experiment import slope as power
from bench.judge import Figures
from bench.rivals.enrichment import matched, page_file, stream_rows
from bench.rivals.intervals import overlap_counts, to_sink, write_files
from bench.rivals.weather import QUERIES, answer, expected, megabytes, places
from dovetail.engine.kernels.arrays import I64
from dovetail.errors import DataError
from dovetail.joins.interval.api import interval_count, interval_join
from dovetail.joins.online.api import online_join
from dovetail.joins.semistream.api import enrich
from dovetail.workloads import Exponential, RandomIntervals
from dovetail.xml.api import plan_xquery

DOUBLINGS: Final = 5
ROUNDS: Final = 2
_CONSTANT: Final = 0.25  # of the time of the smallest size; where less is added, a slope says nothing
_FILES = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """One size of input, ready: how much it is, the answer by another way, and the run that gives it.

    The answer is a number of rows, or where `rows` says how many there are, another figure.
    """

    size: float
    expected: int
    run: Callable[[], int]
    release: Callable[[], object] = lambda: None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """The best time of one size, and how many answers it has."""

    size: float
    seconds: float
    answers: int


Prepare = Callable[[BenchContext, int], Prepared]


def sizes(first: int) -> list[int]:
    """A size and its doublings."""
    return [first << n for n in range(DOUBLINGS + 1)]


def timed(prepared: Prepared, name: str, rounds: int = ROUNDS) -> Point:
    """The best of some rounds; DataError where a run gives another number of answers than it should."""
    best = float("inf")
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            found = prepared.run()
            best = min(best, time.perf_counter() - began)
            if found != prepared.expected:
                raise DataError(f"{name} at {prepared.size:,.4g} gave {found:,}, not {prepared.expected:,}.")
    finally:
        prepared.release()
    return Point(prepared.size, best, prepared.expected if prepared.rows is None else prepared.rows)


def curves(bench: BenchContext, ways: Mapping[str, Prepare], at: Sequence[int]) -> dict[str, list[Point]]:
    """Every way at every size; one run at the smallest size, which is not timed, comes first."""
    for name, prepare in ways.items():
        timed(prepare(bench, at[0]), name, 1)
    return {name: [timed(prepare(bench, size), name) for size in at] for name, prepare in ways.items()}


def slope(points: Sequence[Point]) -> float:
    """The exponent of growth: the slope of the line through log seconds over log size."""
    return power([point.size for point in points], [point.seconds for point in points])


def larger_half(points: Sequence[Point]) -> Sequence[Point]:
    """The points from the middle on, where the constant cost of a query weighs less."""
    return points[len(points) // 2 :]


def added_slope(points: Sequence[Point]) -> float | None:
    """The exponent of what the larger half takes beyond the smallest size, by what it has beyond it.

    It does not see the constant cost of a query. None where that is nearly all, so that chance would decide.
    """
    first = points[0]
    added = [Point(p.size - first.size, p.seconds - first.seconds, p.answers) for p in larger_half(points)]
    return None if min(point.seconds for point in added) < _CONSTANT * first.seconds else slope(added)


def figures(lines: Mapping[str, Sequence[Point]], unit: str, what: str) -> Figures:
    """Slopes over the larger half of each curve, and of what is added to its smallest size."""
    slopes = {name: slope(larger_half(points)) for name, points in lines.items()}
    added = {name: added_slope(points) for name, points in lines.items()}
    drawn = {name: [(point.size, point.seconds) for point in points] for name, points in lines.items()}
    chart = Chart("Growth with the input", unit, "seconds", drawn, log_x=True, log_y=True)
    rows = [(name, p.size, p.seconds, p.answers, p.size / p.seconds) for name, points in lines.items() for p in points]
    fits = [(name, slope(points), slopes[name], added[name]) for name, points in lines.items()]
    slopes_grid = Grid("Slopes", ("curve", "all sizes", "larger half", "larger half, beyond the smallest"), fits)
    times = Grid("Times", ("curve", unit, "seconds", "answers", f"{unit} a second"), rows)
    first, *_, last = next(iter(lines.values()))
    named = {"slopes": slopes, "added": added, "what": what, "unit": unit, "first": first.size, "last": last.size}
    return Figures(named, [chart, slopes_grid, times], sum(row[3] for row in rows))


def _frame(bench: BenchContext, name: str, make: Callable[[], pa.Table]) -> DataFrame:
    """A table as files that are written once."""
    place = bench.scratch / name
    if not place.exists():
        write_files(make(), place, _FILES)
    return bench.spark.read.parquet(str(place))


def _interval(joined: bool, bench: BenchContext, rows: int) -> Prepared:
    """Twice the rows over twice the time, so that every row has as many partners; both inputs in Spark's cache."""
    tables = [
        RandomIntervals(rows, 100 * rows, Exponential(1_000), seed=seed).table().select(["id", "start", "end"])
        for seed in (1, 2)
    ]
    frames = [_frame(bench, f"i-{rows}-{n}", lambda t=t: t).cache() for n, t in enumerate(tables)]  # type: ignore[misc]  # bound
    for frame in frames:
        frame.count()
    left, right = frames

    def run() -> int:
        return to_sink(lambda: interval_join(left, right)).answer if joined else interval_count(left, right)

    pairs = int(overlap_counts(tables[0], tables[1]).sum())
    return Prepared(float(rows), pairs, run, lambda: [frame.unpersist(blocking=True) for frame in frames])


def side_keys(rows: int, side: int) -> I64:
    """Keys of one side, each of which about one row a side has."""
    return np.random.default_rng([rows, side]).integers(0, rows, rows)


def _online(memory: str, bench: BenchContext, rows: int) -> Prepared:
    """Both inputs doubled, in memory that holds them and in memory that does not."""
    keys = {name: side_keys(rows, side) for side, name in enumerate(("left", "right"))}

    def make(name: str) -> pa.Table:
        return pa.table({"key": keys[name], f"{name}_id": np.arange(rows), f"{name}_value": keys[name] * 0.5})

    left, right = (_frame(bench, f"online-{rows}-{name}", partial(make, name)) for name in keys)
    pairs = int(np.bincount(keys["left"], minlength=rows) @ np.bincount(keys["right"], minlength=rows))
    join = partial(online_join, left, right, on="key", memory=memory)
    return Prepared(float(rows), pairs, lambda: to_sink(join).answer)


MASTER_ROWS: dict[Scale, int] = {"small": 100_000, "full": 1_000_000}


def _enrichment(fixed: bool, bench: BenchContext, rows: int) -> Prepared:
    """More stream rows; as many master rows for all of them, else half as many as stream rows."""
    keys = MASTER_ROWS[bench.scale] if fixed else rows // 2
    frame = _frame(bench, f"stream-{rows}-{keys}", lambda: stream_rows(bench, keys, 0, rows))
    store = page_file(bench, keys)
    join = partial(enrich, frame, store, on="key", memory="8MB")
    return Prepared(float(rows), matched(rows), lambda: to_sink(join).answer)


def queried(query: str, bench: BenchContext, stations: int) -> Prepared:
    """Collections of twice the stations."""
    params = {"query": query, "stations": stations, "years": 10}
    where = places(bench, params)

    def run() -> int:
        return answer(query, [row.item for row in plan_xquery(bench.spark, QUERIES[query], where).frame().collect()])

    return Prepared(megabytes(where), expected(params), run, rows=1 if query == "7.4" else None)


WAYS: dict[str, Callable[..., Prepared]] = {
    "interval": _interval,
    "enrichment": _enrichment,
    "online": _online,
    "query": queried,
}


def growth(
    bench: BenchContext, ways: Mapping[str, Sequence[Any]], first: Mapping[str, int], unit: str, what: str
) -> Figures:
    """The curves of some joins, each what a function here makes of a word, from the smallest size on."""
    named = {
        name.format(master=MASTER_ROWS[bench.scale]): partial(WAYS[kind], told) for name, (kind, told) in ways.items()
    }
    return figures(curves(bench, named, sizes(first[bench.scale])), unit, what)
