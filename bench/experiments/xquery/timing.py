"""Times of the queries over weather collections, by the contestants of the benchmark case `xquery`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from xml.etree.ElementTree import canonicalize

from bench.case import Outcome, Params, Run
from bench.cases.xquery import CASE
from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.xquery_saxon import Saxon, located
from bench.xquery_weather import QUERIES, answer, expected, megabytes, places
from dovetail.errors import DataError
from dovetail.xml.api import plan_xquery

SOURCE = "Carman 2020"
MEASURES = (
    "engine",
    "xml",
    "spark",
    "workloads",
    "bench/experiments/xquery",
    "bench/experiments/parts.py",
    "bench/cases/xquery.py",
    "bench/xquery_saxon.py",
    "bench/xquery_weather.py",
)
ONE, TWO, QUARTER, SAXON, SPARK = (
    "dovetail, 1 task",
    "dovetail, 2 tasks",
    "dovetail, a quarter",
    "SaxonC-HE",
    "spark's XML source",
)
KINDS = {"7.2": "selection", "7.4": "aggregation", "7.6": "join", "7.8": "join and aggregation"}
CORES = "This machine has two cores, so there are one and two tasks where the source has up to eight."


@dataclass(slots=True)
class Timed:
    """Seconds of a contestant's warm runs and further figures of the last one."""

    seconds: list[float] = field(default_factory=list)
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean of the warm runs."""
        return sum(self.seconds) / len(self.seconds)


def point(query: str, stations: int, years: int) -> Params:
    """A query over so many stations and years, some 0.43 MB each; of query 7.8 two fifths of that."""
    return {"query": query, "stations": stations, "years": years}


def rounds(bench: BenchContext) -> tuple[int, int]:
    """Runs that warm up, and runs that count: the source's two and three; one fewer of each at small scale."""
    return (2, 3) if bench.scale == "full" else (1, 2)


def timed(bench: BenchContext, params: Params, names: Sequence[str], few: bool = False) -> dict[str, Timed]:
    """Contestants in turn, round by round, over one point; DataError for a wrong answer. `few`: one warm run.

    Saxon, which is compiled ahead of time and keeps nothing, has nothing to warm up.
    """
    found = {name: Timed() for name in names}
    warm_up, counted = (1, 1) if few else rounds(bench)
    rivals = {rival.name: rival for rival in CASE.rivals}
    right = expected(params)
    with ExitStack() as stack:
        runs = {name: stack.enter_context(rivals[name].prepare(bench, params)) for name in names}
        for number in range(warm_up + counted):
            for name, run in runs.items():
                if number < warm_up and name == SAXON:
                    continue
                seconds, figures = _once(name, run, right, params)
                if number >= warm_up:
                    found[name].seconds.append(seconds)
                    found[name].figures = figures
    return found


def _once(name: str, run: Run, right: int, params: Params) -> tuple[float, Mapping[str, float]]:
    began = time.perf_counter()
    given = run()
    seconds = time.perf_counter() - began
    outcome = given if isinstance(given, Outcome) else Outcome(given)
    if outcome.answer != right:
        raise DataError(f"{name} answered {outcome.answer} to {dict(params)}, not {right}.")
    return seconds if outcome.seconds is None else outcome.seconds, outcome.figures


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
    counts, others = Counter(map(_canonical, ours)), Counter(map(_canonical, theirs))
    if counts != others:
        pair = list(counts - others)[:1], list(others - counts)[:1]
        raise DataError(f"query {query}: Saxon answers otherwise, such as {pair[1]} in place of {pair[0]}.")
    return len(ours)


def _canonical(item: str) -> str:
    return canonicalize(item, strip_text=True) if item.startswith("<") else item


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


def bars(title: str, found: Mapping[str, Mapping[str, float]]) -> Chart:
    """Seconds by query, one bar a contestant."""
    names = list(dict.fromkeys(name for by in found.values() for name in by))
    lines = {name: [(query, round(by[name], 4)) for query, by in found.items() if name in by] for name in names}
    return Chart(title, "query", "seconds", lines, kind="bar")


def seconds_grid(title: str, sizes: Mapping[str, float], found: Mapping[str, Mapping[str, float]]) -> Grid:
    """Seconds by query and contestant."""
    names = list(dict.fromkeys(name for by in found.values() for name in by))
    rows: list[list[Cell]] = []
    for query, by in found.items():
        cells = [round(by[name], 3) if name in by else None for name in names]
        rows.append([query, KINDS.get(query), round(sizes[query], 1), *cells])
    return Grid(title, ["query", "kind", "MB", *names], rows)


def listed(figures: Mapping[str, float], form: str = ".2f") -> str:
    """Figures by query as text."""
    return ", ".join(f"{value:{form}} for {name}" for name, value in figures.items())


def mean(figures: Mapping[str, float]) -> float:
    """The mean of figures by query."""
    return sum(figures.values()) / len(figures)
