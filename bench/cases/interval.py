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

from bench.case import Bound, Case, Outcome, Params, Rival
from bench.context import settings
from bench.intervals import Answer, Inputs, OnSpark, binned, to_sink
from dovetail.engine.memory import parse_bytes
from dovetail.errors import DataError
from dovetail.joins.interval.api import IntervalPlan, interval_count, interval_join, plan_interval_join
from dovetail.spark.status import last_execution, task_milliseconds
from dovetail.workloads import Exponential, LogUniform, RandomIntervals, Workload

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Join: TypeAlias = Callable[["DataFrame", "DataFrame"], "DataFrame"]
MEASURES = ("engine", "joins/interval", "spark")
DUCKDB = ("duckdb",)
RANGE_JOIN = "set prefer_range_joins = true"
PAIRS = """
create view pairs as
select l.id as l_id, l.start as l_start, l."end" as l_end, l.filler as l_filler,
       r.id as r_id, r.start as r_start, r."end" as r_end, r.filler as r_filler
from l join r on l.start < r."end" and r.start < l."end"
"""
JOIN = 'select * from l join r on l.key = r.key and l.start < r."end" and r.start < l."end"'


def _at_full(name: str, at_most: float, against: str, **where: object) -> Bound:
    return Bound(name, "dovetail", at_most, against=against, where=where, scale="full")


def bins_of(width: int) -> str:
    """The name of a rival with bins of this width."""
    return f"bins of {width:,}"


# Two uniform inputs: counted, to a no-op sink, and to Parquet.


