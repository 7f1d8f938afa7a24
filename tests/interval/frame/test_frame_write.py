"""Parquet written by the tasks: the rows of the join, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interval.frame.answers import SCHEMA, answered, expected, random_rows

from dovetail.errors import PlanError
from dovetail.joins.interval.api import plan_interval_join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def inputs(spark: SparkSession) -> tuple[Any, Any, Any, Any]:
    left, right = random_rows(81, 60), random_rows(82, 60)
    schema = SCHEMA.format("long")
    return left, right, spark.createDataFrame(left, schema), spark.createDataFrame(right, schema)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("how", "algorithm"), [("inner", "auto"), ("inner", "dip"), ("full", "auto"), ("left_semi", "auto")]
)
def test_files_hold_the_answer(spark: SparkSession, tmp_path: Path, how: str, algorithm: str) -> None:
    left, right, l_frame, r_frame = inputs(spark)
    target = tmp_path / "out"
    metrics = plan_interval_join(l_frame, r_frame, how=how, on=[("k", "k")], algorithm=algorithm).write_parquet(
        str(target)
    )
    wanted = expected(left, right, how, on=[("k", "k")])
    assert answered(spark.read.parquet(str(target))) == wanted
    assert metrics.value("rows written") == sum(wanted.values())
    assert not list(target.glob("_temporary*"))
    assert (target / "_SUCCESS").exists()


def test_an_existing_answer_is_kept_unless_told(spark: SparkSession, tmp_path: Path) -> None:
    _, _, left, right = inputs(spark)
    plan = plan_interval_join(left, right, columns=["id", "id_right"])
    target = str(tmp_path / "out")
    rows = plan.write_parquet(target).value("rows written")
    with pytest.raises(PlanError, match="exists and is not empty"):
        plan.write_parquet(target)
    plan.write_parquet(target, mode="overwrite")
    assert spark.read.parquet(target).count() == rows
    assert spark.read.parquet(target).columns == ["id", "id_right"]


def test_an_empty_answer_is_a_readable_answer(spark: SparkSession, tmp_path: Path) -> None:
    _, _, left, right = inputs(spark)
    plan_interval_join(left.limit(0), right).write_parquet(str(tmp_path / "none"))
    assert spark.read.parquet(str(tmp_path / "none")).count() == 0


def test_a_failed_run_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    _, _, left, right = inputs(spark)
    broken = right.selectExpr("*", "if(id = 3, raise_error('no'), 1) as boom")
    plan = plan_interval_join(left, broken)
    with pytest.raises(Exception, match="no"):
        plan.write_parquet(str(tmp_path / "out"))
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
