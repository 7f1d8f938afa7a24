"""Small reads for planning: the rows that Spark collects, without compiled code; the session does not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from dovetail.spark.frames import read_small

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_and_types_are_those_of_a_collected_frame(spark: SparkSession) -> None:
    rows = spark.sql(
        "select id, id / 3 as share, cast(id as decimal(20, 4)) as price, timestamp_seconds(id) as at, "
        "if(id % 2 = 0, null, cast(id as string)) as name, xxhash64(id) as h, array(id, id + 1) as many, "
        "monotonically_increasing_id() as place from range(0, 50, 1, 3)"
    )
    wanted = rows.union(rows).where("share < 12")
    assert read_small(wanted).equals(wanted.toArrow())


def test_settings_and_views_of_the_session_hold_and_stay(spark: SparkSession) -> None:
    spark.conf.unset("spark.sql.session.timeZone")
    before = dict(spark.conf.getAll)
    spark.range(3).createOrReplaceTempView("few")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        table = read_small(spark.sql("select cast(timestamp '1970-01-01 09:00:00' as long) as s, id from few"))
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
        spark.catalog.dropTempView("few")
    assert table["s"].to_pylist() == [0, 0, 0]
    assert dict(spark.conf.getAll) == before


def test_cached_rows_are_read_from_the_cache(spark: SparkSession) -> None:
    once = spark.range(20).selectExpr("id", "rand() as r").cache()
    try:
        assert read_small(once.orderBy("id")).equals(once.orderBy("id").toArrow())
    finally:
        once.unpersist()


@pytest.fixture
def compiles(spark: SparkSession) -> Iterator[None]:
    """The session compiles queries, as users' sessions do."""
    keys = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = [(key, spark.conf.get(key)) for key in keys]
    for key, value in zip(keys, ("true", "FALLBACK"), strict=True):
        spark.conf.set(key, value)
    yield
    for key, value in before:
        spark.conf.set(key, value)


@pytest.mark.usefixtures("compiles")
def test_nothing_is_compiled(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    generator = jvm.org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator
    rows = spark.range(10).selectExpr("id + 41 as a", "id * 17 as b").where("a + b > 50")
    before = generator.compileTime()
    table = read_small(rows)
    assert generator.compileTime() == before
    assert rows.toArrow().equals(table)
    assert generator.compileTime() > before
