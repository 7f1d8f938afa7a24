"""Figures 7.5 to 7.9: XQuery over weather collections with more tasks, more data, and other processors beside it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any
from xml.etree.ElementTree import canonicalize

from bench.case import Params
from bench.cases.xquery import IN_SQL, SCANS
from bench.catalogue import load_cases
from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.harness import run_point
from bench.judge import Figures
from bench.rivals.saxon import Saxon, located
from bench.rivals.weather import QUERIES, answer, megabytes, places
from dovetail.errors import DataError
from dovetail.xml.api import plan_xquery

CASE = load_cases()["xquery"]
ONE, TWO, QUARTER, SAXON, SPARK = (
    "dovetail, 1 task", "dovetail, 2 tasks", "dovetail, a quarter", "SaxonC-HE", "spark's XML source",
)  # fmt: skip
KINDS = {"7.2": "selection", "7.4": "aggregation", "7.6": "join", "7.8": "join and aggregation"}
Seconds = Mapping[str, Mapping[str, float]]
"""Seconds by query and contestant."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a contestant's warm runs and further figures of the last one."""

    seconds: Sequence[float]
    figures: Mapping[str, float]

    @property
    def mean(self) -> float:
        """The mean of the warm runs."""
        return mean(self.seconds)


def point(query: str, stations: int, years: int) -> Params:
    """A query over this number of stations and years, some 0.43 MB each; query 7.8 reads two fifths of that."""
    return {"query": query, "stations": stations, "years": years}


def timed(bench: BenchContext, params: Params, names: Sequence[str], few: bool = False) -> dict[str, Timed]:
    """Contestants of the case in turn, round by round, over one point, also where they sit out in the case.

    DataError for a wrong answer or a failure.

    Of the source's five runs two warm up; at small scale, of three one does. `few`: one warm run.
    """
    warm_up, counted = (1, 1) if few else (2, 3) if bench.scale == "full" else (1, 2)
    rivals = tuple(replace(r, sits_out=lambda _: None) for name in names for r in CASE.rivals if r.name == name)
    case = replace(CASE, rivals=rivals, baseline=names[0], bounds=(), patience_s=math.inf)
    found = run_point(case, params, bench, warm_up + counted - 1)
    for rival in found.rivals.values():
        if rival.status != "ok":
            raise DataError(f"{rival.name} {rival.status} at {dict(params)}: {rival.reason}")
    return {
        name: Timed([s.seconds for s in rival.samples if s.round >= warm_up], rival.samples[-1].figures)
        for name, rival in found.rivals.items()
    }


def _means(bench: BenchContext, params: Params, names: Sequence[str], few: bool = False) -> dict[str, float]:
    return {name: each.mean for name, each in timed(bench, params, names, few).items()}


def same_as_saxon(bench: BenchContext, params: Params) -> int:
    """Items of a query that are the same from Saxon, however often each is there; DataError where one is not.

    Their order is that of the files, which Saxon takes as the directory has them, and elements are compared without the
    space between them. Of an aggregate the value is compared up to a millionth: the last digits of sums of doubles
    depend on their order.
    """
    found, query = places(bench, params), params["query"]
    with Saxon() as saxon:
        theirs = saxon.items(located(QUERIES[query], found))
    plan = plan_xquery(bench.spark, QUERIES[query], found, partitions=2)
    ours = [row.item for row in plan.frame().collect()]
    if query not in ("7.2", "7.6"):
        if answer(query, ours) != answer(query, theirs):
            raise DataError(f"query {query}: Saxon answers {theirs}, not {ours}.")
        return len(ours)
    counts, others = (
        Counter(canonicalize(item, strip_text=True) if item.startswith("<") else item for item in items)
        for items in (ours, theirs)
    )
    if counts != others:
        pair = list(counts - others)[:1], list(others - counts)[:1]
        raise DataError(f"query {query}: Saxon answers otherwise, such as {pair[1]} in place of {pair[0]}.")
    return len(ours)


def size_mb(bench: BenchContext, params: Params) -> float:
    """Megabytes of the collections of a point."""
    return megabytes(places(bench, params))


def reading_seconds(bench: BenchContext, params: Params) -> float:
    """Seconds for reading all files of a point, without a look at what is in them."""
    began = time.perf_counter()
    for place in places(bench, params).values():
        for file in sorted(place.iterdir()):
            file.read_bytes()
    return time.perf_counter() - began


def _names(found: Seconds) -> list[str]:
    return list(dict.fromkeys(name for by in found.values() for name in by))


def bars(title: str, found: Seconds) -> Chart:
    """Seconds by query, one bar a contestant."""
    lines = {name: [(query, by[name]) for query, by in found.items() if name in by] for name in _names(found)}
    return Chart(title, "query", "seconds", lines, kind="bar")


