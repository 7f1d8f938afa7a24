"""Batches for tasks, bounded by the sizes of their rows: the same rows as Spark's own, in batches that fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from dovetail.spark import catalyst
from dovetail.spark.frames import map_in_arrow

SIZES = "rows long, bytes long"
BYTES, RECORDS = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"

CHECKS = "spark.sql.execution.arrow.pyspark.validateSchema.enabled"


@pytest.fixture(autouse=True)
def sized(spark: SparkSession) -> Iterator[None]:
    """The classes are compiled and sent, as they are from the second program on a machine on."""
    catalyst.compiled()
    catalyst.size_batches(spark)
    yield
    for key in (BYTES, RECORDS, CHECKS):
        spark.conf.unset(key)


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as they are."""
    return batches


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows and bytes of each batch."""
    for batch in batches:
        yield pa.record_batch({"rows": [batch.num_rows], "bytes": [batch.nbytes]})


def is_sized(frame: DataFrame) -> bool:
    return "SizedMapInArrowExec" in frame._jdf.queryExecution().sparkPlan().getClass().getName()


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def schema_of(text: str) -> object:
    from pyspark.sql.types import StructType

    return StructType.fromDDL(text)


def test_the_planner_takes_map_in_arrow_over(spark: SparkSession) -> None:
    frame = spark.range(3)
    assert is_sized(map_in_arrow(frame, same, frame.schema))
    other = spark.newSession()
    assert is_sized(map_in_arrow(other.range(3), same, frame.schema))
    barrier = frame.mapInArrow(same, frame.schema, barrier=True)
    assert not is_sized(barrier)
    assert barrier.count() == 3


def test_off_leaves_batches_to_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(catalyst.OFF, "off")
    other = spark.newSession()
    assert not is_sized(map_in_arrow(other.range(3), same, other.range(3).schema))


def test_until_the_classes_are_compiled_spark_bounds_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(catalyst, "_jar", lambda: tmp_path / "none.jar")
    monkeypatch.setattr(catalyst, "_STARTED", [])
    monkeypatch.setattr(catalyst, "is_prepared", lambda: True)
    monkeypatch.setattr(catalyst, "beside", lambda *command: started.append(command[0]))
    other = spark.newSession()
    for _ in range(2):
        frame = map_in_arrow(other.range(3), same, other.range(3).schema)
        assert not is_sized(frame)
        assert frame.count() == 3
    assert started == ["dovetail.spark.catalyst"]


@pytest.mark.parametrize("width", [0, 10, 3_000, 40_000])
@pytest.mark.parametrize("most", [10_000, 100_000])
def test_a_batch_ends_with_the_row_that_reaches_the_bound(spark: SparkSession, width: int, most: int) -> None:
    spark.conf.set(BYTES, most)
    rows = spark.range(0, 4_000, 1, 2).selectExpr("id", f"repeat('x', {width}) as text")
    found = map_in_arrow(rows, sizes, schema_of(SIZES)).collect()
    assert sum(each.rows for each in found) == 4_000
    row = 8 + 8 + 8 + (width + 7) // 8 * 8  # of Spark's rows: marks of nulls, a number, a place, the text
    assert max(each.rows for each in found) == min(2_000, -(-most // row))
    assert max(each.bytes for each in found) <= most + width + 64  # of Arrow's, which are not larger
    if width == 40_000 and most == 10_000:
        assert len(found) == 4_000


def test_a_batch_has_no_more_rows_than_the_session_says(spark: SparkSession) -> None:
    spark.conf.set(RECORDS, 300)
    found = map_in_arrow(spark.range(0, 1_000, 1, 1), sizes, schema_of(SIZES)).collect()
    assert [each.rows for each in found] == [300, 300, 300, 100]
    spark.conf.set(RECORDS, 0)
    assert [each.rows for each in map_in_arrow(spark.range(0, 20_000, 1, 1), sizes, schema_of(SIZES)).collect()] == [
        20_000
    ]


def test_rows_of_every_type_come_back(spark: SparkSession) -> None:
    one = (
        True, 1, 2, 3, 2**40, 1.5, -0.0, Decimal("12.34"), Decimal(10) ** 30, "text", b"\0bytes", dt.date(2026, 1, 2),
        dt.datetime(2026, 1, 2, 3, 4, 5, 678), dt.timedelta(days=1, microseconds=3), [1, None, 3], {"a": 1}, (1, "x"),
    )  # fmt: skip
    kinds = (
        "boolean; tinyint; smallint; int; bigint; float; double; decimal(10,2); decimal(38,0); string; binary; date; "
        "timestamp_ntz; interval day to second; array<int>; map<string,int>; struct<a:int,b:string>"
    )
    ddl = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds.split("; ")))
    frame = spark.createDataFrame([one, (None,) * len(one)] * 50, ddl)
    back = map_in_arrow(frame, same, frame.schema)
    assert is_sized(back)
    assert rows_of(back) == rows_of(frame)


def test_rows_that_are_not_spark_s_own_format_and_empty_ones(spark: SparkSession) -> None:
    table = pa.table({"a": list(range(10)), "b": [str(n) for n in range(10)]})
    local = spark.createDataFrame(table)
    assert rows_of(map_in_arrow(local, same, local.schema)) == rows_of(local)
    empty = local.where("a > 99").repartition(3)
    assert map_in_arrow(empty, same, empty.schema).collect() == []


def test_a_query_that_needs_few_rows_ends_early(spark: SparkSession) -> None:
    frame = spark.range(0, 200_000, 1, 4)
    assert len(map_in_arrow(frame, same, frame.schema).limit(5).collect()) == 5


def test_an_answer_of_another_type_is_refused_as_by_spark(spark: SparkSession) -> None:
    frame = spark.range(3)
    spark.conf.set(CHECKS, True)
    with pytest.raises(Py4JJavaError, match="ARROW_TYPE_MISMATCH"):
        map_in_arrow(frame, same, schema_of("id string")).collect()


def test_micro_batches_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(100).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema("id long").parquet(str(tmp_path / "rows"))
    query = map_in_arrow(stream, same, stream.schema).writeStream.format("memory").queryName("sized_rows")
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    assert "MapInArrow" in started._jsq.explainInternal(True)
    assert rows_of(spark.table("sized_rows")) == rows_of(spark.range(100))
