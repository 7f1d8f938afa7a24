"""The sources on Spark: batch, stream and plain Arrow give the same bytes, after a restart and in any zone too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from tests.workloads.test_rows import stored

from dovetail import workloads
from dovetail.workloads import Workload

CASES: dict[str, tuple[Workload, dict[str, str]]] = {
    "zipf": (
        workloads.zipf_stream(rows=70_000, domain=1000, arrivals="bursty(1000)", tuple_bytes=40, seed=1),
        {"rows": "70000", "domain": "1000", "arrivals": "bursty(1000)", "tupleBytes": "40", "seed": "1"},
    ),
    "orders": (workloads.orders(rows=70_000, seed=2), {"rows": "70000", "seed": "2"}),
    "master": (
        workloads.master(domain=70_000, order="shuffled", missing=0.1, nulls=0.1, seed=3),
        {"domain": "70000", "order": "shuffled", "missing": "0.1", "nulls": "0.1", "seed": "3"},
    ),
    "intervals": (
        workloads.intervals(rows=70_000, lengths="pareto(1.2)", keys=5, hot_share=0.5, seed=4),
        {"rows": "70000", "lengths": "pareto(1.2)", "keys": "5", "hot_share": "0.5", "seed": "4"},
    ),
}


@pytest.fixture(scope="module")
def shop(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with all sources, in a time zone that is not the rows' own."""
    workloads.register(spark)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_gives_the_bytes_of_the_workload(shop: SparkSession, name: str) -> None:
    workload, options = CASES[name]
    frame = shop.read.format(f"dovetail.{name}").options(**options).option("partitions", "3").load()
    assert frame.rdd.getNumPartitions() == 3
    assert stored(frame.toArrow()) == stored(workload.table())


def streamed(shop: SparkSession, name: str, options: dict[str, str], checkpoint: Path) -> dict[int, pa.Table]:
    """The rows of every micro-batch, by its number."""
    seen: dict[int, pa.Table] = {}

    def keep(frame: DataFrame, number: int) -> None:
        seen[number] = frame.toArrow()

    stream = shop.readStream.format(f"dovetail.{name}").options(**options).load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return seen


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_a_stream_gives_the_same_bytes(shop: SparkSession, name: str, tmp_path: Path) -> None:
    workload, options = CASES[name]
    seen = streamed(shop, name, {**options, "rowsPerBatch": "30001", "partitions": "2"}, tmp_path)
    assert len(seen) == -(-workload.rows // 30_001)
    joined = pa.concat_tables([seen[number] for number in sorted(seen)])
    assert stored(joined) == stored(workload.table())


def test_a_batch_that_is_replayed_after_a_failure_has_the_same_rows(shop: SparkSession, tmp_path: Path) -> None:
    workload, options = CASES["orders"]
    first: dict[int, pa.Table] = {}

    def fail_in_the_second(frame: DataFrame, number: int) -> None:
        first[number] = frame.toArrow()
        if number == 1:
            raise RuntimeError("the sink broke")

    stream = shop.readStream.format("dovetail.orders").options(**options).option("rowsPerBatch", "30000").load()
    writer = stream.writeStream.foreachBatch(fail_in_the_second).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="the sink broke"):
        query.awaitTermination()
    rest = streamed(shop, "orders", {**options, "rowsPerBatch": "30000"}, tmp_path)
    assert sorted(rest) == [1, 2]
    assert stored(rest[1]) == stored(first[1])
    assert stored(pa.concat_tables([first[0], rest[1], rest[2]])) == stored(workload.table())


def test_timestamps_are_instants(shop: SparkSession) -> None:
    frame = shop.read.format("dovetail.zipf").option("rows", "1").load()
    assert frame.selectExpr("unix_micros(at)").first() == (workloads.EPOCH_US,)
    assert frame.selectExpr("cast(at as string)").first() == ("2023-12-31 20:30:00",)


def test_every_source_reads(shop: SparkSession) -> None:
    names = workloads.register(shop)
    assert {"dovetail.zipf", "dovetail.orders", "dovetail.intervals", "dovetail.master"} <= set(names)
    for name in ("lambda_intervals", "relation", "products", "shipments", "promotions"):
        maker = getattr(workloads, name)
        table = shop.read.format(f"dovetail.{name}").option("partitions", "2").load().limit(5).toArrow()
        assert table.equals(maker().table(0, 5).select(table.schema.names))


def test_a_bad_option_is_refused_before_any_job(shop: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="unknown option 'rowz': did you mean 'rows'"):
        shop.read.format("dovetail.orders").option("rowz", "3").load()
    with pytest.raises(AnalysisException, match="option seed must be a whole number"):
        shop.readStream.format("dovetail.orders").option("seed", "x").load()
