"""The example of the documentation, and the examples: they run as they stand."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from pyarrow import dataset
from pyspark.sql import SparkSession
from tests.pipeline.test_run import run

from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.keys import JOIN_TYPES, MASTERS, PIPELINE, SINKS, SOURCES
from dovetail.pipeline.file.read import read_pipeline

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def test_ten_lines(spark: SparkSession, tmp_path: Path) -> None:
    found = re.search(r"<!-- example -->\n```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert len([line for line in found[1].splitlines() if line]) == 10
    file = tmp_path / "shop.toml"
    file.write_text(found[1])
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.csv").write_text("order_id,product_id\n1,7\n2,8\n3,7\n")
    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.execute("CREATE TABLE products (product_id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO products VALUES (7, 'lamp'), (8, 'mat')")
    connection.close()
    assert check_pipeline(spark, read_pipeline(file)) == []
    run(spark, file, once=True)
    rows = dataset.dataset(tmp_path / "warehouse", format="parquet").to_table().to_pylist()
    assert sorted((row["order_id"], row["name"]) for row in rows) == [(1, "lamp"), (2, "mat"), (3, "lamp")]


def test_every_key_is_documented() -> None:
    text = PAGE.read_text()
    shapes = [PIPELINE, *SOURCES.values(), *MASTERS.values(), *SINKS.values()]
    keys = {key for shape in shapes for key in shape.keys} | set(JOIN_TYPES) | {*SOURCES, *MASTERS, *SINKS}
    assert sorted(key for key in keys if f"`{key}" not in text) == []
