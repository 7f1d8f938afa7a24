"""A query over a collection of XML files that does not fit memory."""

from __future__ import annotations

from bench.case import Params, Scale
from bench.context import BenchContext
from bench.experiment import Findings
from bench.experiments.rivals import xquery_child
from bench.experiments.rivals.limited import heap
from bench.experiments.rivals.limits import Contest, short_memory, told
from bench.xquery_weather import expected, megabytes, places

SIZES: dict[Scale, tuple[int, int, int]] = {"small": (2, 60, 64), "full": (2, 672, 512)}
"""Stations, years, and MiB that Saxon may have."""


def _run(bench: BenchContext) -> Findings:
    stations, years, mib = SIZES[bench.scale]
    params: Params = {"query": xquery_child.QUERY, "stations": stations, "years": years}
    found, due = places(bench, params), expected(params)
    home = found["/sensors"].parent
    words = [str(stations), str(years), str(home)]
    needs = {xquery_child.SAXON: "saxonche"}
    names = list(xquery_child.PROCESSORS)
    fates = Contest(xquery_child.__name__, names, mib, bench, words, needs).fates()
    what = f"Query {xquery_child.QUERY} over {megabytes(found):.0f} MB of XML files, with {mib} MiB"
    note = f"Spark, ours and its own, runs with a Java heap of {heap(mib)} MiB; seconds include its start."
    return told(fates, [xquery_child.SAXON], due, f"{megabytes(found):.0f} MB of XML, {mib} MiB", what, note)


EXPERIMENTS = (
    short_memory(
        "xquery",
        "A query that reads a collection as it goes finishes where the collection does not fit memory; a "
        "processor that builds its trees first does not.",
        _run,
        "xml",
        "bench/xquery_weather.py",
    ),
)
