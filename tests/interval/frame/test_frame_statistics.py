"""Statistics of inputs that planning takes: true counts, an even sample, and no job twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dovetail.errors import DataError
from dovetail.joins.interval.api import interval_join, plan_interval_join
from dovetail.joins.interval.plan import statistics as frame_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 60_000
OPERATORS = ("forward_scan", "time_sweep", "sort_merge", "oip", "dip")


@pytest.fixture(autouse=True)
def nothing_known_by_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_statistics, "_BY_PLAN", {})


def rising(spark: SparkSession, rows: int = ROWS, partitions: int = 3) -> DataFrame:
    """Intervals [i, i + 7) in order, so that a sample of early rows only would show."""
    return spark.range(0, rows, 1, partitions).selectExpr("id as start", "id + 7 as end")


def test_counts_are_exact_and_the_sample_is_even(spark: SparkSession) -> None:
    left, right = rising(spark), rising(spark, 100)
    stats, few = plan_interval_join(left, right, algorithm="native").inputs.statistics
    assert (stats.rows, stats.usable, stats.inverted, stats.low, stats.last_start) == (ROWS, ROWS, 0, 0.0, ROWS - 1.0)
    assert (stats.high, stats.mean_length, stats.max_length) == (ROWS + 6.0, 7.0, 7.0)
    starts = stats.sample.start
    assert 1_000 < len(starts) <= 6_000
    # Tenths of the input have about a tenth of the sample each, and the order of the sample says nothing.
    shares = np.histogram(starts, bins=10, range=(0, ROWS))[0] / len(starts)
    assert np.abs(shares - 0.1).max() < 0.03
    assert abs(np.corrcoef(np.arange(len(starts)), starts)[0, 1]) < 0.1
    assert len(few.sample.start) == 100


def test_a_frame_that_is_known_is_not_asked_again(spark: SparkSession) -> None:
    left, right = rising(spark, 500), rising(spark, 300)
    first = plan_interval_join(left, right)
    context = spark.sparkContext
    context.setJobGroup("known", "planning again")
    try:
        again = plan_interval_join(left, right, how="left")
        assert list(context.statusTracker().getJobIdsForGroup("known")) == []
        narrower = plan_interval_join(left, right, right_interval=("start", "start"), closed="both")
        assert len(context.statusTracker().getJobIdsForGroup("known")) > 0
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # how Spark is told: no group
    assert again.inputs.statistics[0] is first.inputs.statistics[0]
    assert narrower.inputs.statistics[1].max_length == 0.0


def test_a_frame_that_is_read_again_is_not_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "rows")
    rising(spark, 500).write.parquet(place)
    right = rising(spark, 300)
    first = plan_interval_join(spark.read.parquet(place), right)
    assert planned(spark, spark.read.parquet(place), rising(spark, 300)) == (0, 0)
    again = plan_interval_join(spark.read.parquet(place), right, how="left")
    assert again.inputs.statistics[0] is first.inputs.statistics[0]
    rising(spark, 700).write.mode("append").parquet(place)
    assert plan_interval_join(spark.read.parquet(place), right).inputs.statistics[0].rows == 1_200
    random = rising(spark, 40).selectExpr("start", "end + cast(rand() * 3 as int) as end")
    plan_interval_join(random, right)
    assert planned(spark, random.select("*"), right)[0] == 1, "random rows may differ"


def test_files_that_changed_are_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "intervals")

    def written(first: int) -> DataFrame:
        """Files of the same sizes for every `first`."""
        rows = spark.range(first, first + 500, 1, 2).selectExpr("id as start", "id + 7 as end")
        rows.write.mode("overwrite").option("compression", "none").parquet(place)
        return spark.read.parquet(place)

    early, late = (plan_interval_join(frame, frame).inputs.statistics[0] for frame in map(written, (0, 9_000)))
    assert (early.low, late.low) == (0.0, 9_000.0)


@pytest.mark.parametrize("algorithm", ["auto", "native", "bins", *OPERATORS])
@pytest.mark.parametrize("how", ["inner", "full", "left_anti"])
def test_statistics_of_other_rows_change_no_answer(spark: SparkSession, algorithm: Any, how: Any) -> None:
    """Planned for short intervals near 0, joined are long ones far away."""
    rows = spark.range(200)
    short = rows.selectExpr("id % 3 as k", "id as start", "id + 2 as end")
    long = rows.selectExpr("id % 3 as k", "id * 50 - 2000 as start", "id * 50 - 1600 + id % 5 as end")
    on = ["k"] if algorithm == "native" else []
    plan_interval_join(short, short, how=how, algorithm=algorithm, on=on)
    frame_statistics._KEPT[long] = dict(frame_statistics._KEPT[short])
    plan = plan_interval_join(long, long, how=how, algorithm=algorithm, on=on, memory="1MB")
    assert plan.inputs.statistics[0].high < 300
    found = sorted(map(str, plan.frame().collect()))
    del frame_statistics._KEPT[long]
    expected = interval_join(long, long, how=how, algorithm="nested_loop", on=on)
    assert found == sorted(map(str, expected.collect()))


def test_inverted_rows_are_looked_for_in_every_frame(spark: SparkSession, tmp_path: Path) -> None:
    place, right = str(tmp_path / "rows"), rising(spark, 50)
    spark.sql("select 5 as start, 3 as end").coalesce(1).write.parquet(place)
    with pytest.raises(DataError, match="left input has 1 interval"):
        interval_join(spark.read.parquet(place), right)
    spark.sql("select 3 as start, 5 as end").coalesce(1).write.mode("overwrite").parquet(place)
    assert interval_join(spark.read.parquet(place), right).count() > 0


def test_known_inverted_rows_stay_an_error(spark: SparkSession) -> None:
    left, right = rising(spark, 50), spark.sql("select 5 as start, 3 as end union all select 1, 2")
    for _ in range(2):
        with pytest.raises(DataError, match=r"right input has 1 interval\(s\) that end before they start"):
            interval_join(left, right)
    assert interval_join(left, right, invalid="drop").count() == 2


def planned(spark: SparkSession, *frames: DataFrame, **options: Any) -> tuple[int, int]:
    """How many jobs and tasks planning takes."""
    context, group = spark.sparkContext, f"planning {id(frames)} {options}"
    context.setJobGroup(group, "planning")
    try:
        plan_interval_join(*frames, **options)
        jobs = context.statusTracker().getJobIdsForGroup(group)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # how Spark is told: no group
    infos = [context.statusTracker().getJobInfo(job) for job in jobs]
    stages = [context.statusTracker().getStageInfo(s) for info in infos if info for s in info.stageIds]
    return len(jobs), sum(stage.numCompletedTasks for stage in stages if stage)  # skipped ones ran none


@pytest.mark.parametrize("small", [frame_statistics.SMALL_BYTES, 0])
@pytest.mark.parametrize("options", [{}, {"keep": "first"}, {"how": "left_anti"}])
def test_planning_takes_one_job_that_scans_each_input_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, small: int, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(frame_statistics, "SMALL_BYTES", small)
    left, right = rising(spark, 5_000), rising(spark, 3_000).selectExpr("*", "cast(start as string) as text")
    assert planned(spark, left, right, **options) == (1, 6), "each input has three partitions"


def test_inputs_that_spark_knows_to_be_empty(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for small in (frame_statistics.SMALL_BYTES, 0):
        monkeypatch.setattr(frame_statistics, "SMALL_BYTES", small)
        left, right = rising(spark, 10).where("false"), rising(spark, 10)
        none, some = plan_interval_join(left, right).inputs.statistics
        assert (none.rows, none.usable, len(none.sample.start)) == (0, 0, 0)
        assert (some.rows, some.usable, len(some.sample.start)) == (10, 10, 10)


@pytest.mark.parametrize("limits", [{"SMALL_BYTES": 0}, {"SMALL_ROWS": 1_000}])
def test_rows_that_are_read_tell_what_aggregates_tell(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    """Small inputs are read, larger ones and those with more rows than their size tells are aggregated."""
    ends = "if(id % 7 = 0, id - 1, if(id % 11 = 0, null, id + id % 5)) as end"

    def found() -> list[Any]:
        rows = [
            spark.range(0, n, 1, 3).selectExpr("id as start", ends, "id % 13 as k", "'ab' as t") for n in (4_000, 900)
        ]
        return list(plan_interval_join(*rows, on="k", invalid="null", keep="any").inputs.statistics)

    read = found()
    for name, value in limits.items():
        monkeypatch.setattr(frame_statistics, name, value)
    for one, other in zip(read, found(), strict=True):
        for name in (
            "rows",
            "usable",
            "inverted",
            "low",
            "last_start",
            "high",
            "max_length",
            "key_bytes",
            "text_bytes",
        ):
            assert getattr(one, name) == getattr(other, name), name
        assert one.mean_length == pytest.approx(other.mean_length)
        assert one.sample.rows == other.sample.rows
    assert read[1].text_bytes == 2 * read[1].usable
    assert np.array_equal(np.sort(read[1].sample.start), np.sort(found()[1].sample.start))
