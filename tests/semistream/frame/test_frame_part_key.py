"""enrich by part of a composite key: all master rows with these values, as Spark's join finds them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.semistream.frame.cases import bag, drop_file, file_stream, page_store, rows_of

from dovetail import MasterStore, enrich, plan_enrich
from dovetail.errors import ConfigError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIKE: dict[str, Any] = {"memory": "1MB", "tune": "off"}


def prices() -> pa.Table:
    """Product and region, sorted by both; every product has four prices, far apart in order of region."""
    pairs = [(a, b) for a in range(200) for b in range(4)]
    return pa.table(
        {"product": [a for a, _ in pairs], "region": [b for _, b in pairs], "price": [10 * a + b for a, b in pairs]}
    )


def orders() -> pa.Table:
    return pa.table(
        {"id": list(range(300)), "product": [n * 7 % 230 for n in range(300)], "place": [n % 6 for n in range(300)]}
    )


def store_of(kind: str, place: Path) -> MasterStore:
    table, key = prices(), ["product", "region"]
    if kind == "pages":
        return page_store(place / "m.pages", table, key)
    if kind == "parquet":
        parquet.write_table(table, place / "m.parquet", row_group_size=50)
        return MasterStore.parquet(place / "m.parquet", key)
    with sqlite3.connect(place / "m.db") as connection:
        connection.execute(
            "CREATE TABLE m (product INTEGER, region INTEGER, price INTEGER, PRIMARY KEY (product, region))"
        )
        connection.executemany("INSERT INTO m VALUES (?, ?, ?)", [tuple(row.values()) for row in table.to_pylist()])
    connection.close()
    return MasterStore.sqlite(place / "m.db", "m", key)


@pytest.mark.parametrize("kind", ["pages", "parquet", "sqlite"])
@pytest.mark.parametrize(("on", "how"), [("product", "left"), ([("place", "region")], "inner")])
def test_part_of_a_key_equals_sparks_join(spark: SparkSession, tmp_path: Path, kind: str, on: Any, how: str) -> None:
    rows, master = spark.createDataFrame(orders()), spark.createDataFrame(prices())
    plan = plan_enrich(rows, store_of(kind, tmp_path), on=on, how=how, **LIKE)
    wanted: DataFrame
    if on == "product":
        wanted = rows.join(master, "product", how).select("id", "product", "place", "region", "price")
    else:
        other = master.withColumnRenamed("product", "product_master")
        wanted = rows.join(other, rows.place == other.region, how).select(
            "id", "product", "place", "product_master", "region", "price"
        )
    assert plan.frame().columns == wanted.columns
    assert bag(plan.frame()) == bag(wanted)
    if kind == "pages":
        assert "part of the key: no index, so that every task reads all pages" in plan.explain()
        assert plan.explain().splitlines()[1].startswith(("MeshJoin", "HashJoin"))  # neither looks keys up


def test_a_stream_by_part_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    drop_file(tmp_path / "in", orders(), 0)
    out = enrich(file_stream(spark, tmp_path / "in"), store_of("pages", tmp_path), on="product", **LIKE)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start().awaitTermination()
    known = {(n, n * 7 % 230, b) for n in range(300) for b in range(4) if n * 7 % 230 < 200}
    found = spark.read.parquet(str(tmp_path / "out")).select("id", "product", "region").toArrow()
    assert rows_of(found) == dict.fromkeys(known, 1)


def test_what_part_of_a_key_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(orders())
    store = store_of("pages", tmp_path)
    with pytest.raises(PlanError, match="algorithm='hybridjoin' looks keys up, but the store has no index"):
        enrich(rows, store, on="product", algorithm="hybridjoin", **LIKE)
    with pytest.raises(PlanError, match=r"null_safe=True needs the store's whole key \['product', 'region'\]"):
        enrich(rows, store, on="product", null_safe=True, **LIKE)
    some = pa.table({"product": [1, 2], "region": pa.array([None, 3], pa.int64())})
    half = page_store(tmp_path / "half.pages", some, ["product", "region"])
    with pytest.raises(ConfigError, match=r"has 1 rows with a null in its key .* build a page file with this key"):
        enrich(rows, half, on="product", **LIKE)