def _uniform(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, lengths = params["rows"], Exponential(params["mean_length"])
    left, right = (RandomIntervals(rows, 100 * rows, lengths, seed=2 * seed + n, padding=8) for n in (1, 2))
    return left, right


UNIFORM = Inputs(_uniform, ("id", "start", "end", "filler"))
UNIFORM_WIDTHS = (1_000, 3_000, 9_000)


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
    if params["output"] == "no-op sink":
        return to_sink(lambda: interval_join(left, right))
    return _timed_files(place, lambda: plan_interval_join(left, right).write_parquet(str(place)))


def _overlap_duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    if params["output"] == "Parquet":
        return _timed_files(place, lambda: connection.execute(f"copy pairs to '{place}/pairs.parquet'"))
    row = connection.execute("select count(*) from pairs").fetchone()
    return int(row[0]) if row else 0


def _overlap_bins(width: int) -> Rival:
    def answer(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Answer:
        if params["output"] == "count":
            return binned(left, right, width).count()
        if params["output"] == "no-op sink":
            return to_sink(lambda: binned(left, right, width))
        return _timed_files(place, lambda: binned(left, right, width).write.mode("overwrite").parquet(str(place)))

    def sits_out(params: Params) -> str | None:
        if params["mean_length"] != 1_000:
            return "its widths are made for the shorter intervals"
        return "one width is enough here" if params["output"] == "Parquet" and width != UNIFORM_WIDTHS[1] else None

    return Rival(bins_of(width), UNIFORM.spark(answer), sits_out=sits_out)


def _no_sink(params: Params) -> str | None:
    return "has no sink that takes rows and keeps none" if params["output"] == "no-op sink" else None


def _uniform_points(rows: int) -> list[Params]:
    outputs = [(1_000, "count"), (1_000, "no-op sink"), (1_000, "Parquet"), (10_000, "count")]
    return [{"rows": rows, "mean_length": length, "output": output} for length, output in outputs]


OVERLAP = Case(
    name="interval-overlap",
    question="What do counting, materialising and writing the overlapping pairs of two uniform inputs cost?",
    varies=("rows", "mean_length", "output"),
    points={"small": _uniform_points(50_000), "full": _uniform_points(1_000_000)},
    rivals=(
        Rival("dovetail", UNIFORM.spark(_overlap)),
        Rival("duckdb", UNIFORM.duckdb(_overlap_duckdb, PAIRS), requires=DUCKDB, sits_out=_no_sink),
        *map(_overlap_bins, UNIFORM_WIDTHS),
    ),
    expected=UNIFORM.pairs,
    baseline="dovetail",
    rounds=9,  # the claims are within a tenth, and a round differs from the next by as much
    bounds=(
        _at_full("counts 20 M pairs", 1.5, "duckdb", output="count", mean_length=1_000),
        _at_full("counts 200 M pairs faster", 1.0, "duckdb", output="count", mean_length=10_000),
        *(
            _at_full("near the best width", 1.1, bins_of(width), output="no-op sink", mean_length=1_000)
            for width in UNIFORM_WIDTHS
        ),
        _at_full("writes Parquet", 2.0, "duckdb", output="Parquet", mean_length=1_000),
    ),
    answer="pairs",
    measures=MEASURES,
)

# Within 24 keys, few pairs: the shape of genes and chromosomes, customers and periods.


def _in_keys(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, others = params["rows"], params["others"]
    left = RandomIntervals(rows, 500 * rows, Exponential(270), 24, seed=2 * seed + 1)
    return left, RandomIntervals(others, 500 * rows, Exponential(1_200), 24, seed=2 * seed + 2)


KEYED = Inputs(_in_keys, keyed=True)
KEYED_WIDTHS = (1_000, 10_000, 100_000)


def on_sink(join: Join) -> OnSpark:
    """An answer on Spark: a join's rows to the no-op sink."""
    return lambda left, right, params, place: to_sink(lambda: join(left, right))


def on_key(left: DataFrame, right: DataFrame) -> DataFrame:
    """Our join within keys."""
    return interval_join(left, right, on="key")


def own_plan(left: DataFrame, right: DataFrame) -> DataFrame:
    """What Spark makes of the join as it is said: an equality join on the key, every pair of a key tested."""
    overlap = F.expr("l.key = r.key and l.start < r.end and r.start < l.end")
    return left.alias("l").join(right.alias("r"), overlap)


def keyed_bins(width: int) -> Rival:
    """Spark's equality join of rows that were put into bins of this width."""
    return Rival(bins_of(width), KEYED.spark(on_sink(lambda left, right: binned(left, right, width, on=("key",)))))


def keyed_duckdb(connection: DuckDBPyConnection, params: Params, place: Path) -> Answer:
    """DuckDB's pairs as an Arrow table."""
    return int(connection.sql(JOIN).to_arrow_table().num_rows)


WITHIN_KEYS = Case(
    name="interval-keyed",
    question="What does an overlap join within 24 keys cost, when few rows have a match?",
    varies=("rows", "others"),
    points={"small": [{"rows": 20_000, "others": 44_000}], "full": [{"rows": 200_000, "others": 440_000}]},
    rivals=(
        Rival("dovetail", KEYED.spark(on_sink(on_key))),
        *map(keyed_bins, KEYED_WIDTHS),
        Rival("spark's own plan", KEYED.spark(on_sink(own_plan))),
        # By default DuckDB joins on the key and tests all its pairs, as Spark does.
        Rival("duckdb, range join", KEYED.duckdb(keyed_duckdb, RANGE_JOIN), requires=DUCKDB),
    ),
    expected=KEYED.pairs,
    baseline="dovetail",
    bounds=(
        *(_at_full("no slower than any width", 1.0, bins_of(width)) for width in KEYED_WIDTHS),
        _at_full("twenty times faster than Spark's own plan", 0.05, "spark's own plan"),
    ),
    answer="pairs",
    measures=MEASURES,
    rounds=15,  # short ones, and Java is still compiling during the first
    patience_s=45.0,  # Spark's own plan runs once cold and once warm, a minute each; nobody else comes near
)

# Skew: lengths over six decades, and one key with nine tenths of the rows.

SKEW_WIDTHS = (3_000, 30_000, 300_000, 3_000_000, 30_000_000)
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


def _skew_bins(width: int) -> Rival:
    join = _under_skew(lambda left, right: binned(left, right, width, on=("key",)))
    return Rival(bins_of(width), SKEWED.spark(join))


SKEW = Case(
    name="interval-skew",
    question="What does an overlap join cost when lengths span six decades and one key has 90 % of the rows?",
    varies=("rows",),
    points={"small": [{"rows": 50_000}], "full": [{"rows": 1_000_000}]},
    rivals=(Rival("dovetail", SKEWED.spark(_under_skew(on_key, watched=True))), *map(_skew_bins, SKEW_WIDTHS)),
    expected=SKEWED.pairs,
    baseline="dovetail",
    bounds=(
        *(_at_full("near the best width", 1.1, bins_of(width)) for width in SKEW_WIDTHS),
        Bound("no task runs long", "dovetail", 2.0, figure="task_time_skew", scale="full"),
        Bound("no task gives out many rows", "dovetail", 2.0, figure="task_rows_skew"),
    ),
    answer="pairs",
    measures=MEASURES,
)

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
    """What the tasks reported: the largest peak of any of them over the budget, and what they spilled."""
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


def _budget_points(rows: int, memory: str, spilling_rows: int) -> list[Params]:
    """What is chosen here needs little memory; one that keeps a whole input somewhere shows what spilling costs.

    That one reads its inner input again for every frame of the outer one: its time grows with the square of the rows.
    """
    sizes = {"auto": rows, "dip": spilling_rows}
    return [{"rows": size, "memory": memory, "algorithm": algorithm} for algorithm, size in sizes.items()]


BUDGET = Case(
    name="interval-budget",
    question="Does a self-join of millions of rows stay inside a few megabytes a task, and what does that cost?",
    varies=("rows", "memory", "algorithm"),
    points={"small": _budget_points(50_000, "2MB", 50_000), "full": _budget_points(5_000_000, "16MB", 1_000_000)},
    rivals=(
        Rival("dovetail", SELF.spark(_in_budget)),
        Rival("duckdb", SELF.duckdb(_sums), requires=DUCKDB),
        Rival(
            "duckdb in 400MB",
            SELF.duckdb(_sums, "set memory_limit = '400MB'"),
            requires=DUCKDB,
            may_fail="its tables and its join share the limit",
        ),
    ),
    expected=SELF.pairs,
    baseline="dovetail",
    bounds=(Bound("inside the budget in every task", "dovetail", 1.0, figure="budget_share"),),
    answer="pairs",
    measures=MEASURES,
    rounds=3,
)
CASES = (OVERLAP, WITHIN_KEYS, SKEW, BUDGET)
