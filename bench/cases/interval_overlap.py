"""Overlap of two uniform inputs: counted, to a no-op sink, and to Parquet. Other interval cases use its parts."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run
from bench.context import BenchContext
from dovetail.engine.kernels.arrays import I64
from dovetail.joins.interval.api import interval_count, interval_join, plan_interval_join
from dovetail.spark.status import last_execution
from dovetail.workloads import Exponential, RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Answer: TypeAlias = int | Outcome
OnSpark: TypeAlias = Callable[["DataFrame", "DataFrame", Params, Path], Answer]
OnDuckDB: TypeAlias = Callable[["DuckDBPyConnection", Params, Path], Answer]

WIDTHS = (1_000, 3_000, 9_000)
USUAL = WIDTHS[1]

PAIRS = """
create view pairs as
select l.id as l_id, l.start as l_start, l."end" as l_end, l.filler as l_filler,
       r.id as r_id, r.start as r_start, r."end" as r_end, r.filler as r_filler
from l join r on l.start < r."end" and r.start < l."end"
"""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The two inputs of a case in every form that a rival wants, each made once a point.

    Spark rivals read the same cached frames; DuckDB has tables `l` and `r` in process and as many threads as Spark has
    cores. Answers are also given a directory of their own to write to.
    """

    sides: Callable[[Params, int], tuple[Workload, Workload]]
    columns: tuple[str, ...] = ("id", "key", "start", "end")

    def tables(self, bench: BenchContext, params: Params) -> tuple[pa.Table, pa.Table]:
        """Both inputs as Arrow tables; one and the same for a self-join."""

        def make() -> tuple[pa.Table, pa.Table]:
            left, right = self.sides(params, bench.seed)
            first = left.table().select(self.columns)
            return first, first if right is left else right.table().select(self.columns)

        return bench.once("tables", make)

    def files(self, bench: BenchContext, params: Params) -> tuple[Path, Path]:
        """Both inputs as directories of Parquet files, two a core, so that Spark reads them with every core."""

        def make() -> tuple[Path, Path]:
            left, right = self.tables(bench, params)
            count = 2 * bench.spark.sparkContext.defaultParallelism
            first = _write_files(left, _fresh(bench), count)
            return first, first if right is left else _write_files(right, _fresh(bench), count)

        return bench.once("files", make)

    def frames(self, bench: BenchContext, params: Params) -> tuple[DataFrame, DataFrame]:
        """Both inputs as DataFrames, in Spark's cache."""

        def make() -> tuple[DataFrame, DataFrame]:
            paths = dict.fromkeys(self.files(bench, params))
            cached = [bench.spark.read.parquet(str(path)).cache() for path in paths]
            for frame in cached:
                frame.count()
            return cached[0], cached[-1]

        return bench.once("frames", make)

    def spark(self, answer: OnSpark) -> Prepare:
        """A rival on Spark: its answer over the cached frames."""

        @contextmanager
        def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
            left, right = self.frames(bench, params)
            try:
                yield lambda: answer(left, right, params, _fresh(bench))
            finally:
                for frame in (left, right):
                    frame.unpersist(blocking=True)

        return prepare

    def duckdb(self, answer: OnDuckDB, *statements: str) -> Prepare:
        """A rival in DuckDB: its answer on a connection that has run the statements."""

        @contextmanager
        def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
            import duckdb

            threads = bench.spark.sparkContext.defaultParallelism
            with duckdb.connect(config={"threads": threads, "temp_directory": str(_fresh(bench))}) as connection:
                for name, path in zip("lr", self.files(bench, params), strict=True):
                    connection.read_parquet(f"{path}/*.parquet").create(name)
                for statement in statements:
                    connection.execute(statement)
                yield lambda: answer(connection, params, _fresh(bench))

        return prepare


def _fresh(bench: BenchContext) -> Path:
    return Path(tempfile.mkdtemp(dir=bench.scratch))


