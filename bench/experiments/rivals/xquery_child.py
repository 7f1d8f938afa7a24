"""One query over a collection of XML files by a process that may have only so much memory.

Run as a module with PROCESSOR MIB DIRECTORY STATIONS YEARS HOME it prints the answer. The limit is Java's heap for
Spark, and the operating system's for Saxon.
"""

from __future__ import annotations

from pathlib import Path

from bench.case import Outcome, Params
from bench.cases.xquery import CASE
from bench.context import BenchContext
from bench.experiments.rivals.limited import Answer, limit, main, session
from bench.xquery_saxon import located
from bench.xquery_weather import QUERIES, answer, places

QUERY = "7.4"
OURS, SPARK, SAXON = "dovetail, 2 tasks", "spark's XML source", "SaxonC-HE"


def _params(words: list[str]) -> Params:
    return {"query": QUERY, "stations": int(words[0]), "years": int(words[1])}


def _bench(words: list[str]) -> BenchContext:
    """A context over the files that are there."""
    bench = BenchContext("small")
    (bench.scratch / Path(words[2]).name).symlink_to(words[2])
    return bench


def _spark(name: str) -> Answer:
    (prepare,) = (rival.prepare for rival in CASE.rivals if rival.name == name)

    def run(mib: int, place: Path, words: list[str]) -> int:
        session(mib)
        with _bench(words) as bench, prepare(bench, _params(words)) as turn:
            found = turn()
        return found.answer if isinstance(found, Outcome) else int(found)

    return run


def _saxon(mib: int, place: Path, words: list[str]) -> int:
    from saxonche import PySaxonProcessor

    with _bench(words) as bench, PySaxonProcessor(license=False) as processor:
        query = located(QUERIES[QUERY], places(bench, _params(words)))
        limit(mib)
        found = processor.new_xquery_processor().run_query_to_value(query_text=query)
        return answer(QUERY, [str(item) for item in found or ()])


PROCESSORS: dict[str, Answer] = {OURS: _spark(OURS), SPARK: _spark(SPARK), SAXON: _saxon}

if __name__ == "__main__":
    main(PROCESSORS)
