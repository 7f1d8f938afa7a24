"""Figures 7.5 to 7.9: XQuery over weather collections with more tasks, more data, and other processors beside it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from xml.etree.ElementTree import canonicalize

from bench.case import Outcome, Params, Run
from bench.cases.xquery import CASE
from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.parts import Part, judged
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


SCANS = ("7.2", "7.4", "7.6")

SAXON_SIZES = {"small": (2, 24), "full": (2, 672)}

LARGER_SIZES = {"small": (2, 36), "full": (2, 700)}

PRINTED_GAIN, GOOD_SPEED_UP = 3.5, 1.5


def run_saxon(bench: BenchContext) -> Findings:
    """Figure 7.5."""
    stations, years = SAXON_SIZES[bench.scale]
    points = {query: point(query, stations, years) for query in QUERIES}
    sizes = {query: size_mb(bench, params) for query, params in points.items()}
    names = {query: (TWO, ONE, SAXON) if query in SCANS else (TWO, ONE) for query in QUERIES}
    found = {
        query: {name: each.mean for name, each in timed(bench, params, names[query]).items()}
        for query, params in points.items()
    }
    gains = {query: found[query][SAXON] / found[query][TWO] for query in SCANS}
    alone = {query: found[query][SAXON] / found[query][ONE] for query in SCANS}
    growth, pairs = _pairs(bench)
    parts = [
        Part(f"with two tasks faster than Saxon ({listed(gains)} times)", min(gains.values()) > 1),
        Part(f"on average at least {PRINTED_GAIN} times as fast ({mean(gains):.1f})", mean(gains) >= PRINTED_GAIN),
        Part(
            f"Saxon compares all pairs of query 7.8: twice the readings take it {growth[SAXON]:.1f} times as long, us "
            f"{growth[TWO]:.1f} times (asked: more than 3 and less than 2.5)",
            growth[SAXON] > 3 and growth[TWO] < 2.5,
        ),
    ]
    note = (
        f"One task is {listed(alone)} times as fast as Saxon; the source's single partition was slower. {CORES} "
        f"{sizes['7.2']:.0f} MB; the source has 584. Mean of the runs that count."
    )
    verdict, why = judged(parts, note)
    rows = sum(same_as_saxon(bench, points[query]) for query in SCANS) + same_as_saxon(bench, point("7.8", 1, 1))
    tables = [seconds_grid("Seconds of warm runs", sizes, found), pairs]
    return Findings(verdict, why, [bars("Saxon, one task and two", found)], tables, rows)


def _pairs(bench: BenchContext) -> tuple[dict[str, float], Grid]:
    """How the time of query 7.8 grows if the readings double, for Saxon and for us."""
    few = bench.scale == "small"
    small, large = (
        {name: each.mean for name, each in timed(bench, point("7.8", 1, years), (TWO, SAXON), few=few).items()}
        for years in (1, 2)
    )
    rows: list[list[Cell]] = [
        [name, round(small[name], 3), round(large[name], 3), round(large[name] / small[name], 2)] for name in small
    ]
    grid = Grid("Query 7.8 where Saxon still ends: seconds", ["", "one year", "two years", "growth"], rows)
    return {name: large[name] / small[name] for name in small}, grid


def run_larger(bench: BenchContext) -> Findings:
    """Figure 7.6: data larger than what a task may hold; what the work is made of."""
    stations, years = LARGER_SIZES[bench.scale]
    points = {query: point(query, stations, years) for query in QUERIES}
    sizes = {query: size_mb(bench, params) for query, params in points.items()}
    found, fixed, held = {}, {}, {}
    for query, params in points.items():
        names = (TWO, ONE, QUARTER) if query == "7.4" else (TWO, ONE)
        runs = timed(bench, params, names)
        found[query] = {name: runs[name].mean for name in (TWO, ONE)}
        little = timed(bench, point(query, 2, 1), (TWO, ONE))
        fixed[query] = {name: each.mean for name, each in little.items()}
        if query == "7.4":
            held = {name: each.figures["worker_mb"] for name, each in runs.items()}
    raw = {query: by[ONE] / by[TWO] for query, by in found.items()}
    net = {q: (by[ONE] - fixed[q][ONE]) / max(1e-3, by[TWO] - fixed[q][TWO]) for q, by in found.items()}
    reading = reading_seconds(bench, points["7.2"]) / found["7.2"][TWO]
    parts = [
        Part(
            f"two tasks are {listed(raw)} times as fast as one (asked: {GOOD_SPEED_UP} on average)",
            mean(raw) >= GOOD_SPEED_UP,
        ),
        Part(f"without what Spark takes however little there is, {listed(net)} times", mean(net) >= GOOD_SPEED_UP),
        Part(f"reading the files alone is {100 * reading:.0f} % of the time, so the processor decides", reading < 0.25),
        Part(
            f"a worker holds {held[TWO]:.0f} MB of {sizes['7.4']:.0f} MB, and {held[QUARTER]:.0f} MB of a quarter",
            held[TWO] <= 1.2 * held[QUARTER],
        ),
    ]
    note = f"{CORES} {sizes['7.2']:.0f} MB; the source has 15.2 GB on 8 GB of memory."
    verdict, why = judged(parts, note)
    tables = [
        seconds_grid("Seconds of warm runs", sizes, found),
        seconds_grid("Of two station years, which is what Spark and the plan take", dict.fromkeys(QUERIES, 0.9), fixed),
    ]
    return Findings(verdict, why, [bars("One task and two", found)], tables)


IN_SQL = ("7.4", "7.6")

"""Queries that Spark's XML source answers with columns."""

YEARS = {"figure 7.7": (60, 480), "figure 7.8": (48, 240), "figure 7.9": (72, 672)}

"""Years of each of two stations, at small and at full scale."""

PRINTED_NODES_GAIN, FLAT = 2.5, 1.3


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
        Part(
            f"without what Spark takes however little there is, {listed(net)} times",
            mean(net) >= GOOD_SPEED_UP,
        ),
        Part(f"faster than Spark's XML source ({listed(gains)} times)", min(gains.values()) > 1),
        Part(
            f"by {PRINTED_NODES_GAIN} times on average, as over the source's rival (found {mean(gains):.2f})",
            mean(gains) >= PRINTED_NODES_GAIN,
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
    Experiment(
        name="xquery-saxon",
        family="xquery",
        source=SOURCE,
        places=("figure 7.5",),
        claim="Over a collection that Saxon can hold, from two partitions on a parallel processor is faster than "
        "Saxon, 3.5 times on average once it has all cores; a join of two large collections never ends in Saxon.",
        run=run_saxon,
        measures=MEASURES,
        ground="measured",
        requires=("saxonche",),
    ),
    Experiment(
        name="xquery-larger",
        family="xquery",
        source=SOURCE,
        places=("figure 7.6",),
        claim="Over a collection larger than memory, times fall with partitions up to the number of cores: parsing, "
        "not reading, is what takes time.",
        run=run_larger,
        measures=MEASURES,
        ground="measured",
    ),
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
