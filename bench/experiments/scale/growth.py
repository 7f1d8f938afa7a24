"""Growth of each family: the same join over inputs of doubled size, timed, checked and fitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from bench.cases.interval_overlap import overlap_counts, sink_rows
from bench.context import BenchContext
from bench.enrichment import matched, page_file, stream_rows
from bench.experiment import Cell, Chart, Experiment, Findings, Grid, Opinion
from bench.xquery_weather import QUERIES, answer, expected, megabytes, places
from dovetail.engine.kernels.arrays import I64
from dovetail.errors import DataError
from dovetail.joins.interval.api import interval_count, interval_join
from dovetail.joins.online.api import online_join
from dovetail.joins.semistream.api import enrich
from dovetail.workloads import Exponential, RandomIntervals
from dovetail.xml.api import plan_xquery

DOUBLINGS: Final = 5

LINEAR: Final = 1.15

"""Slopes up to this count as near-linear: doubled input takes at most 2.2 times as long."""

IN_PART: Final = 1.4

"""Up to this slope, the claim of linear growth still holds in part, even if no curve is near-linear."""

ROUNDS: Final = 2

_CONSTANT: Final = 0.25  # of the time of the smallest size; where less is added, a slope says nothing


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
    """What one size took at best, and how many answers it has."""

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
    x, y = (np.log([getattr(point, name) for point in points]) for name in ("size", "seconds"))
    return float(np.polyfit(x, y, 1)[0])


def larger_half(points: Sequence[Point]) -> Sequence[Point]:
    """The points from the middle on, where the constant cost of a query weighs less."""
    return points[len(points) // 2 :]


def added_slope(points: Sequence[Point]) -> float | None:
    """The exponent of what the larger half takes beyond the smallest size, by what it has beyond it.

    It does not see the constant cost of a query. None where that is nearly all, so that chance would decide.
    """
    first = points[0]
    added = [Point(p.size - first.size, p.seconds - first.seconds, p.answers) for p in larger_half(points)]
    if min(point.seconds for point in added) < _CONSTANT * first.seconds:
        return None
    return slope(added)


def found(lines: Mapping[str, Sequence[Point]], unit: str, what: str) -> Findings:
    """The verdict: near-linear if the slopes over the larger half are, on every curve."""
    slopes = {name: slope(larger_half(points)) for name, points in lines.items()}
    added = {name: added_slope(points) for name, points in lines.items()}
    worst = {name: max(value, added[name] or 0.0) for name, value in slopes.items()}
    verdict = _verdict(worst.values())
    told = ", ".join(f"{name} {value:.2f} ({_shown(added[name])})" for name, value in slopes.items())
    first, last = next(iter(lines.values()))[0].size, next(iter(lines.values()))[-1].size
    why = (
        f"{what}, from {first:,.4g} to {last:,.4g} {unit} (doubled five times); slope of log seconds over log size in "
        f"the larger half, and in brackets of what is added to the smallest size: {told}. Near-linear is up to "
        f"{LINEAR:.2f} for both."
    )
    chart = Chart(
        "Growth with the input",
        unit,
        "seconds",
        {name: [(point.size, round(point.seconds, 4)) for point in points] for name, points in lines.items()},
        log_x=True,
        log_y=True,
    )
    rows: list[list[Cell]] = [
        [name, float(f"{p.size:.4g}"), round(p.seconds, 3), p.answers, float(f"{p.size / p.seconds:.4g}")]
        for name, points in lines.items()
        for p in points
    ]
    fits: list[list[Cell]] = [
        [name, round(slope(points), 3), round(slopes[name], 3), _shown(added[name])] for name, points in lines.items()
    ]
    tables = [
        Grid("Slopes", ("curve", "all sizes", "larger half", "larger half, beyond the smallest"), fits),
        Grid("Times", ("curve", unit, "seconds", "answers", f"{unit} a second"), rows),
    ]
    return Findings(verdict, why, [chart], tables, sum(p.answers for points in lines.values() for p in points))


def _verdict(slopes: Collection[float]) -> Opinion:
    """Holds if all curves are near-linear; in part if some are, or if none is much steeper."""
    if max(slopes) <= LINEAR:
        return "holds"
    return "holds in part" if min(slopes) <= LINEAR or max(slopes) <= IN_PART else "does not hold"


def _shown(value: float | None) -> str:
    return "all constant" if value is None else f"{value:.2f}"


FIRST_INTERVAL = {"small": 10_000, "full": 62_500}

_MEAN, _STEP = 1_000, 100  # lengths, and instants from one start to the next: some 20 partners a row

_FILES = 4


def _table(rows: int, seed: int) -> pa.Table:
    return RandomIntervals(rows, _STEP * rows, Exponential(_MEAN), seed=seed).table().select(["id", "start", "end"])


def _frames(bench: BenchContext, rows: int) -> tuple[list[DataFrame], int]:
    """Both inputs in Spark's cache, and the number of their pairs."""
    tables = [_table(rows, seed) for seed in (1, 2)]
    frames = []
    for side, table in zip("lr", tables, strict=True):
        place = bench.scratch / f"intervals-{rows}-{side}"
        place.mkdir(exist_ok=True)
        each = -(-rows // _FILES)
        for n in range(_FILES):
            pq.write_table(table.slice(n * each, each), place / f"{n}.parquet")
        frames.append(bench.spark.read.parquet(str(place)).cache())
        frames[-1].count()
    return frames, int(overlap_counts(tables[0], tables[1]).sum())


def _interval(joined: bool, bench: BenchContext, rows: int) -> Prepared:
    (left, right), pairs = _frames(bench, rows)

    def run() -> int:
        if not joined:
            return interval_count(left, right)
        interval_join(left, right).write.format("noop").mode("overwrite").save()
        return sink_rows(bench.spark)

    return Prepared(float(rows), pairs, run, lambda: [frame.unpersist(blocking=True) for frame in (left, right)])


def _run_interval(bench: BenchContext) -> Findings:
    ways = {"all pairs": partial(_interval, True), "their number": partial(_interval, False)}
    return found(
        curves(bench, ways, sizes(FIRST_INTERVAL[bench.scale])), "rows a side", "Overlap join with about 20 pairs a row"
    )


FIRST_ONLINE = {"small": 5_000, "full": 62_500}

AMPLE, SHORT = "32MB", "1MB"


def side_keys(rows: int, side: int) -> I64:
    """Keys of one side, each of which about one row a side has."""
    return np.random.default_rng([rows, side]).integers(0, rows, rows)


def pairs(rows: int) -> int:
    """The size of the join."""
    left, right = (np.bincount(side_keys(rows, side), minlength=rows) for side in (0, 1))
    return int(left @ right)


def _online(memory: str, bench: BenchContext, rows: int) -> Prepared:
    frames = []
    for side, name in enumerate(("left", "right")):
        place, keys = bench.scratch / f"online-{rows}-{name}", side_keys(rows, side)
        if not place.exists():
            place.mkdir()
            table = pa.table({"key": keys, f"{name}_id": np.arange(rows), f"{name}_value": keys * 0.5})
            each = -(-rows // _FILES)
            for n in range(_FILES):
                pq.write_table(table.slice(n * each, each), place / f"{n}.parquet")
        frames.append(bench.spark.read.parquet(str(place)))

    def run() -> int:
        online_join(frames[0], frames[1], on="key", memory=memory).write.format("noop").mode("overwrite").save()
        return sink_rows(bench.spark)

    return Prepared(float(rows), pairs(rows), run)


def _run_online(bench: BenchContext) -> Findings:
    ways = {f"{memory} a bucket": partial(_online, memory) for memory in (AMPLE, SHORT)}
    what = "DINER over two inputs whose rows have about one partner, to the end of both"
    return found(curves(bench, ways, sizes(FIRST_ONLINE[bench.scale])), "rows a side", what)


FIRST_SEMISTREAM = {"small": 20_000, "full": 125_000}

MEMORY = "8MB"

_MASTER = {"small": 100_000, "full": 1_000_000}


def _semistream(master_rows: int | None, bench: BenchContext, rows: int) -> Prepared:
    """Stream rows in files; master rows as given, else half as many as stream rows."""
    keys = master_rows or rows // 2
    place = bench.scratch / f"stream-{rows}-{keys}"
    if not place.exists():
        place.mkdir()
        each = -(-rows // _FILES)
        for n in range(_FILES):
            table = stream_rows(bench, keys, n * each, min(rows, (n + 1) * each))
            pq.write_table(table, place / f"{n}.parquet")
    store = page_file(bench, keys)
    frame = bench.spark.read.parquet(str(place))

    def run() -> int:
        enrich(frame, store, on="key", memory=MEMORY).write.format("noop").mode("overwrite").save()
        return sink_rows(bench.spark)

    return Prepared(float(rows), matched(rows), run)


def _run_semistream(bench: BenchContext) -> Findings:
    master = _MASTER[bench.scale]
    ways = {
        f"{master:,} master rows": partial(_semistream, master),
        "half as many master rows": partial(_semistream, None),
    }
    what = f"Enrichment from page files with {MEMORY} a task, keys by Zipf's law"
    return found(curves(bench, ways, sizes(FIRST_SEMISTREAM[bench.scale])), "stream rows", what)


FIRST_XQUERY = {"small": 1, "full": 4}

YEARS = 10

AGGREGATE, JOIN = "7.4", "7.6"


def _xquery(query: str, bench: BenchContext, stations: int) -> Prepared:
    params = {"query": query, "stations": stations, "years": YEARS}
    where = places(bench, params)

    def run() -> int:
        plan = plan_xquery(bench.spark, QUERIES[query], where)
        return answer(query, [row.item for row in plan.frame().collect()])

    return Prepared(megabytes(where), expected(params), run, rows=1 if query == AGGREGATE else None)


def _run_xquery(bench: BenchContext) -> Findings:
    ways = {"highest temperature": partial(_xquery, AGGREGATE), "stations with readings": partial(_xquery, JOIN)}
    what = f"Two queries of the source (listings {AGGREGATE} and {JOIN}) over readings of {YEARS} years"
    return found(curves(bench, ways, sizes(FIRST_XQUERY[bench.scale])), "MB of XML", what)


EXPERIMENTS = (
    Experiment(
        name="scale-interval",
        family="scale",
        source="our own",
        places=("growth of interval joins",),
        claim="With as many partners a row, an interval join over twice the rows takes about twice as long.",
        run=_run_interval,
        measures=("engine", "joins/interval", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
    Experiment(
        name="scale-online",
        family="scale",
        source="our own",
        places=("growth of online joins",),
        claim=(
            "An online join of inputs twice as long takes about twice as long, in memory and where most rows wait on "
            "disk for the end."
        ),
        run=_run_online,
        measures=("engine", "joins/online", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
    Experiment(
        name="scale-semistream",
        family="scale",
        source="our own",
        places=("growth of enrichment",),
        claim=(
            "Twice the stream takes at most about twice as long to enrich, also where the master data doubles with it "
            "and memory does not."
        ),
        run=_run_semistream,
        measures=("engine", "joins/semistream", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
    Experiment(
        name="scale-xquery",
        family="scale",
        source="our own",
        places=("growth of XQuery",),
        claim="A query over twice the XML takes about twice as long, for an aggregate and for a join.",
        run=_run_xquery,
        measures=("engine", "xml", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
)
