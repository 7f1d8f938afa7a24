"""Interval inputs in every form that a rival wants, overlap joins by hand, and independent counts of pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.case import Outcome, Params, Prepare, Run
from bench.context import BenchContext
from dovetail.engine.kernels.arrays import I64
from dovetail.spark.status import last_execution
from dovetail.workloads import Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Answer: TypeAlias = int | Outcome
OnSpark: TypeAlias = Callable[["DataFrame", "DataFrame", Params, Path], Answer]
OnDuckDB: TypeAlias = Callable[["DuckDBPyConnection", Params, Path], Answer]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The two inputs of a case in every form that a rival wants, each made once a point.

    Spark rivals read the same cached frames; DuckDB has tables `l` and `r` in process and as many threads as Spark has
    cores. Answers are also given a directory of their own to write to.
    """

    sides: Callable[[Params, int], tuple[Workload, Workload]]
    columns: tuple[str, ...] = ("id", "key", "start", "end")
    keyed: bool = False

    def tables(self, bench: BenchContext, params: Params) -> tuple[pa.Table, pa.Table]:
        """Both inputs as Arrow tables; one and the same for a self-join."""

        def make() -> tuple[pa.Table, pa.Table]:
            left, right = self.sides(params, bench.seed)
            first = left.table().select(self.columns)
            return first, first if right is left else right.table().select(self.columns)

        return bench.once("tables", make)

    def pairs(self, bench: BenchContext, params: Params) -> int:
        """How many pairs overlap; within keys if the inputs have some."""
        return int(overlap_counts(*self.tables(bench, params), keyed=self.keyed).sum())

    def files(self, bench: BenchContext, params: Params) -> tuple[Path, Path]:
        """Both inputs as directories of Parquet files, two a core, so that Spark reads them with every core."""

        def make() -> tuple[Path, Path]:
            left, right = self.tables(bench, params)
            count = 2 * bench.spark.sparkContext.defaultParallelism
            first = write_files(left, bench.fresh(), count)
            return first, first if right is left else write_files(right, bench.fresh(), count)

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
                yield lambda: answer(left, right, params, bench.fresh())
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
            with duckdb.connect(config={"threads": threads, "temp_directory": str(bench.fresh())}) as connection:
                for name, path in zip("lr", self.files(bench, params), strict=True):
                    connection.read_parquet(f"{path}/*.parquet").create(name)
                for statement in statements:
                    connection.execute(statement)
                yield lambda: answer(connection, params, bench.fresh())

        return prepare


def write_files(table: pa.Table, directory: Path, count: int) -> Path:
    """Write the table as `count` Parquet files to a directory, which is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = -(-table.num_rows // count)
    for number in range(count):
        pq.write_table(table.slice(number * rows, rows), directory / f"{number:02d}.parquet")
    return directory


def overlap_counts(left: pa.Table, right: pa.Table, keyed: bool = False) -> I64:
    """For each left row, how many right rows overlap it.

    Keys are laid one after another on one line, so that rows of different keys never meet.
    """
    span = max(int(np.max(table["end"].to_numpy(), initial=0)) for table in (left, right)) + 1

    def line(table: pa.Table, bound: str) -> I64:
        return np.asarray(table[bound]) + (np.asarray(table["key"]) * span if keyed else 0)

    sides = ((line(table, "start"), line(table, "end")) for table in (left, right))
    return partners(*sides)


def partners(left: tuple[I64, I64], right: tuple[I64, I64]) -> I64:
    """For each left interval, given as starts and ends, how many right ones overlap it, without any of the joins.

    From sorted bounds: those begun in time less those over.
    """
    begun = np.searchsorted(np.sort(right[0]), left[1], side="left")
    return (begun - np.searchsorted(np.sort(right[1]), left[0], side="right")).astype(np.int64)


def binned(left: DataFrame, right: DataFrame, width: int, on: tuple[str, ...] = ()) -> DataFrame:
    """The overlap join that a good engineer writes by hand: bins of one width, and each pair in its first common bin.

    Columns are named l_... and r_...
    """
    from pyspark.sql.functions import expr

    rows, others = exploded(left, "l", width), exploded(right, "r", width)
    conditions = ["l_bin = r_bin", *(f"l_{key} = r_{key}" for key in on), "l_start < r_end", "r_start < l_end"]
    conditions.append(f"l_bin = greatest(l_start, r_start) div {width}")
    return rows.join(others, expr(" and ".join(conditions))).drop("l_bin", "r_bin")


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
