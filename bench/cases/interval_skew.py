"""Overlap under skew: lengths over six decades, and one key with nine tenths of the rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

from bench.case import Bound, Case, Outcome, Params, Rival
from bench.cases.interval_overlap import (
    Inputs,
    OnSpark,
    binned,
    overlap_counts,
    to_sink,
)
from bench.context import BenchContext
from dovetail.joins.interval.api import interval_join
from dovetail.spark.status import last_execution, task_milliseconds
from dovetail.workloads import LogUniform, RandomIntervals, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Join: TypeAlias = Callable[["DataFrame", "DataFrame"], "DataFrame"]

WIDTHS = (3_000, 30_000, 300_000, 3_000_000, 30_000_000)

SETTINGS = {
    # With one task a core, as in a local session, no task could be more than twice the median.
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    # The small scale is to run the plan of the full one, whose sides are too large to broadcast.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


def _sides(params: Params, seed: int) -> tuple[Workload, Workload]:
    rows, lengths = params["rows"], LogUniform(1, 1_000_000)
    left, right = (RandomIntervals(rows, 5_860 * rows, lengths, 100, 0.9, 2 * seed + n) for n in (1, 2))
    return left, right


DATA = Inputs(_sides)


def _expected(bench: BenchContext, params: Params) -> int:
    return int(overlap_counts(*DATA.tables(bench, params), keyed=True).sum())


@contextmanager
def settings(spark: SparkSession) -> Iterator[None]:
    """The settings of this case, the same for every rival, and then again those that the session had."""
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


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
    tasks = int(SETTINGS["spark.sql.shuffle.partitions"])
    return [row["count"] for row in counts] + [0] * (tasks - len(counts))


def _joined(join: Join, watched: bool = False) -> OnSpark:
    """To the no-op sink under this case's settings; if watched, then also how the work was spread over tasks."""

    def answer(left: DataFrame, right: DataFrame, params: Params, place: Path) -> Outcome:
        spark = left.sparkSession
        with settings(spark):
            outcome = to_sink(lambda: join(left, right))
            if not watched:
                return outcome
            time_skew = largest_over_median(join_milliseconds(spark))
            rows_skew = largest_over_median(task_rows(join(left, right)))
        return replace(outcome, figures={"task_time_skew": time_skew, "task_rows_skew": rows_skew})

    return answer


def _dovetail(left: DataFrame, right: DataFrame) -> DataFrame:
    return interval_join(left, right, on="key")


def _bins(width: int) -> Rival:
    return Rival(f"bins of {width:,}", DATA.spark(_joined(lambda left, right: binned(left, right, width, on=("key",)))))


CASE = Case(
    name="interval-skew",
    question="What does an overlap join cost when lengths span six decades and one key has 90 % of the rows?",
    varies=("rows",),
    points={"small": [{"rows": 50_000}], "full": [{"rows": 1_000_000}]},
    rivals=(Rival("dovetail", DATA.spark(_joined(_dovetail, watched=True))), *map(_bins, WIDTHS)),
    expected=_expected,
    baseline="dovetail",
    bounds=(
        *(
            Bound("near the best width", "dovetail", 1.1, against=f"bins of {width:,}", scale="full")
            for width in WIDTHS
        ),
        Bound("no task runs long", "dovetail", 2.0, figure="task_time_skew", scale="full"),
        Bound("no task gives out many rows", "dovetail", 2.0, figure="task_rows_skew"),
    ),
    answer="pairs",
    measures=("engine", "joins/interval", "spark"),
)
