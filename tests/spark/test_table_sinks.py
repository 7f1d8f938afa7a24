"""Streams from tables into Delta and Iceberg tables, as examples write them: a repeated micro-batch is there once."""

from __future__ import annotations

import runpy
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def paid(orders: int) -> Counter[Any]:
    """Each order with its payment."""
    return Counter((n, 20 + n % 50, n % 7) for n in range(orders) if n % 3)


def forget_newest_commit(place: Path) -> int:
    """Leave the checkpoint as a kill between the sink's commit and Spark's does."""
    commits = place / "checkpoint" / "commits"
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def is_priced(row: dict[str, Any]) -> bool:
    """Whether an order has the one price of its product at its date."""
    version = (row["ordered_at"] - date(2026, 1, 1)).days // 30
    begin = date(2026, 1, 1) + timedelta(30 * version)
    return (row["price"], row["valid_from"]) == (10 + row["order_id"] % 20 + 20 * version, begin)


@pytest.mark.parametrize("name", ["orders_to_delta", "orders_to_iceberg"])
def test_a_micro_batch_that_is_repeated_after_a_kill_is_there_once(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    example, place = runpy.run_path(str(EXAMPLES / f"{name}.py")), str(tmp_path)
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    example["arrive"](spark, place, 0, 300, mode="overwrite")
    example["run"](spark, place, "8MB")
    first = Counter(tuple(row.items()) for row in example["read"](place))
    repeated = forget_newest_commit(tmp_path)
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "3")
        query = example["run"](spark, place, "4MB")
        assert query.recentProgress[0]["batchId"] == repeated
        assert Counter(tuple(row.items()) for row in example["read"](place)) == first
        forget_newest_commit(tmp_path)
        example["arrive"](spark, place, 300, 500)
        example["run"](spark, place, "16MB")  # the repeated one, and after it new ones that need its state
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        for table in ("orders", "payments"):
            spark.sql(f"drop table if exists {table}")
    rows = example["read"](place)
    if name == "orders_to_delta":
        assert Counter((row["order_id"], row["amount"], row["paid_by"]) for row in rows) == paid(500)
    else:
        assert sorted(row["order_id"] for row in rows) == list(range(500))
        assert all(map(is_priced, rows))


@pytest.mark.parametrize("name", ["orders_to_delta", "orders_to_iceberg"])
def test_an_older_checkpoint_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Its micro-batches have the numbers of others that the table has: to skip them would lose rows."""
    write = runpy.run_path(str(EXAMPLES / f"{name}.py"))["write_once"]
    target, rows = str(tmp_path / "table" if name == "orders_to_delta" else tmp_path), spark.range(3)
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
    try:
        for number in (0, 1, 1):
            write(rows, number, target)
        with pytest.raises(RuntimeError, match="has micro-batch 1, the checkpoint is at 0"):
            write(rows, 0, target)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
