"""Pipelines whose enrich steps look up at a time and by ranges."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.pipeline.test_run import run, written

from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
[pipeline]
name = "shop"

[source.orders]
type = "parquet"
path = "orders"

[source.prices]
type = "parquet"
path = "prices"

[source.bands]
type = "parquet"
path = "bands"

[master.prices_pages]
type = "pages"
path = "prices.pages"
key = "sku"
build = { from = "prices" }

[master.bands_pages]
type = "pages"
path = "bands.pages"
build = { from = "bands", bounds = ["least", "most"], unique = true }

[join.priced]
type = "enrich"
stream = "orders"
master = "prices_pages"
on = "sku"
at = "day"
valid = ["first", "until"]
closed = "both"
overlap = "all"
memory = "2MB"

[join.sent]
type = "enrich"
stream = "priced"
master = "bands_pages"
on = [["grams", ["least", "most"]]]
how = "left"
columns = ["id", "price", "tariff"]
memory = "2MB"

[sink.out]
type = "parquet"
from = "sent"
path = "out"
"""


def stored(place: Path, name: str, table: pa.Table) -> None:
    (place / name).mkdir()
    parquet.write_table(table, place / name / "0.parquet")


def test_prices_and_tariffs(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path, "orders", pa.table({"id": [1, 2, 3], "sku": ["a"] * 3, "day": [4, 5, 9], "grams": [10, 100, 999]}))
    stored(tmp_path, "prices", pa.table({"sku": ["a", "a"], "price": [7, 8], "first": [1, 5], "until": [5, 8]}))
    stored(tmp_path, "bands", pa.table({"least": [0, 101], "most": [100, 200], "tariff": ["letter", "parcel"]}))
    file = written(tmp_path, SHOP)
    assert check_pipeline(spark, read_pipeline(file, ())) == []
    run(spark, file)
    found = parquet.read_table(tmp_path / "out").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, 7, "letter"), (2, 7, "letter"), (2, 8, "letter")]
    wrong = written(tmp_path, SHOP.replace('[["grams", ["least", "most"]]]', '[["grams", ["least"]]]'))
    with pytest.raises(PipelineError, match=r"a column and the two of a range"):
        read_pipeline(wrong, ())
