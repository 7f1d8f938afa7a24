"""XQuery over weather collections: selection, aggregation and joins, against SaxonC-HE and Spark's own XML source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Outcome, Params, Prepare, Run, prepared
from bench.context import BenchContext
from bench.rivals.saxon import Saxon, located
from bench.rivals.weather import QUERIES, answer, expected, megabytes, places
from dovetail.workloads.weather import Weather
from dovetail.xml.api import plan_xquery

SCANS = ("7.2", "7.4", "7.6")
IN_SQL = SCANS[1:]
"""Queries that all rivals answer; these run at three sizes."""
MB = 1e6


def ours(partitions: int, part: int = 1) -> Prepare:
    """The query with `partitions` tasks a collection; over part of the stations, answers are checked against theirs."""

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
def saxon(bench: BenchContext, params: Params) -> Iterator[Run]:
    """SaxonC-HE over the same files."""
    query = located(QUERIES[params["query"]], places(bench, params))
    with Saxon() as saxon:
        yield lambda: answer(params["query"], saxon.items(query))


@prepared
def spark_xml(bench: BenchContext, params: Params) -> Run:
    """Spark's own XML source, with DataFrames."""
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


def due(bench: BenchContext, params: Params) -> int:
    """The right answer."""
    return expected(params)
