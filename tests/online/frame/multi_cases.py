"""Inputs for tests of `online_multijoin`, as tables, DataFrames and streams, and Spark's own join of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tests.semistream.frame.cases import drop_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Bag = Counter[tuple[Any, ...]]
SHAPES: dict[str, list[tuple[str, str]]] = {
    "chain3": [("orders.id", "items.order_id"), ("items.part", "parts.id")],
    "star3": [("orders.id", "items.order_id"), ("orders.id", "parts.id")],
    "snowflake4": [("orders.id", "items.order_id"), ("items.part", "parts.id"), ("items.kind", "kinds.kind")],
}
_COLUMNS = {
    "orders": ("id", "customer"),
    "items": ("order_id", "part", "kind"),
    "parts": ("id", "price"),
    "kinds": ("kind", "customer"),
}


def table_of(name: str, rows: int, keys: int, seed: int) -> pa.Table:
    """Rows with small keys, some null and many twice, and a number of their own."""
    rng = np.random.default_rng([seed, len(name), ord(name[0])])
    columns: dict[str, Any] = {}
    for column in _COLUMNS[name]:
        columns[column] = pa.array(rng.integers(0, keys, rows), pa.int64(), mask=rng.random(rows) < 0.03)
    return pa.table({**columns, f"{name}_n": pa.array(np.arange(rows) + 1000 * seed, pa.int64())})


def tables_of(shape: str, rows: int, keys: int, seed: int) -> dict[str, pa.Table]:
    """A table for each input of a shape."""
    names = dict.fromkeys(end.split(".")[0] for term in SHAPES[shape] for end in term)
    return {name: table_of(name, rows, keys, seed) for name in names}


def numbers(name: str) -> str:
    """The column that identifies a row of an input."""
    return f"{name}_n"


def spark_join(spark: SparkSession, tables: dict[str, pa.Table], shape: str) -> Bag:
    """Numbers of the rows of each combination, as Spark's own join finds them."""
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    where = " and ".join(f"{a} = {b}" for a, b in SHAPES[shape])
    chosen = ", ".join(f"{name}.{name}_n" for name in tables)
    return Counter(map(tuple, spark.sql(f"select {chosen} from {', '.join(tables)} where {where}").collect()))


def bag_of(rows: list[Any], names: Any) -> Bag:
    """Numbers of the rows of each combination in an answer."""
    return Counter(tuple(row[f"{name}_n"] for name in names) for row in rows)


class MultiFeed:
    """A directory of files for each input, one file an input and micro-batch."""

    def __init__(self, place: Path, shape: str, rows: int = 60, keys: int = 12) -> None:
        self.place, self.shape, self.rows, self.keys = place, shape, rows, keys
        self.files = 0
        self.tables: dict[str, list[pa.Table]] = {}

    def add(self, last: bool = False) -> None:
        """One more file an input, its last row marked where it is to end."""
        for name, table in tables_of(self.shape, self.rows, self.keys, self.files + 1).items():
            self.tables.setdefault(name, []).append(table)
            marks = pa.array([last and row == self.rows - 1 for row in range(self.rows)])
            drop_file(self.place / name, table.append_column("last", marks), self.files)
        self.files += 1

    def streams(self, spark: SparkSession, last: bool = False) -> dict[str, DataFrame]:
        """The inputs as streams, one file a micro-batch."""
        found = {}
        for name in self.tables:
            schema = ", ".join(f"{c} long" for c in (*_COLUMNS[name], f"{name}_n")) + ", last boolean"
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            stream = reader.parquet(str(self.place / name))
            found[name] = stream if last else stream.drop("last")
        return found

    def expected(self, spark: SparkSession) -> Bag:
        """Every combination of all that was added."""
        return spark_join(spark, {n: pa.concat_tables(some) for n, some in self.tables.items()}, self.shape)
