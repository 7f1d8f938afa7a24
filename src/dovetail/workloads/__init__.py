"""Generates data for tests, benchmarks and demonstrations: pure functions of a seed, as Arrow batches and Spark
sources.

A workload is a frozen value that knows its schema and makes any range of its rows alone, so the same seed gives the
same bytes whatever the batch size, the partitioning, or the source (batch or stream) that reads it:

>>> orders(rows=1_000, seed=7).table().num_rows
1000
>>> stream = ZipfStream(rows=10_000, domain=500, exponent=1.0, seed=7)
>>> stream.table(100, 200).equals(stream.table().slice(100, 100))
True

| what | functions and values |
|---|---|
| keys | `zipf_keys`, `ZipfLaw` (draws and shares), `ZipfKeys` (scattered, drifting, absent keys) |
| streams | `ZipfStream`, `zipf_stream`; arrivals: `Constant`, `Poisson` (with delays), `Bursty`, `bursty_counts` |
| master data | `Master`, `master`: width in bytes, order, missing, duplicate and null keys |
| intervals | `LambdaIntervals`, `lambda_intervals`; `RandomIntervals`, `intervals` |
| two relations | `relations`, `relation`, `RELATION_SETS` |
| a shop | `orders`, `products`, `shipments`, `promotions` |
| XML | `Weather`, `PriceLists` |
| Spark | `register(spark)`, then `spark.read.format("dovetail.orders")` or `spark.readStream...` |

Random numbers are NumPy's, counter based; another release of NumPy may draw other normal or Gamma values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.workloads.arrivals import Bursty, Constant, Poisson, bursty_counts, parse_arrivals
from dovetail.workloads.blocks import BLOCK_ROWS, EPOCH_US, Workload
from dovetail.workloads.interval_sets import (
    Exponential,
    Fixed,
    LambdaIntervals,
    LogUniform,
    Mixture,
    Pareto,
    RandomIntervals,
    intervals,
    lambda_intervals,
    parse_lengths,
)
from dovetail.workloads.relation_sets import RELATION_SETS, Relation, relation, relations
from dovetail.workloads.retail import (
    Orders,
    PriceLists,
    Products,
    Promotions,
    Shipments,
    orders,
    price_cents,
    products,
    promotions,
    shipments,
)
from dovetail.workloads.streams import Master, ZipfStream, master, zipf_stream
from dovetail.workloads.weather import Weather
from dovetail.workloads.zipf import ZipfKeys, ZipfLaw, zipf_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BLOCK_ROWS",
    "EPOCH_US",
    "RELATION_SETS",
    "Bursty",
    "Constant",
    "Exponential",
    "Fixed",
    "LambdaIntervals",
    "LogUniform",
    "Master",
    "Mixture",
    "Orders",
    "Pareto",
    "Poisson",
    "PriceLists",
    "Products",
    "Promotions",
    "RandomIntervals",
    "Relation",
    "Shipments",
    "Weather",
    "Workload",
    "ZipfKeys",
    "ZipfLaw",
    "ZipfStream",
    "bursty_counts",
    "intervals",
    "lambda_intervals",
    "master",
    "orders",
    "parse_arrivals",
    "parse_lengths",
    "price_cents",
    "products",
    "promotions",
    "register",
    "relation",
    "relations",
    "shipments",
    "zipf_keys",
    "zipf_stream",
]


def register(spark: SparkSession) -> list[str]:
    """Makes every workload a format of this session ("dovetail.zipf", "dovetail.orders", ...) and gives the names."""
    # Spark is imported when it is asked for, so that tests and benchmarks without it do not pay for it.
    from dovetail.workloads.source import register as register_sources

    return register_sources(spark)
