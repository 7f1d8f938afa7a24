"""Parquet written by the tasks: the rows of the join, all or nothing."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.rivals.object_store import KEY, SECRET, ObjectStore
from tests.interval.frame.answers import SCHEMA, answered, expected, random_rows

from dovetail.engine.storage.remote import S3Access
from dovetail.errors import PlanError
from dovetail.joins.interval.api import plan_interval_join
from dovetail.joins.interval.plan.write import _write, new_target

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


def test_files_in_an_object_store(spark: SparkSession) -> None:
    """Reached with what Spark was given; nothing but the answer is left there, and keys are not shown."""
    _, _, left, right = inputs(spark)
    with ObjectStore() as server:
        settings = {name.removeprefix("spark.hadoop."): value for name, value in server.settings.items()}
        for name, value in settings.items():
            spark.conf.set(name, value)
        plan = plan_interval_join(left, right, columns=["id", "id_right"])
        rows = [
            plan.write_parquet("s3a://data/out", mode=mode).value("rows written") for mode in ("error", "overwrite")
        ]
        for name in settings:
            spark.conf.unset(name)
        found = {key: one.data for key, one in server.objects.items() if one.data}
        assert all(key.endswith(".parquet") for key in found)
        assert rows[0] == rows[1] == sum(pq.read_table(BytesIO(data)).num_rows for data in found.values())
        assert "out/_SUCCESS" in server.objects
        access = S3Access(server.endpoint, "us-east-1", KEY, SECRET, path_style=True, ssl=False)
        assert SECRET not in repr(new_target("s3a://data/new", (), pa.schema([]), "snappy", "overwrite", access))


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


def test_columns_that_a_pair_needs_hold_no_nulls(spark: SparkSession, tmp_path: Path) -> None:
    _, _, left, right = inputs(spark)
    plan_interval_join(left, right, algorithm="forward_scan").write_parquet(str(tmp_path / "out"))
    for file in (tmp_path / "out").glob("*.parquet"):
        schema = pq.read_schema(file)
        required = [field.name for field in schema if not field.nullable]
        assert required == ["start", "end", "start_right", "end_right"]


@pytest.mark.parametrize(("group_bytes", "groups"), [(1 << 20, 1), (8_000, 5), (1, 50)])
def test_small_batches_share_a_row_group(tmp_path: Path, group_bytes: int, groups: int) -> None:
    target = new_target(str(tmp_path / "out"), ("a",), pa.schema([("a", pa.int64())]), "snappy", "error")
    Path(target.hidden()).mkdir(parents=True)
    batch = pa.RecordBatch.from_pydict({"b": range(100), "a": range(100)})
    (made,) = _write(target, group_bytes, iter([batch] * 50))
    written = pq.read_metadata(f"{target.hidden()}/{made['file'][0].as_py()}")
    assert (written.num_rows, written.num_row_groups) == (5_000, groups)
