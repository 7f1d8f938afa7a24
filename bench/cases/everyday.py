"""Everyday interval joins by four ways: ours, Spark's own plan, bins of the best width, DuckDB.

A point says `rows` and `others` (of the right input), `keys`, `how` ("keep" is one match a left row), `data` and
`lengths`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Params, Prepare, Run, prepared
from bench.cases.interval_rivals import LIBRARIES
from bench.context import BenchContext
from bench.rivals.intervals import partners, to_sink, write_files
from dovetail.engine.kernels.arrays import I64
from dovetail.joins.interval.api import interval_join
from dovetail.workloads import RandomIntervals, parse_lengths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SPACING = 100
"""From one start of a key to the next, on average; so a row of mean length m meets m / 50 others."""
_LENGTHS = {
    "short": "exponential(25)",
    "long": "exponential(1000)",
    "mixed": "0.9 exponential(25) + 0.1 exponential(2000)",
    "genes": "exponential(20)",
}
_FEWEST_A_KEY = 5
_WIDTHS = (100, 1_000, 10_000)
_WHERE = {
    "l.start >= r.start and l.start < r.end": ("events",),
    "l.start < r.end and r.start < l.end": ("numbers", "timestamps", "text", "text keys"),
}


def _keys(params: Params) -> int:
    """The number of keys that the point gives, or fewer, so that each has at least five right rows."""
    return max(1, min(int(params["keys"]), int(params["others"]) // _FEWEST_A_KEY))


def _sides(params: Params) -> tuple[pa.Table, pa.Table]:
    keys = _keys(params)
    span = max(_SPACING, _SPACING * int(params["others"]) // keys)
    if params["data"] == "events":  # the right intervals of a key follow one another without a gap
        events = RandomIntervals(params["rows"], span, keys=keys, seed=1).table().select(["id", "key", "start"])
        numbers = np.arange(int(params["others"]))
        start = numbers // keys * _SPACING
        return events, pa.table({"id": numbers, "key": numbers % keys + 1, "start": start, "end": start + _SPACING})
    lengths, padding = parse_lengths(_LENGTHS[params["lengths"]]), 40 if params["data"] == "text" else 0
    both = [
        RandomIntervals(params[n], span, lengths, keys, seed=i, padding=padding)
        for i, n in enumerate(("rows", "others"))
    ]
    left, right = (side.table() for side in both)
    return left, right


def _typed(table: pa.Table, data: str) -> pa.Table:
    """Bounds as timestamps, a second a unit, or keys as text, where the data is so."""
    if data in ("timestamps", "events"):
        for at, name in enumerate(table.column_names):
            if name in ("start", "end"):
                table = table.set_column(at, name, pc.multiply(table[name], 1_000_000).cast(pa.timestamp("us", "UTC")))
    if data == "text keys":
        table = table.set_column(table.schema.get_field_index("key"), "key", table["key"].cast(pa.string()))
    return table


def tables(bench: BenchContext, params: Params) -> tuple[pa.Table, pa.Table]:
    """Both inputs as numbers, made once."""
    return bench.once("everyday", lambda: _sides(params))


def expected(bench: BenchContext, params: Params) -> int:
    """Rows of the result, from the number of partners of every left row."""
    left, right = tables(bench, params)
    span = 2 + int(pc.max(right["end"]).as_py()) + int(pc.max(left["start"]).as_py())

    def line(table: pa.Table, bound: str) -> I64:
        """Keys laid one after another on one line of time; an event lasts an instant."""
        times = table[bound].to_numpy() if bound in table.column_names else table["start"].to_numpy() + 1
        return np.asarray(np.minimum(times, span - 1) + table["key"].to_numpy() * span)

    counts = partners(*((line(table, "start"), line(table, "end")) for table in (left, right)))
    met = int((counts > 0).sum())
    answers = {"inner": counts.sum(), "left": np.maximum(counts, 1).sum(), "left_semi": met, "keep": met}
    return int(answers.get(params["how"], len(counts) - met))


def frames(bench: BenchContext, params: Params) -> tuple[DataFrame, DataFrame]:
    """Both inputs in Spark's cache."""

    def make() -> tuple[DataFrame, ...]:
        count = 2 * bench.spark.sparkContext.defaultParallelism
        places = [write_files(_typed(t, params["data"]), bench.fresh(), count) for t in tables(bench, params)]
        cached = [bench.spark.read.parquet(str(place)).cache() for place in places]
        for frame in cached:
            frame.count()
        return tuple(cached)

    left, right = bench.once("everyday frames", make)
    return left, right


Join = Callable[["DataFrame", "DataFrame", Params], "DataFrame"]


def on_spark(join: Join) -> Prepare:
    """A join of new DataFrames over the cached inputs, to the no-op sink."""

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        left, right = frames(bench, params)
        try:
            yield lambda: to_sink(lambda: join(left.select("*"), right.select("*"), params))
        finally:
            for frame in (left, right):
                frame.unpersist(blocking=True)

    return prepare


