"""Figures 7.7, 7.8 and 7.9: twice the tasks over the same data, and over twice the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.context import BenchContext
from bench.experiment import Experiment, Findings
from bench.experiments.parts import Part, judged
from bench.experiments.xquery.timing import (
    CORES,
    MEASURES,
    ONE,
    SOURCE,
    SPARK,
    TWO,
    bars,
    listed,
    mean,
    point,
    seconds_grid,
    size_mb,
    timed,
)
from bench.xquery_weather import QUERIES

IN_SQL = ("7.4", "7.6")
"""Queries that Spark's XML source answers with columns."""
YEARS = {"figure 7.7": (60, 480), "figure 7.8": (48, 240), "figure 7.9": (72, 672)}
"""Years of each of two stations, at small and at full scale."""
PRINTED_GAIN, GOOD_SPEED_UP, FLAT = 2.5, 1.5, 1.3


def _years(bench: BenchContext, place: str) -> int:
    return YEARS[place][bench.scale == "full"]


def run_speed_up(bench: BenchContext) -> Findings:
    """Figure 7.7: one task and two, and Spark's own XML source in place of the source's map/reduce system."""
    points = {query: point(query, 2, _years(bench, "figure 7.7")) for query in QUERIES}
    sizes = {query: size_mb(bench, params) for query, params in points.items()}
    found, raw, net, gains = {}, {}, {}, {}
    for query, params in points.items():
        runs = timed(bench, params, (TWO, ONE, SPARK) if query in IN_SQL else (TWO, ONE))
        by = found[query] = {name: each.mean for name, each in runs.items()}
        fixed = {name: each.mean for name, each in timed(bench, point(query, 2, 1), (TWO, ONE)).items()}
        raw[query] = by[ONE] / by[TWO]
        net[query] = (by[ONE] - fixed[ONE]) / max(1e-3, by[TWO] - fixed[TWO])
        if query in IN_SQL:
            gains[query] = by[SPARK] / by[TWO]
    parts = [
        Part(
            f"twice the tasks are {listed(raw)} times as fast (asked: {GOOD_SPEED_UP} on average)",
            mean(raw) >= GOOD_SPEED_UP,
        ),
        Part(f"without what Spark takes however little there is, {listed(net)} times", mean(net) >= GOOD_SPEED_UP),
        Part(f"faster than Spark's XML source ({listed(gains)} times)", min(gains.values()) > 1),
        Part(
            f"by {PRINTED_GAIN} times on average, as over the source's rival (found {mean(gains):.2f})",
            mean(gains) >= PRINTED_GAIN,
        ),
    ]
    note = (
        f"{CORES} Tasks stand for nodes, and Spark's XML source with SQL, which finds elements by name alone, for "
        f"MRQL on Hadoop. {sizes['7.2']:.0f} MB; the source has 57 GB."
    )
    verdict, why = judged(parts, note)
    tables = [seconds_grid("Seconds of warm runs", sizes, found)]
    return Findings(verdict, why, [bars("One task and two", found)], tables)


def run_scale_up(place: str, printed: str, bench: BenchContext) -> Findings:
    """Figures 7.8 and 7.9: one task over one station, two over two."""
    years = _years(bench, place)
    found, sizes, ratios = {}, {}, {}
    for query in QUERIES:
        half, whole = point(query, 1, years), point(query, 2, years)
        alone = timed(bench, half, (ONE,))[ONE].mean
        both = timed(bench, whole, (TWO, SPARK) if query in IN_SQL else (TWO,))
        found[query] = {"1 task, half the data": alone} | {f"{name}, all": each.mean for name, each in both.items()}
        sizes[query], ratios[query] = size_mb(bench, whole), both[TWO].mean / alone
    parts = [
        Part(
            f"twice the data with twice the tasks take {listed(ratios)} times as long (asked: at most {FLAT} each)",
            max(ratios.values()) <= FLAT,
        )
    ]
    note = f"{CORES} {sizes['7.2'] / 2:.0f} MB a task; the source has {printed} a node with four partitions."
    verdict, why = judged(parts, note)
    tables = [seconds_grid("Seconds of warm runs; MB of all the data", sizes, found)]
    return Findings(verdict, why, [bars("Twice the data, twice the tasks", found)], tables)


def _experiment(name: str, place: str, claim: str, run: Callable[[BenchContext], Findings]) -> Experiment:
    return Experiment(
        name=f"xquery-{name}",
        family="xquery",
        source=SOURCE,
        places=(place,),
        claim=claim,
        run=run,
        measures=MEASURES,
        ground="measured",
    )


EXPERIMENTS = (
    _experiment(
        "speed-up",
        "figure 7.7",
        "Times fall in proportion to the nodes, and are below those of a map/reduce system, 2.5 times on average.",
        run_speed_up,
    ),
    _experiment(
        "scale-up",
        "figure 7.8",
        "With as much more data as there are more nodes, times stay the same; what a node has fits its memory.",
        partial(run_scale_up, "figure 7.8", "7.2 GB"),
    ),
    _experiment(
        "scale-up-large",
        "figure 7.9",
        "With as much more data as there are more nodes, times stay the same also where a node has far more than "
        "memory.",
        partial(run_scale_up, "figure 7.9", "66 GB"),
    ),
)
