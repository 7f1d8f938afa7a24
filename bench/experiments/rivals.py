"""Runs rivals with little memory, each in a process of its own, and tells which finish, which fail, and how.

The limit is Java's heap for Spark, and the operating system's for libraries of one process, counted from when they have
loaded their input. A library that takes a limit is given it instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.case import Outcome, Params, Prepare, Scale
from bench.cases.interval import JOIN, own_plan
from bench.cases.interval_rivals import LIBRARIES, named
from bench.cases.online import BATCHES, IN_JAVA, matches, sparks
from bench.cases.online import OURS as ONLINE_OURS
from bench.cases.online import THEIRS as ONLINE_THEIRS
from bench.cases.online import ours as online_ours
from bench.cases.xquery import ours as xquery_ours
from bench.cases.xquery import spark_xml
from bench.catalogue import missing
from bench.child import Ended, heap, limit, run_child, short_session
from bench.context import BenchContext
from bench.experiment import Grid
from bench.judge import Figures
from bench.rivals.enrichment import (
    DATA,
    MEMORY,
    dovetail,
    master_broadcast,
    master_store,
    matched,
    page_file,
    stream_rows,
    stream_static,
    streamed,
)
from bench.rivals.intervals import overlap_counts
from bench.rivals.lookups import Answer as ByHand
from bench.rivals.lookups import LookupTask, batch_by_batch, full_read, looked_up, row_by_row
from bench.rivals.postgres import master_table
from bench.rivals.saxon import located
from bench.rivals.weather import QUERIES, answer, expected, megabytes, places
from dovetail.errors import DataError
from dovetail.workloads import Exponential, RandomIntervals

PATIENCE_S: dict[Scale, float] = {"small": 200.0, "full": 600.0}
"""Seconds that every contestant has, ours too."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Contestants that a function runs, one a process, given a name, mebibytes, a directory and more.

    Ours comes first, and must end; all have the same time. `needs` are modules that some of them are.
    """

    function: Callable[..., int]
    names: Sequence[str]
    mib: int
    bench: BenchContext
    arguments: Sequence[Any] = ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def fates(self) -> dict[str, Ended]:
        """All of them, one after another; without a peak a contestant did not start."""
        return {name: self._fate(name) for name in self.names}

    def _fate(self, name: str) -> Ended:
        if (reason := missing([self.needs.get(name, "dovetail")])) is not None:
            return Ended(reason, None, 0.0, 0)
        given = (name, self.mib, str(self.bench.fresh()), *self.arguments)
        patience_s = PATIENCE_S[self.bench.scale]
        return run_child(self.function, *given, scratch=self.bench.scratch, patience_s=patience_s)


def figures(fates: Mapping[str, Ended], due: int, what: str, **more: Any) -> Figures:
    """The rivals that finished, that did not, and that were quicker than ours, which comes first.

    DataError if ours did not finish, or if any rival finished with a wrong answer.
    """
    for name, fate in fates.items():
        if fate.answer not in (None, due):
            raise DataError(f"{name} gave {fate.answer:,}, {due:,} is due.")
    ours, first = next(iter(fates.items()))
    if first.answer is None:
        raise DataError(f"{ours} did not finish: {first.outcome}")
    finished = {name: fate for name, fate in fates.items() if fate.answer is not None}
    named = {
        "fates": fates,
        "finished": list(finished),
        "failed": [name for name, fate in fates.items() if fate.answer is None and fate.peak],
        "quicker": [name for name, fate in finished.items() if fate.seconds < first.seconds],
        "what": what,
    }
    heads = ("contestant", "outcome", "answers", "seconds", "most memory of all its processes, MiB")
    rows = [(n, f.outcome, f.answer, f.seconds, round(f.peak / 2**20) if f.peak else None) for n, f in fates.items()]
    return Figures(named | more, [Grid(what, heads, rows)], due * len(finished))


def turn_of(prepare: Prepare, params: Params, scale: Scale = "small") -> int:
    """The answer of one turn of a rival in this process."""
    with BenchContext(scale) as bench, prepare(bench, params) as turn:
        found = turn()
    return found.answer if isinstance(found, Outcome) else int(found)


By = Mapping[str, int]
"""A number by the scale."""
_TARGET = "pairs.parquet"


def interval_sides(rows: int) -> tuple[pa.Table, pa.Table]:
    """Both inputs: every row overlaps some six in a hundred of the others of its key."""
    made = (RandomIntervals(rows, 1_000_000, Exponential(28_800), 24, seed=seed).table() for seed in (1, 2))
    left, right = (table.select(["id", "key", "start", "end"]) for table in made)
    return left, right


def interval_pairs(name: str, mib: int, place: str, rows: int) -> int:
    """One join of many overlapping intervals to Parquet: how many pairs it wrote."""
    target, sides = Path(place) / _TARGET, tuple(map(named, interval_sides(rows)))
    if name in ("dovetail", "spark's own plan"):
        spark = short_session(mib)
        for side, table in zip("lr", sides, strict=True):
            pq.write_table(table, Path(place) / f"{side}.parquet")
        left, right = (spark.read.parquet(f"{place}/{side}.parquet") for side in "lr")
        if name == "dovetail":
            from dovetail.joins.interval.api import interval_join

            pairs = interval_join(left, right, on="key", memory="32MB")
        else:
            pairs = own_plan(left, right).toDF(*(f"{side}_{column}" for side in "lr" for column in left.columns))
        pairs.write.parquet(str(target))
        return int(spark.read.parquet(str(target)).count())
    if name == "duckdb":
        import duckdb

        settings: dict[str, Any] = {"memory_limit": f"{mib}MB", "temp_directory": place, "threads": 2}
        with duckdb.connect(config=settings) as connection:
            for side, table in zip("lr", sides, strict=True):
                connection.register(side, table)
            connection.execute("set preserve_insertion_order = false")
            connection.execute(f"copy ({JOIN}) to '{target}' (format parquet)")
    else:
        library = LIBRARIES[name]
        converted = [library.convert(table) for table in sides]
        limit(mib)
        library.write(library.join(*converted), target)
    return int(pq.read_metadata(target).num_rows)


def interval(bench: BenchContext, sizes: By, limits: By) -> Figures:
    """Short memory: interval joins of `sizes` rows a side, by libraries with `limits` MiB."""
    rows, mib = sizes[bench.scale], limits[bench.scale]
    due = int(overlap_counts(*interval_sides(rows), keyed=True).sum())
    needs = {name: library.module for name, library in LIBRARIES.items()}
    names = ("dovetail", "spark's own plan", "duckdb", *LIBRARIES)
    fates = Contest(interval_pairs, names, mib, bench, [rows], needs).fates()
    what = f"{due:,} pairs of two inputs of {rows:,} rows, written to Parquet, with {mib} MiB"
    return figures(fates, due, what, heap=heap(mib))


BATCH, TIMED = 5_000, 2
"""Rows of a micro-batch, and micro-batches whose answers count."""
ON_SPARK: dict[str, Prepare] = {
    "dovetail": dovetail(master_store),
    "spark's stream-static join": streamed(stream_static, warm_rows=0),
    "spark's join, master broadcast": streamed(master_broadcast, warm_rows=0),
}
BY_HAND: dict[str, ByHand] = {
    "full read per batch": full_read,
    "look-up per row, LRU cache": row_by_row,
    "look-up per batch, LRU cache": batch_by_batch,
}


def enriched(name: str, mib: int, place: str, rows: int, url: str, table: str) -> int:
    """A stream enriched with master data: rows answered. Look-ups by hand have half of their memory for a cache."""
    if name in ON_SPARK:
        short_session(mib)
        return turn_of(ON_SPARK[name], {"master_rows": rows, "batch_rows": BATCH})
    task = LookupTask("short memory", url, table, mib * 2**19, BY_HAND[name])
    with BenchContext("small") as bench:
        stream = stream_rows(bench, rows, 0, BATCH * TIMED)
        limit(mib)
        return sum(int(batch.num_rows) for batch in looked_up(task, iter(stream.to_batches(BATCH))))


@contextmanager
def _shared(place: Path) -> Iterator[None]:
    """Children find what is made here, unless the user has said where it lies."""
    said = os.environ.get(DATA)
    os.environ[DATA] = said or str(place)
    try:
        yield
    finally:
        if said is None:
            del os.environ[DATA]


def enrich(bench: BenchContext, sizes: By, limits: By) -> Figures:
    """Short memory: enrichment from `sizes` master rows, by look-ups with `limits` MiB."""
    rows, mib = sizes[bench.scale], limits[bench.scale]
    table, due = master_table(bench, rows), matched(BATCH * TIMED)
    with _shared(bench.scratch / "shared"):
        page_file(bench, rows)
        fates = Contest(enriched, (*ON_SPARK, *BY_HAND), mib, bench, [rows, table.url, table.name]).fates()
    what = f"{rows:,} master rows of 120 bytes, micro-batches of {BATCH:,} rows, {mib} MiB"
    return figures(fates, due, what, heap=heap(mib), memory=MEMORY)


STREAM_MEMORY = "8MB"


STREAM_JOINS = {ONLINE_OURS: online_ours, ONLINE_THEIRS: sparks("RocksDB"), IN_JAVA: sparks("Java's memory")}


def joined(name: str, mib: int, place: str, scale: Scale, rows: int) -> int:
    """Two streams joined to their end: how many pairs there were."""
    short_session(mib)
    return turn_of(STREAM_JOINS[name], {"batch_rows": rows, "memory": STREAM_MEMORY}, scale)


def online(bench: BenchContext, sizes: By, limits: By) -> Figures:
    """Short memory: joins of two streams of `sizes` rows a micro-batch."""
    rows, mib = sizes[bench.scale], limits[bench.scale]
    due = matches(bench, {"batch_rows": rows, "memory": STREAM_MEMORY})
    fates = Contest(joined, tuple(STREAM_JOINS), mib, bench, [bench.scale, rows]).fates()
    what = f"{due:,} pairs of two streams of {BATCHES * rows:,} rows each, with a Java heap of {heap(mib)} MiB"
    return figures(fates, due, what, memory=STREAM_MEMORY)


QUERY = "7.4"
ON_SPARK = {"dovetail, 2 tasks": xquery_ours(2), "spark's XML source": spark_xml}
SAXON = "SaxonC-HE"


def queried(name: str, mib: int, place: str, stations: int, years: int, home: str) -> int:
    """One query over a collection of XML files: its answer."""
    params: Params = {"query": QUERY, "stations": stations, "years": years}
    bench = BenchContext("small")
    (bench.scratch / Path(home).name).symlink_to(home)
    if name != SAXON:
        short_session(mib)
        with bench, ON_SPARK[name](bench, params) as turn:
            found = turn()
        return found.answer if isinstance(found, Outcome) else int(found)
    from saxonche import PySaxonProcessor

    with bench, PySaxonProcessor(license=False) as processor:
        query = located(QUERIES[QUERY], places(bench, params))
        limit(mib)
        items = processor.new_xquery_processor().run_query_to_value(query_text=query)
        return answer(QUERY, [str(item) for item in items or ()])


def xquery(bench: BenchContext, sizes: By, limits: By) -> Figures:
    """Short memory: a query over XML of two stations and `sizes` years, by a processor with `limits` MiB."""
    stations, years, mib = 2, sizes[bench.scale], limits[bench.scale]
    params: Params = {"query": QUERY, "stations": stations, "years": years}
    found, due = places(bench, params), expected(params)
    words, size = [stations, years, str(found["/sensors"].parent)], f"{megabytes(found):.0f} MB of XML"
    fates = Contest(queried, (*ON_SPARK, SAXON), mib, bench, words, {SAXON: "saxonche"}).fates()
    return figures(fates, due, f"Query {QUERY} over {size} files, with {mib} MiB", heap=heap(mib))