def seconds_grid(title: str, sizes: Mapping[str, float], found: Seconds) -> Grid:
    """Seconds by query and contestant."""
    names = _names(found)
    rows: list[list[Cell]] = [
        [query, KINDS.get(query), sizes[query], *(by.get(name) for name in names)] for query, by in found.items()
    ]
    return Grid(title, ["query", "kind", "MB", *names], rows)


def _points(bench: BenchContext, years: Mapping[str, int]) -> tuple[dict[str, Params], dict[str, float]]:
    """Every query over both stations with as many years each as the scale has, and the megabytes of its collections."""
    points = {query: point(query, 2, years[bench.scale]) for query in QUERIES}
    return points, {query: size_mb(bench, params) for query, params in points.items()}


def saxon(bench: BenchContext, years: Mapping[str, int]) -> Figures:
    """Figure 7.5: Saxon beside one task and two, and what twice the readings of a join cost both."""
    points, sizes = _points(bench, years)
    found = {q: _means(bench, params, (TWO, ONE, SAXON) if q in SCANS else (TWO, ONE)) for q, params in points.items()}
    pair = [_means(bench, point("7.8", 1, n), (TWO, SAXON), few=bench.scale == "small") for n in (1, 2)]
    rows = sum(same_as_saxon(bench, points[query]) for query in SCANS) + same_as_saxon(bench, point("7.8", 1, 1))
    named = {
        "gains": {query: found[query][SAXON] / found[query][TWO] for query in SCANS},
        "one_task": {query: found[query][SAXON] / found[query][ONE] for query in SCANS},
        "mb": sizes["7.2"],
        "pair": pair,
        "growth": {name: pair[1][name] / pair[0][name] for name in (TWO, SAXON)},
    }
    shown: list[Chart | Grid] = [
        bars("Saxon, one task and two", found),
        seconds_grid("Seconds of warm runs", sizes, found),
    ]
    return Figures(named, shown, rows)


def _two_tasks(bench: BenchContext, found: Seconds) -> tuple[dict[str, Any], Seconds]:
    """How many times as fast two tasks are as one, also without what Spark takes however little there is."""
    fixed = {query: _means(bench, point(query, 2, 1), (TWO, ONE)) for query in QUERIES}
    raw = {query: by[ONE] / by[TWO] for query, by in found.items()}
    net = {q: (by[ONE] - fixed[q][ONE]) / max(1e-3, by[TWO] - fixed[q][TWO]) for q, by in found.items()}
    return {"raw": raw, "net": net}, fixed


def larger(bench: BenchContext, years: Mapping[str, int]) -> Figures:
    """Figure 7.6: data larger than what a task may hold; what the work is made of."""
    points, sizes = _points(bench, years)
    runs = {q: timed(bench, p, (TWO, ONE, QUARTER) if q == "7.4" else (TWO, ONE)) for q, p in points.items()}
    found = {query: {name: by[name].mean for name in (TWO, ONE)} for query, by in runs.items()}
    named, fixed = _two_tasks(bench, found)
    held = {name: each.figures["worker_mb"] for name, each in runs["7.4"].items()}
    reading = reading_seconds(bench, points["7.2"]) / found["7.2"][TWO]
    named |= {"whole": held[TWO], "quarter": held[QUARTER], "reading": reading, "mb": sizes["7.2"]}
    title = "Of two station years, which is what Spark and the plan take"
    shown: list[Chart | Grid] = [bars("One task and two", found), seconds_grid("Seconds of warm runs", sizes, found)]
    return Figures(named, [*shown, seconds_grid(title, dict.fromkeys(QUERIES, 0.9), fixed)])


def speed_up(bench: BenchContext, years: Mapping[str, int]) -> Figures:
    """Figure 7.7: one task and two, and Spark's own XML source in place of the source's map/reduce system."""
    points, sizes = _points(bench, years)
    found = {q: _means(bench, p, (TWO, ONE, SPARK) if q in IN_SQL else (TWO, ONE)) for q, p in points.items()}
    named, _ = _two_tasks(bench, found)
    named |= {"gains": {query: found[query][SPARK] / found[query][TWO] for query in IN_SQL}, "mb": sizes["7.2"]}
    return Figures(named, [bars("One task and two", found), seconds_grid("Seconds of warm runs", sizes, found)])


def scale_up(bench: BenchContext, years: Mapping[str, int], printed: str) -> Figures:
    """Figures 7.8 and 7.9: one task over one station, two over two."""
    points, sizes = _points(bench, years)
    found, ratios = {}, {}
    for query, params in points.items():
        alone = _means(bench, {**params, "stations": 1}, (ONE,))[ONE]
        both = _means(bench, params, (TWO, SPARK) if query in IN_SQL else (TWO,))
        found[query] = {"1 task, half the data": alone} | {f"{name}, all": each for name, each in both.items()}
        ratios[query] = both[TWO] / alone
    shown = bars("Twice the data, twice the tasks", found)
    table = seconds_grid("Seconds of warm runs; MB of all the data", sizes, found)
    return Figures({"ratios": ratios, "mb": sizes["7.2"] / 2, "printed": printed}, [shown, table])
