"""Streams and master data for tests of `enrich`, and Spark's own join to compare with."""

from __future__ import annotations

import decimal
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.errors import StreamingQueryException
from tests.semistream.page_files import write_ordered_pages

from dovetail.joins.semistream.master.store import MasterStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Bag = Counter[tuple[Any, ...]]


def bag(frame: DataFrame) -> Bag:
    """The rows, whatever their order."""
    return rows_of(frame.toArrow())


def rows_of(table: pa.Table) -> Bag:
    """The rows of a table, whatever their order."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def master_table(keys: int = 400, text: str = "first", seed: int = 1) -> pa.Table:
    """Master data of many key types with the same number behind them all; some keys twice, some null."""
    rng = np.random.default_rng(seed)
    numbers = np.concatenate([np.arange(keys), rng.choice(keys, keys // 5, replace=False)])
    return keyed(rng.permutation(numbers)).append_column("text", pa.array([f"{text} {n}" for n in range(len(numbers))]))


def keyed(numbers: Any, nulls: float = 0.0, seed: int = 0) -> pa.Table:
    """The numbers as key columns of every type."""
    gone = np.random.default_rng(seed).random(len(numbers)) < nulls
    values = [None if lost else int(n) for n, lost in zip(numbers, gone, strict=True)]

    def each(make: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([None if v is None else make(v) for v in values], kind)

    return pa.table(
        {
            "k": each(int, pa.int64()),
            "short": each(int, pa.int32()),
            "name": each(lambda v: f"Größe {v}", pa.string()),
            "price": each(lambda v: decimal.Decimal(v) / 4, pa.decimal128(12, 2)),
            "day": each(lambda v: v, pa.date32()),
            "at": each(lambda v: v * 1_000_003, pa.timestamp("us", "UTC")),
            "half": each(lambda v: v / 2, pa.float64()),
        }
    )


def stream_table(rows: int = 3000, keys: int = 500, seed: int = 2, first: int = 0) -> pa.Table:
    """Stream rows, skewed, some with keys that no master row has, some with null."""
    rng = np.random.default_rng(seed)
    numbers = rng.zipf(1.3, rows) % keys
    table = keyed(numbers, nulls=0.05, seed=seed)
    return table.add_column(0, "id", pa.array(np.arange(first, first + rows)))


def page_store(path: Path, table: pa.Table, key: str | list[str] = "k", order: str = "key") -> MasterStore:
    """A page file of small pages."""
    frequency = "wanted" if order == "frequency" else None
    if frequency:
        table = table.append_column("wanted", pa.array([-hash(k) % 97 for k in table["k"].to_pylist()], pa.int64()))
    write_ordered_pages(path, table, key=key, order=order, page="2KB", frequency=frequency)  # type: ignore[arg-type]
    return MasterStore.open(path)


def drop_file(directory: Path, table: pa.Table, number: int) -> None:
    """A Parquet file for a stream to find, whole or not at all, in the order of its number."""
    directory.mkdir(exist_ok=True)
    staged = directory.parent / f"staged-{number}.parquet"
    parquet.write_table(table, staged)
    os.utime(staged, (1_000_000 + number, 1_000_000 + number))
    staged.rename(directory / f"{number:05d}.parquet")


class Ledger:
    """A sink for `foreachBatch` that keeps the answers of the first run of each micro-batch.

    After the first run of the one that `fails_after` names it has the answers and fails, so that Spark runs the
    micro-batch again when the query is restarted. `runs` counts.
    """

    def __init__(self, fails_after: int) -> None:
        self.fails_after, self.runs, self.kept = fails_after, Counter[int](), dict[int, pa.Table]()

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.runs[number] += 1
        self.kept.setdefault(number, frame.toArrow())
        if number == self.fails_after and self.runs[number] == 1:
            raise RuntimeError("the sink has the answers, and Spark does not know it")

    def run(self, frame: DataFrame, place: Path, each: Callable[[DataFrame, int], None] | None = None) -> None:
        """The stream to its end, or to the failure."""
        writer = frame.writeStream.foreachBatch(each or self).option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "Spark does not know it" not in str(error):
                raise

    def rows(self) -> Bag:
        """All answers that were kept."""
        return rows_of(pa.concat_tables(self.kept.values()))


def file_stream(spark: SparkSession, directory: Path) -> DataFrame:
    """The stream of these files, one a micro-batch."""
    schema = spark.read.parquet(str(directory)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))
