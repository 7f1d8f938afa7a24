"""Bad input: clear errors, and no job started where the driver can know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.interval.frame.answers import answered

import oracle
from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.api import count_overlaps, interval_count, interval_join, interval_topk, plan_interval_join
from dovetail.joins.interval.plan.sides import prepare
from dovetail.joins.interval.request import JoinOptions
from dovetail.spark.task_errors import translate_task_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 0, 5)], "k int, start int, end int")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"relation": "overlaping"}, "relation='overlaping' is not known; did you mean 'overlapping'"),
    ({"relation": []}, "empty set"),
    ({"left_interval": ("start", "stop")}, r"left input has no column 'stop'; it has \['k', 'start', 'end'\]"),
    ({"right_interval": "k"}, "name two columns or a struct of two fields"),
    ({"on": "key"}, r"left input has no column 'key'"),
    ({"on": [("k", "q")]}, r"right input has no column 'q'"),
    ({"on": [1]}, "each key is a column name"),
    ({"memory": "1KB"}, "needs at least 1 MiB"),
    ({"memory": "lots"}, "lots"),
    ({"how": "outter"}, "did you mean 'outer'|Known: inner"),
    ({"closed": "half"}, "closed='half'"),
    ({"algorithm": "mergesort"}, "algorithm='mergesort' is not known"),
    ({"invalid": "ignore"}, "invalid='ignore' is not known"),
    ({"keep": "first", "how": "full"}, "keep='first'"),
    ({"partitions": 0}, "partitions=0"),
    ({"split_points": [1, 2], "partitions": 2}, "does not fit 2 split points"),
    ({"split_points": ["x"]}, "split_points: 'x' is not a value"),
    ({"route": "native", "algorithm": "dip"}, "does not run on route='native'"),
    ({"columns": ["nothing"]}, "the result has no column 'nothing'"),
    ({"condition": "nothing > 1"}, "does not fit the result's columns"),
    ({"condition": "sum(1) > 1"}, "without aggregates and window functions"),
    ({"condition": "row_number() over (order by 1) > 1"}, "without aggregates and window functions"),
])  # fmt: skip
def test_requests_that_cannot_be_right(frame: DataFrame, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        interval_join(frame, frame, **arguments)


def test_a_wrong_request_starts_no_job(spark: SparkSession, frame: DataFrame) -> None:
    text = spark.createDataFrame([("a", "b")], "start string, end string")
    spark.sparkContext.setJobGroup("refused", "refused")
    try:
        for wrong in ({"relation": "x"}, {"on": "nope"}, {"memory": "1KB"}, {"columns": ["nope"]}):
            with pytest.raises(PlanError):
                interval_join(frame, frame, **wrong)  # type: ignore[arg-type]
        with pytest.raises(PlanError, match="a bound has type string"):
            interval_join(frame, text)
        with pytest.raises(PlanError, match="do not compare"):
            interval_join(frame, spark.sql("select date'2024-01-01' as start, date'2024-01-02' as end"))
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("refused")) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_inverted_intervals(spark: SparkSession) -> None:
    good = spark.createDataFrame([(1, 0.0, 9.0)], "id int, start double, end double")
    bad = spark.createDataFrame(
        [(1, 0.0, 5.0), (2, 5.0, 1.0), (3, 2.0, float("nan"))], "id int, start double, end double"
    )
    for call in (interval_join, interval_count, count_overlaps, interval_topk):
        with pytest.raises(DataError, match=r"right input has 2 interval\(s\).*'id': 2.*invalid='drop'"):
            call(good, bad)  # type: ignore[operator]
    columns = ["id", "id_right"]
    assert answered(interval_join(good, bad, how="right", invalid="null", columns=columns)) == oracle.bag(
        [(1, 1), (None, 2), (None, 3)]
    )
    assert answered(interval_join(good, bad, how="right", invalid="drop", columns=columns)) == oracle.bag([(1, 1)])
    assert interval_count(good, bad, invalid="drop") == 1


def test_rows_that_turn_bad_after_planning_fail_the_query(spark: SparkSession) -> None:
    translate_task_errors()
    rows = spark.createDataFrame([(5, 0)], "start int, end int")
    for how in ("inner", "full"):
        side = prepare(rows, rows, JoinOptions(how=how).request())[0].checked("error")
        with pytest.raises(DataError, match=r"^left input changed since it was planned.*invalid=\"drop\""):
            side.frame.collect()


def test_planning_twice_is_the_same_plan(frame: DataFrame) -> None:
    first, second = (plan_interval_join(frame, frame).explain() for _ in range(2))
    assert first == second
