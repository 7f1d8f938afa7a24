"""Pipelines with masters of every kind, declared, checked and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from tests.pipeline.test_run import run, written
from tests.semistream.master.debian_servers import MariaDb, Redis

from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.read import read_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
[pipeline]
name = "shop"

[source.orders]
type = "parquet"
path = "orders"

[master.products]
{master}

[join.named]
type = "enrich"
stream = "orders"
master = "products"
on = "product"
memory = "2MB"

[sink.out]
type = "parquet"
from = "named"
path = "out"
"""
PRODUCTS = pa.table({"product": list(range(20)), "name": [f"product {n}" for n in range(20)]})


def assert_answers(spark: SparkSession, place: Path, master: str) -> None:
    (place / "orders").mkdir()
    orders = pa.table({"id": list(range(30)), "product": [n % 25 for n in range(30)]})
    parquet.write_table(orders, place / "orders" / "0.parquet")
    file = written(place, SHOP.replace("{master}", master))
    assert list(check_pipeline(spark, read_pipeline(file))) == []
    run(spark, file)
    expected = [(n, n % 25, f"product {n % 25}") for n in range(30) if n % 25 < 20]
    found = spark.read.parquet(str(place / "out")).select("id", "product", "name").collect()
    assert sorted(map(tuple, found)) == expected


def test_delta(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "products", PRODUCTS)
    assert_answers(spark, tmp_path, 'type = "delta"\npath = "products"\nkey = "product"')


def test_iceberg(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file://{tmp_path}/lake"}
    lake = load_catalog("lake", **properties)
    lake.create_namespace("shop")
    lake.create_table("shop.products", PRODUCTS.schema).append(PRODUCTS)
    shown = ", ".join(f'{name} = "{value}"' for name, value in properties.items())
    master = f'type = "iceberg"\ncatalog = "lake"\nproperties = {{ {shown} }}\ntable = "shop.products"'
    assert_answers(spark, tmp_path, f'{master}\nkey = "product"')


def test_a_spark_table(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(PRODUCTS.to_pylist(), "product long, name string")
    frame.coalesce(1).write.option("path", str(tmp_path / "p")).saveAsTable("declared", format="parquet")
    try:
        assert_answers(spark, tmp_path, 'type = "table"\ntable = "declared"\nkey = "product"')
    finally:
        spark.sql("DROP TABLE declared")


@pytest.mark.parametrize("kind", ["mysql", "redis"])
def test_servers(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    with MariaDb() if kind == "mysql" else Redis() as server:
        if isinstance(server, MariaDb):
            server.execute("CREATE TABLE products (product bigint PRIMARY KEY, name varchar(20))")
            server.execute("INSERT INTO products SELECT seq, CONCAT('product ', seq) FROM seq_0_to_19")
            named = 'table = "products"'
        else:
            with server.connect() as client:
                for row in PRODUCTS.to_pylist():
                    client.hset(f"product:{row['product']}", "name", row["name"])
            named = 'prefix = "product:"\nschema = "product long, name string"'
        assert_answers(spark, tmp_path, f'type = "{kind}"\nuri = "{server.url}"\n{named}\nkey = "product"')
