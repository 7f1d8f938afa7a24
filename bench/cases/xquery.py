"""XQuery over weather collections: selection, aggregation and joins, against SaxonC-HE and Spark's own XML source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run, prepared
from bench.context import BenchContext
from bench.xquery_saxon import Saxon, located
from bench.xquery_weather import QUERIES, answer, expected, megabytes, places
from dovetail.workloads.weather import Weather
from dovetail.xml.api import plan_xquery

SCANS = ("7.2", "7.4", "7.6")
IN_SQL = SCANS[1:]
"""Queries that all rivals answer; these run at three sizes."""
READINGS = {"small": (2, 24), "full": (2, 672)}
PAIRS = {"small": (1, 4), "full": (16, 64)}
YEARS = 10
MB = 1e6


def _dovetail(partitions: int, part: int = 1) -> Prepare:
    """The query with so many tasks a collection; over a part of the stations, answers are checked against theirs."""

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        found = places(bench, params, part)
        right, wanted, size = expected(params, part), expected(params), megabytes(found)

        def run() -> Outcome:
            _wake_workers(bench, partitions)
            began = time.perf_counter()
            plan = plan_xquery(bench.spark, QUERIES[params["query"]], found, partitions=partitions)
            given = answer(params["query"], [row.item for row in plan.frame().collect()])
            seconds = time.perf_counter() - began
            figures = {"megabytes": size, "worker_mb": plan.metrics().value("resident memory") / MB}
            return Outcome(wanted if given == right else -1, seconds, figures)

        return run

    return prepare


def _wake_workers(bench: BenchContext, partitions: int) -> None:
    """Spark ends workers that were idle for a minute, as they are while Saxon runs; a warm run is one with workers."""
    few = Weather(stations=partitions)
    home = bench.scratch / f"few-{partitions}"
    if not home.exists():
        few.write_sensors(home)
    query = 'max(collection("few")/dataCollection/data/value)'
    plan_xquery(bench.spark, query, {"few": home}, partitions=partitions).frame().collect()


@contextmanager
def _saxon(bench: BenchContext, params: Params) -> Iterator[Run]:
    query = located(QUERIES[params["query"]], places(bench, params))
    with Saxon() as saxon:
        yield lambda: answer(params["query"], saxon.items(query))


@prepared
def _spark_xml(bench: BenchContext, params: Params) -> Run:
    found, make = places(bench, params), _highest if params["query"] == "7.4" else _daily
    return lambda: answer(params["query"], [str(cell) for row in make(bench, found).collect() for cell in row])


def _rows(bench: BenchContext, place: Path, tag: str, *columns: str) -> DataFrame:
    """Elements of this name, wherever they stand: that is all `rowTag` says. In these files they stand on one path."""
    schema = ", ".join(f"{name} string" for name in columns)
    return bench.spark.read.format("xml").option("rowTag", tag).schema(schema).load(str(place))


def _highest(bench: BenchContext, found: dict[str, Path]) -> DataFrame:
    readings = _rows(bench, found["/sensors"], "data", "dataType", "value")
    return readings.where("dataType = 'TMAX'").select(F.max(F.col("value").cast("double")) / 10)


def _daily(bench: BenchContext, found: dict[str, Path]) -> DataFrame:
    readings = _rows(bench, found["/sensors"], "data", "dataType", "value", "date", "station")
    stations = _rows(bench, found["/stations"], "station", "id", "displayName")
    high = readings.where("dataType = 'TMAX' and year(cast(date as timestamp)) = 2000")
    joined = high.join(F.broadcast(stations), high["station"] == stations["id"])
    return joined.select("displayName", "date", "value")


def _not_pairs(params: Params) -> str | None:
    return None if params["query"] in SCANS else "reads in parallel like the others"


def _saxon_rests(params: Params) -> str | None:
    few = min(p["stations"] for scale in CASE.points.values() for p in scale if p["query"] == "7.8")
    quick = params["query"] in SCANS or (params["stations"] == few and params["years"] == 1)
    return None if quick else "compares all pairs"


def _only_where_same(params: Params) -> str | None:
    if params["query"] == "7.2":
        return "gives columns, not elements"
    return None if params["query"] in SCANS else "reads in parallel like the others"


def _quarter_rests(params: Params) -> str | None:
    points = [p for scale in CASE.points.values() for p in scale if p["query"] == params["query"]]
    sizes = [(p["stations"], p["years"]) for p in points]
    large = params["query"] in ("7.4", "7.8") and (params["stations"], params["years"]) == max(sizes)
    return None if large else "is compared at the largest size"


def _points(stations: int, years: int, pairs: tuple[int, int]) -> list[Params]:
    scans = [{"query": query, "stations": stations, "years": years} for query in SCANS]
    scans += [{"query": query, "stations": stations, "years": years // part} for query in IN_SQL for part in (2, 4)]
    sizes = (pairs[0], 2 * pairs[0], pairs[1])
    grown = [{"query": "7.8", "stations": size, "years": YEARS} for size in sizes]
    return [*scans, {"query": "7.8", "stations": 1, "years": 1}, *grown]


def _claim(name: str, at_most: float, against: str | None, query: str, figure: str = "seconds") -> Bound:
    """Of the largest size of a query that reads all files."""
    where = {"query": query, "years": READINGS["full"][1]}
    return Bound(name, "dovetail, 2 tasks", at_most, against=against, where=where, figure=figure, scale="full")


CASE = Case(
    name="xquery",
    question="How fast are plain queries over XML files, without a load phase?",
    varies=("query", "stations", "years"),
    points={"small": _points(*READINGS["small"], PAIRS["small"]), "full": _points(*READINGS["full"], PAIRS["full"])},
    rivals=(
        Rival("dovetail, 2 tasks", _dovetail(2)),
        Rival("dovetail, 1 task", _dovetail(1), sits_out=_not_pairs),
        Rival("dovetail, a quarter", _dovetail(2, 4), sits_out=_quarter_rests),
        Rival("SaxonC-HE", _saxon, requires=("saxonche",), sits_out=_saxon_rests, warms_up=False),
        Rival("spark's XML source", _spark_xml, sits_out=_only_where_same),
    ),
    expected=lambda bench, params: expected(params),
    baseline="dovetail, 2 tasks",
    bounds=(
        *(_claim(f"four times as fast as Saxon on {query}", 1 / 4, "SaxonC-HE", query) for query in SCANS),
        *(
            _claim(f"two tasks are 1.6 times as fast as one on {query}", 1 / 1.6, "dovetail, 1 task", query)
            for query in SCANS
        ),
        Bound(
            "four times the pairs take at most five times as long",
            "dovetail, 2 tasks",
            5.0,
            against="dovetail, a quarter",
            where={"query": "7.8", "stations": PAIRS["full"][1]},
            scale="full",
        ),
        _claim(
            "a worker needs no more memory for four times the files", 1.2, "dovetail, a quarter", "7.4", "worker_mb"
        ),
        _claim("a worker holds no collection of 584 MB", 400.0, None, "7.4", "worker_mb"),
    ),
    answer="items, or millionths of a value",
    measures=("engine", "xml", "spark"),
    rounds=5,
    small_rounds=1,
    patience_s=20.0,
)
CASES = (CASE,)