def _dovetail(left: DataFrame, right: DataFrame, params: Params) -> DataFrame:
    """Our join as users write it."""
    options: dict[str, Any] = {"on": "key"} if params["keys"] else {}
    if params["data"] == "events":
        options |= {"left_interval": ("start", "start"), "closed": ("both", "left")}
    how = {"how": "inner", "keep": "first"} if params["how"] == "keep" else {"how": params["how"]}
    return interval_join(left, right, **options, **how)


def _condition(params: Params) -> str:
    (overlap,) = (text for text, data in _WHERE.items() if params["data"] in data)
    return f"l.key = r.key and {overlap}" if params["keys"] else overlap


def _kept(pairs: DataFrame) -> DataFrame:
    """The first pair of each left row: a window, as users of Spark write it."""
    window = Window.partitionBy("l.id").orderBy("r.start")
    return pairs.withColumn("nth", F.row_number().over(window)).where("nth = 1")


def _own_plan(left: DataFrame, right: DataFrame, params: Params) -> DataFrame:
    """Spark's own plan for the join."""
    keep = params["how"] == "keep"
    joined = left.alias("l").join(right.alias("r"), F.expr(_condition(params)), "inner" if keep else params["how"])
    return _kept(joined) if keep else joined


def _bin(bound: str, params: Params, width: int) -> str:
    number = f"unix_micros({bound}) div 1000000" if params["data"] in ("timestamps", "events") else bound
    return f"({number}) div {width}"


def binned(width: int, left: DataFrame, right: DataFrame, params: Params) -> DataFrame:
    """Bins as an expert writes them: pairs in their first common bin; what else `how` asks for by the rows' numbers."""
    ends = {"l": "start" if params["data"] == "events" else "end", "r": "end"}
    sides = {}
    for side, frame in (("l", left), ("r", right)):
        bins = f"sequence({_bin('start', params, width)}, {_bin(ends[side], params, width)})"
        sides[side] = frame.withColumn("bin", F.explode(F.expr(bins))).alias(side)
    first = f"l.bin = {_bin('greatest(l.start, r.start)', params, width)}"
    pairs = sides["l"].join(sides["r"], F.expr(f"l.bin = r.bin and {first} and {_condition(params)}"))
    if params["how"] == "inner":
        return pairs
    if params["how"] == "keep":
        return _kept(pairs)
    if params["how"] == "left":
        found = pairs.select(F.col("l.id").alias("l_id"), "r.*").drop("bin").alias("f")
        return left.alias("o").join(found, F.expr("o.id = f.l_id"), "left")
    met = pairs.select(F.col("l.id").alias("l_id")).distinct()
    return left.join(met, F.expr("id = l_id"), params["how"])


@contextmanager
def best_bins(bench: BenchContext, params: Params) -> Iterator[Run]:
    """Bins of the width, of three, that was the fastest when each was tried once."""
    left, right = frames(bench, params)
    took = {}
    for width in _WIDTHS:
        began = time.perf_counter()
        to_sink(partial(binned, width, left, right, params))
        took[width] = time.perf_counter() - began
    with on_spark(partial(binned, min(took, key=took.__getitem__)))(bench, params) as run:
        yield run


_HOW = {"inner": "join", "left": "left join", "left_semi": "semi join", "left_anti": "anti join", "keep": "join"}


@contextmanager
def duckdb(bench: BenchContext, params: Params) -> Iterator[Run]:
    """DuckDB over its own tables; sums over columns of both sides make it form the rows."""
    import duckdb

    with duckdb.connect(config={"threads": 2, "temp_directory": str(bench.fresh())}) as connection:
        for name, table in zip("lr", tables(bench, params), strict=True):
            connection.from_arrow(_typed(table, params["data"])).create(name)
        condition = _condition(params).replace(".end", '."end"')
        rights = ["r.id", "r.start"] * (params["how"] not in ("left_semi", "left_anti"))
        columns = ", ".join(f"{name} as c{n}" for n, name in enumerate(["l.id", "l.start", *rights]))
        first = " qualify row_number() over (partition by l.id order by r.start) = 1" * (params["how"] == "keep")
        query = f"select {columns} from l {_HOW[params['how']]} r on {condition}{first}"  # noqa: S608  (our own text)
        sums = ", ".join(f"max(c{n})" for n in range(2 + len(rights)))

        def run() -> int:
            row = connection.execute(f"select count(*), {sums} from ({query})").fetchone()  # noqa: S608  (as above)
            return int(row[0]) if row else 0

        yield run


@prepared
def polars_bio(bench: BenchContext, params: Params) -> Run:
    """The library for genomes, on one process and keys that are text."""
    library = LIBRARIES["polars-bio"]
    left, right = (library.convert(_typed(table, params["data"])) for table in tables(bench, params))
    return lambda: library.count(library.join(left, right))


ours, plain = on_spark(_dovetail), on_spark(_own_plan)
