"""Overlap joins: uniform inputs, within 24 keys, under skew, and in a small budget."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Outcome, Params, Prepare
from bench.context import settings
from bench.rivals.intervals import Answer, Inputs, OnSpark, binned, to_sink
from dovetail.engine.memory import parse_bytes
from dovetail.errors import DataError
from dovetail.joins.interval.api import IntervalPlan, interval_count, interval_join, plan_interval_join
from dovetail.spark.status import last_execution, task_milliseconds
from dovetail.workloads import Exponential, LogUniform, RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Join: TypeAlias = Callable[["DataFrame", "DataFrame"], "DataFrame"]
RANGE_JOIN = "set prefer_range_joins = true"
PAIRS = """
create view pairs as
select l.id as l_id, l.start as l_start, l."end" as l_end, l.filler as l_filler,
       r.id as r_id, r.start as r_start, r."end" as r_end, r.filler as r_filler
from l join r on l.start < r."end" and r.start < l."end"
"""
JOIN = 'select * from l join r on l.key = r.key and l.start < r."end" and r.start < l."end"'


# Two uniform inputs: counted, to a no-op sink, and to Parquet.


def _uniform(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, lengths = params["rows"], Exponential(params["mean_length"])
    left, right = (RandomIntervals(rows, 100 * rows, lengths, seed=2 * seed + n, padding=8) for n in (1, 2))
    return left, right


UNIFORM = Inputs(_uniform, ("id", "start", "end", "filler"))


def _timed_files(place: Path, write: Callable[[], object]) -> Outcome:
    """Time the writing; the answer is what the files' own footers say. They are removed at once."""
    began = time.perf_counter()
    write()
    seconds = time.perf_counter() - began
    rows = sum(pq.read_metadata(file).num_rows for file in place.rglob("*.parquet"))
    shutil.rmtree(place)
    return Outcome(rows, seconds)


