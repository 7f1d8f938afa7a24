"""Growth of XQuery: collections of twice the stations, for an aggregate and for a join of two collections."""

from __future__ import annotations

from functools import partial

from bench.context import BenchContext
from bench.experiment import Experiment, Findings
from bench.experiments.scale.growth import Prepared, curves, found, sizes
from bench.xquery_weather import QUERIES, answer, expected, megabytes, places
from dovetail.xml.api import plan_xquery

FIRST = {"small": 1, "full": 4}
YEARS = 10
AGGREGATE, JOIN = "7.4", "7.6"


def _prepared(query: str, bench: BenchContext, stations: int) -> Prepared:
    params = {"query": query, "stations": stations, "years": YEARS}
    where = places(bench, params)

    def run() -> int:
        plan = plan_xquery(bench.spark, QUERIES[query], where)
        return answer(query, [row.item for row in plan.frame().collect()])

    return Prepared(megabytes(where), expected(params), run, rows=1 if query == AGGREGATE else None)


def _run(bench: BenchContext) -> Findings:
    ways = {"highest temperature": partial(_prepared, AGGREGATE), "stations with readings": partial(_prepared, JOIN)}
    what = f"Two queries of the source (listings {AGGREGATE} and {JOIN}) over readings of {YEARS} years"
    return found(curves(bench, ways, sizes(FIRST[bench.scale])), "MB of XML", what)


EXPERIMENTS = (
    Experiment(
        name="scale-xquery",
        family="scale",
        source="our own",
        places=("growth of XQuery",),
        claim="A query over twice the XML takes about twice as long, for an aggregate and for a join.",
        run=_run,
        measures=("engine", "xml", "spark", "bench/experiments/scale"),
        ground="measured",
    ),
)
