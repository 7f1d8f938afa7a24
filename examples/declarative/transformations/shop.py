"""Tables of a shop, each made by one of Dovetail's joins; `SHOP_DATA` says where its files are.

Joins need the columns of their inputs, and Spark allows no analysis inside query functions: so they are planned here,
and the functions give what was planned. For the same reason their inputs are files or tables that exist before the
pipeline runs, not tables of the same pipeline.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from dovetail import MasterStore, enrich, interval_join, online_join, xquery

DATA = os.environ["SHOP_DATA"]
spark = SparkSession.active()


def arriving(name: str) -> DataFrame:
    files = f"{DATA}/{name}"
    return spark.readStream.schema(spark.read.parquet(files).schema).parquet(files)


enriched = enrich(arriving("orders"), MasterStore.open(f"{DATA}/products.pages"), on="product_id", memory="4MB")
shipped = online_join(
    arriving("orders"), arriving("shipments").drop("product_id"), on="order_id", memory="8MB",
    owed="batch",  # a run of a pipeline ends with its input: no results may wait for a pause
    retain="30 days",
)  # fmt: skip
promoted = interval_join(
    spark.read.parquet(f"{DATA}/shipments"), spark.read.parquet(f"{DATA}/promotions"),
    left_interval=("shipped_at", "received_at"), right_interval=("starts_at", "ends_at"), on="product_id", memory="8MB",
)  # fmt: skip
priced = xquery(spark, 'for $p in collection("prices")/list/price return $p', {"prices": f"{DATA}/prices"})


@dp.table
def enriched_orders() -> DataFrame:
    """Orders with their products: a stream and stored master data."""
    return enriched


@dp.table
def shipped_orders() -> DataFrame:
    """Orders with their shipments: two streams."""
    return shipped


@dp.materialized_view
def promoted_shipments() -> DataFrame:
    """Shipments on their way while a promotion of their product ran: intervals that overlap."""
    return promoted


@dp.materialized_view
def prices() -> DataFrame:
    """Prices out of XML files."""
    return priced
