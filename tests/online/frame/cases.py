"""Streams for tests of `online_join`, and what their join is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from tests.oracle import equi_join
from tests.semistream.frame.cases import drop_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Bag = Counter[tuple[Any, ...]]


def side_table(name: str, rows: int, keys: int, seed: int, first: int = 0) -> pa.Table:
    """Rows with a skewed key, some null, and a number of their own."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, keys, rows) if seed % 2 else rng.zipf(1.5, rows) % keys
    gone = rng.random(rows) < 0.03
    values = [None if lost else int(n) for n, lost in zip(numbers, gone, strict=True)]
    return pa.table({"k": pa.array(values, pa.int64()), name: pa.array(np.arange(first, first + rows), pa.int64())})


def expected(left: pa.Table, right: pa.Table) -> Bag:
    """(k, a, b) of every pair of equal keys."""
    pairs = equi_join(left.to_pylist(), right.to_pylist(), [("k", "k")])
    return Counter((a["k"], a["a"], b["b"]) for a, b in pairs if a is not None and b is not None)


def bag(rows: list[dict[str, Any]]) -> Bag:
    """(k, a, b) of answers."""
    return Counter((row["k"], row["a"], row["b"]) for row in rows)


class Feed:
    """Two directories of files, one file a side and micro-batch, the last row of a side marked where it is to end."""

    def __init__(self, place: Path, keys: int = 40, rows: int = 120) -> None:
        self.place, self.keys, self.rows = place, keys, rows
        self.files = 0
        self.left: list[pa.Table] = []
        self.right: list[pa.Table] = []

    def add(self, last: bool = False) -> None:
        """One more file a side."""
        for at, (name, tables) in enumerate((("a", self.left), ("b", self.right))):
            table = side_table(name, self.rows, self.keys, seed=100 * self.files + at, first=self.files * self.rows)
            tables.append(table)
            marks = pa.array([last and row == self.rows - 1 for row in range(self.rows)])
            drop_file(self.place / name, table.append_column("last", marks), self.files)
        self.files += 1

    def add_keys(self) -> None:
        """A third input: each key once, in one file."""
        marks = pa.array([key == self.keys - 1 for key in range(self.keys)])
        drop_file(self.place / "c", pa.table({"k": pa.array(range(self.keys), pa.int64()), "last": marks}), 0)

    def key_stream(self, spark: SparkSession) -> DataFrame | None:
        """The third input, if there is one."""
        place = self.place / "c"
        return spark.readStream.schema("k long, last boolean").parquet(str(place)) if place.exists() else None

    def streams(self, spark: SparkSession, last: bool = False) -> list[DataFrame]:
        """Both sides as streams, one file a micro-batch."""
        frames = []
        for name in ("a", "b"):
            schema = f"k long, {name} long, last boolean"
            stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.place / name))
            frames.append(stream if last else stream.drop("last"))
        return frames

    @property
    def expected(self) -> Bag:
        """Every pair of all that was added."""
        return expected(pa.concat_tables(self.left), pa.concat_tables(self.right))


def answers(place: Path) -> list[dict[str, Any]]:
    """What Spark's file sink counts as written; attempts that were killed leave other files."""
    metadata = place / "out" / "_spark_metadata"
    listed: set[str] = set()
    for entry in metadata.iterdir() if metadata.exists() else ():
        if not entry.name.startswith("."):
            lines = entry.read_text().splitlines()[1:]
            listed |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    return [row for file in sorted(listed) for row in parquet.read_table(file).to_pylist()]