def _overlap(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    if params["output"] == "count":
        return interval_count(left, right)
    left, right = left.select("*"), right.select("*")  # new DataFrames, of which nothing is known yet
    if params["output"] == "count, new frames":
        return interval_count(left, right)
    if params["output"] == "no-op sink":
        return to_sink(lambda: interval_join(left, right))
    if params["output"] == "Spark's Parquet":
        return _timed_files(place, lambda: interval_join(left, right).write.mode("overwrite").parquet(str(place)))
    return _timed_files(place, lambda: plan_interval_join(left, right).write_parquet(str(place)))


def _overlap_duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    if params["output"].endswith("Parquet"):
        return _timed_files(place, lambda: connection.execute(f"copy pairs to '{place}/pairs.parquet'"))
    row = connection.execute("select count(*) from pairs").fetchone()
    return int(row[0]) if row else 0


def overlap_bins(width: int) -> Prepare:
    """Bins of one width."""

    def answer(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
        if params["output"].startswith("count"):
            return binned(left, right, width).count()
        if params["output"] == "no-op sink":
            return to_sink(lambda: binned(left, right, width))
        return _timed_files(place, lambda: binned(left, right, width).write.mode("overwrite").parquet(str(place)))

    return UNIFORM.spark(answer)


overlap = UNIFORM.spark(_overlap)
overlap_duckdb = UNIFORM.duckdb(_overlap_duckdb, PAIRS)

# Within 24 keys, few pairs: the shape of genes and chromosomes, customers and periods.


def _in_keys(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, others = params["rows"], params["others"]
    left = RandomIntervals(rows, 500 * rows, Exponential(270), 24, seed=2 * seed + 1)
    return left, RandomIntervals(others, 500 * rows, Exponential(1_200), 24, seed=2 * seed + 2)


KEYED = Inputs(_in_keys, keyed=True)


def on_sink(join: Join) -> OnSpark:
    """An answer on Spark: a join's rows to the no-op sink."""
    return lambda left, right, params, place: to_sink(lambda: join(left, right))


def on_key(left: DataFrame, right: DataFrame) -> DataFrame:
    """Our join within keys."""
    return interval_join(left, right, on="key")


def own_plan(left: DataFrame, right: DataFrame) -> DataFrame:
    """Spark's own plan for the join: an equality join on the key, every pair of a key tested."""
    overlap = F.expr("l.key = r.key and l.start < r.end and r.start < l.end")
    return left.alias("l").join(right.alias("r"), overlap)


def keyed_bins(width: int) -> Prepare:
    """Spark's equality join of rows that were put into bins of this width."""
    return KEYED.spark(on_sink(lambda left, right: binned(left, right, width, on=("key",))))


def _keyed_duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    """DuckDB's pairs as an Arrow table."""
    return int(connection.sql(JOIN).to_arrow_table().num_rows)


keyed, keyed_plan = KEYED.spark(on_sink(on_key)), KEYED.spark(on_sink(own_plan))
keyed_duckdb = KEYED.duckdb(_keyed_duckdb)
keyed_duckdb_ranges = KEYED.duckdb(_keyed_duckdb, RANGE_JOIN)
"""By default DuckDB joins on the key and tests all its pairs, as Spark does."""

# Skew: lengths over six decades, and one key with nine tenths of the rows.

SKEW_SETTINGS = {
    # With one task a core, as in a local session, no task could be more than twice the median.
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    # The small scale is to run the plan of the full one, whose sides are too large to broadcast.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def _skewed(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, lengths = params["rows"], LogUniform(1, 1_000_000)
    left, right = (RandomIntervals(rows, 5_860 * rows, lengths, 100, 0.9, 2 * seed + n) for n in (1, 2))
    return left, right


SKEWED = Inputs(_skewed, keyed=True)


def largest_over_median(figures: list[int]) -> float:
    """How far the largest task stands out."""
    return max(figures) / max(1, statistics.median(figures))


def join_milliseconds(spark: SparkSession) -> list[int]:
    """The run times of the tasks that joined and gave out rows: the last stage of the query that has just run."""
    run = last_execution(spark)
    return task_milliseconds(spark, max(run.stages)) if run else []


def task_rows(frame: DataFrame) -> list[int]:
    """How many rows each task of the join gives out, by its partition number; a task without rows counts as 0."""
    counts = frame.groupBy(F.spark_partition_id()).count().collect()
    tasks = int(SKEW_SETTINGS["spark.sql.shuffle.partitions"])
    return [row["count"] for row in counts] + [0] * (tasks - len(counts))


def _under_skew(join: Join, watched: bool = False) -> OnSpark:
    """To the no-op sink under this case's settings; if watched, then also how the work was spread over tasks."""

    def answer(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Outcome:
        spark = left.sparkSession
        with settings(spark, SKEW_SETTINGS):
            outcome = to_sink(lambda: join(left, right))
            if not watched:
                return outcome
            time_skew = largest_over_median(join_milliseconds(spark))
            rows_skew = largest_over_median(task_rows(join(left, right)))
        return replace(outcome, figures={"task_time_skew": time_skew, "task_rows_skew": rows_skew})

    return answer


def skew_bins(width: int) -> Prepare:
    """Bins of one width under skew."""
    return SKEWED.spark(_under_skew(lambda left, right: binned(left, right, width, on=("key",))))


skewed = SKEWED.spark(_under_skew(on_key, watched=True))

# A large self-join in a small budget: the tracked peak, the spills, and the right answer.


def _self_join(params: Params, seed: int) -> tuple[Workload, Workload]:
    both = RandomIntervals(params["rows"], 100 * params["rows"], Exponential(200), 1_000, seed=seed)
    return both, both


SELF = Inputs(_self_join)
SUMS = """
select count(*), sum(l.id + l.key + l.start + l."end"), sum(r.id + r.key + r.start + r."end")
from l join r on l.start < r."end" and r.start < l."end"
"""


def _in_budget(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
    plans: list[IntervalPlan] = []

    def make() -> DataFrame:
        named = {"memory": params["memory"], "algorithm": params["algorithm"]}
        plans.append(plan_interval_join(left, right, route="streaming", **named))
        return plans[0].frame()

    outcome = to_sink(make)
    return replace(outcome, figures=_budget_figures(plans[0], params["memory"]))


def _budget_figures(plan: IntervalPlan, memory: str) -> dict[str, float]:
    """Metrics of the tasks: the largest peak of any of them over the budget, and the bytes that they spilled."""
    metrics = plan.metrics()
    peak = metrics.value("memory")
    if not peak:
        raise DataError(f"no task reported its memory; the metrics are:\n{metrics}")
    return {
        "budget_share": peak / parse_bytes(memory),
        "peak_bytes": peak,
        "tasks": metrics.tasks,
        "spills": metrics.value("spills"),
        "inner_batches": metrics.value("inner_batches"),
        "spilled_bytes": metrics.value("bytes_written"),
    }


def _sums(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    """DuckDB has no sink that keeps nothing; sums over every column make it form the whole rows."""
    row = connection.execute(SUMS).fetchone()
    return int(row[0]) if row else 0


in_budget = SELF.spark(_in_budget)


def self_duckdb(memory: str = "") -> Prepare:
    """DuckDB's self-join, within a limit if there is one."""
    return SELF.duckdb(_sums, *[f"set memory_limit = '{memory}'"] * bool(memory))