def _write_files(table: pa.Table, directory: Path, count: int) -> Path:
    rows = -(-table.num_rows // count)
    for number in range(count):
        pq.write_table(table.slice(number * rows, rows), directory / f"{number:02d}.parquet")
    return directory


def overlap_counts(left: pa.Table, right: pa.Table, keyed: bool = False) -> I64:
    """For each left row, how many right rows overlap it, from sorted bounds: those begun in time less those over.

    Keys are laid one after another on one line, so that rows of different keys never meet.
    """
    span = max(int(np.max(table["end"].to_numpy(), initial=0)) for table in (left, right)) + 1

    def line(table: pa.Table, bound: str) -> I64:
        return np.asarray(table[bound]) + (np.asarray(table["key"]) * span if keyed else 0)

    begun = np.searchsorted(np.sort(line(right, "start")), line(left, "end"), side="left")
    over = np.searchsorted(np.sort(line(right, "end")), line(left, "start"), side="right")
    return (begun - over).astype(np.int64)


def binned(left: DataFrame, right: DataFrame, width: int, on: tuple[str, ...] = ()) -> DataFrame:
    """The overlap join that a good engineer writes by hand: bins of one width, and each pair in its first common bin.

    Columns are named l_... and r_...
    """
    rows, others = exploded(left, "l", width), exploded(right, "r", width)
    conditions = ["l_bin = r_bin", *(f"l_{key} = r_{key}" for key in on), "l_start < r_end", "r_start < l_end"]
    conditions.append(f"l_bin = greatest(l_start, r_start) div {width}")
    return rows.join(others, F.expr(" and ".join(conditions))).drop("l_bin", "r_bin")


def exploded(frame: DataFrame, side: str, width: int) -> DataFrame:
    """The rows of one side with the prefix l_ or r_, one for each bin that they reach."""
    renamed = frame.selectExpr(*(f"`{column}` as {side}_{column}" for column in frame.columns))
    bins = f"explode(sequence({side}_start div {width}, ({side}_end - 1) div {width}))"
    return renamed.selectExpr("*", f"{bins} as {side}_bin")


def to_sink(make: Callable[[], DataFrame]) -> Outcome:
    """Time making the frame and running it into Spark's no-op sink; the answer is the rows that the sink counted."""
    began = time.perf_counter()
    frame = make()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - began
    return Outcome(sink_rows(frame.sparkSession), seconds)


def sink_rows(spark: SparkSession) -> int:
    """The rows that the no-op sink of the last query counted: Spark's own metric, so that counting costs nothing."""
    run = last_execution(spark)
    return next(node.values["number of output rows"] for node in run.nodes if "noop" in node.name) if run else 0


def _timed_files(place: Path, write: Callable[[], object]) -> Outcome:
    """Time the writing; the answer is what the files' own footers say. They are removed at once."""
    began = time.perf_counter()
    write()
    seconds = time.perf_counter() - began
    rows = sum(pq.read_metadata(file).num_rows for file in place.rglob("*.parquet"))
    shutil.rmtree(place)
    return Outcome(rows, seconds)


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, lengths = params["rows"], Exponential(params["mean_length"])
    left, right = (RandomIntervals(rows, 100 * rows, lengths, seed=2 * seed + n, padding=8) for n in (1, 2))
    return left, right


DATA = Inputs(_sides, ("id", "start", "end", "filler"))


def _expected(bench: BenchContext, params: Params) -> int:
    return int(overlap_counts(*DATA.tables(bench, params)).sum())


def _dovetail(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    if params["output"] == "count":
        return interval_count(left, right)
    if params["output"] == "no-op sink":
        return to_sink(lambda: interval_join(left, right))
    return _timed_files(place, lambda: plan_interval_join(left, right).write_parquet(str(place)))


def _duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    if params["output"] == "Parquet":
        return _timed_files(place, lambda: connection.execute(f"copy pairs to '{place}/pairs.parquet'"))
    row = connection.execute("select count(*) from pairs").fetchone()
    return int(row[0]) if row else 0


def _bins(width: int) -> Rival:
    def answer(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
        if params["output"] == "count":
            return binned(left, right, width).count()
        if params["output"] == "no-op sink":
            return to_sink(lambda: binned(left, right, width))
        return _timed_files(place, lambda: binned(left, right, width).write.mode("overwrite").parquet(str(place)))

    def sits_out(params: Params) -> str | None:
        if params["mean_length"] != 1_000:
            return "its widths are made for the shorter intervals"
        return "one width is enough here" if params["output"] == "Parquet" and width != USUAL else None

    return Rival(f"bins of {width:,}", DATA.spark(answer), sits_out=sits_out)


def _no_sink(params: Params) -> str | None:
    return "has no sink that takes rows and keeps none" if params["output"] == "no-op sink" else None


def _points(rows: int) -> list[Params]:
    outputs = [(1_000, "count"), (1_000, "no-op sink"), (1_000, "Parquet"), (10_000, "count")]
    return [{"rows": rows, "mean_length": length, "output": output} for length, output in outputs]


def _bound(name: str, at_most: float, against: str, output: str, mean_length: int = 1_000) -> Bound:
    where = {"output": output, "mean_length": mean_length}
    return Bound(name, "dovetail", at_most, against=against, where=where, scale="full")


CASE = Case(
    name="interval-overlap",
    question="What do counting, materialising and writing the overlapping pairs of two uniform inputs cost?",
    varies=("rows", "mean_length", "output"),
    points={"small": _points(50_000), "full": _points(1_000_000)},
    rivals=(
        Rival("dovetail", DATA.spark(_dovetail)),
        Rival("duckdb", DATA.duckdb(_duckdb, PAIRS), requires=("duckdb",), sits_out=_no_sink),
        *map(_bins, WIDTHS),
    ),
    expected=_expected,
    baseline="dovetail",
    rounds=9,  # the claims are within a tenth, and a round differs from the next by as much
    bounds=(
        _bound("counts 20 M pairs", 1.5, "duckdb", "count"),
        _bound("counts 200 M pairs faster", 1.0, "duckdb", "count", 10_000),
        *(_bound("near the best width", 1.1, f"bins of {width:,}", "no-op sink") for width in WIDTHS),
        _bound("writes Parquet", 2.0, "duckdb", "Parquet"),
    ),
    answer="pairs",
    measures=("engine", "joins/interval", "spark"),
)
