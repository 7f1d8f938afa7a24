"""Lays a page file out again, by how often a log of accesses names each key."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.semistream.master.page_file.generation import Generation, load_version
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.plan.build import build_pages
from dovetail.spark.frames import column_of, parallelism
from dovetail.spark.hosts.batch import mapped_frame, numbered

if TYPE_CHECKING:
    from dovetail.joins.semistream.master.store import MasterStore

_PAGES_AT_ONCE = 64


def relaid(store: MasterStore, log: DataFrame, page: int | str | None) -> Generation:
    """The rows of a page file as a new generation, those of the keys first that occur most often in `log`.

    Keys that the log does not name come last. Nothing is taken from other stores: a changed page file, one of ranges
    and one that is looked up by part of its key are refused.
    """
    source, key = _source(store), store.key
    missing = [name for name in key if name not in log.columns]
    if missing or log.isStreaming:
        what = "a stream" if log.isStreaming else f"without {missing}"
        raise PlanError(
            f"the log is {what}; give a batch DataFrame that has the key {list(key)}, a row for each access.",
            argument="log",
        )
    found = load_version(source.place)
    rows, times = _rows(log, store, found), f"times_{uuid.uuid4().hex[:8]}"
    counts = log.select(*map(column_of, key)).groupBy(*map(column_of, key)).agg(F.count("*").alias(times))
    counted = rows.join(counts, list(key), "left").select(*map(column_of, rows.columns), times)
    size = found.page_bytes if page is None else page
    nulls = found.null_part is not None
    return build_pages(counted, source.path, key, "frequency", size, times, found.unique, nulls, found.schema)


def _source(store: MasterStore) -> PageFileSource:
    source = store.source
    if not isinstance(source, PageFileSource) or source.part or store.bounds is not None:
        raise UnsupportedError(
            f"{source} cannot be laid out again: that is for page files, of all their key and without bounds; copy its "
            f"rows into one with MasterStore.build(..., order='frequency').",
            argument="log",
        )
    if load_version(source.place).applied is not None:
        raise UnsupportedError(
            f"{source} is kept up to date from a feed of changes, which needs the order of the key.", argument="log"
        )
    return source


def _rows(log: DataFrame, store: MasterStore, found: Generation) -> DataFrame:
    """The rows of a generation, read by as many tasks as run at once; those without a key are among them if kept."""
    whole = store.with_nulls() if found.null_part is not None else store
    tasks = max(1, min(parallelism(log.sparkSession), found.n_pages))
    numbers = numbered(log.sparkSession, tasks)
    columns = from_arrow_schema(found.schema, prefer_timestamp_ntz=True)
    return mapped_frame(numbers, partial(_read, whole, found.version, tasks), columns)


def _read(store: MasterStore, version: str, tasks: int, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pages = store.at(version)
    try:
        n = len(pages.starts) - 1
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            first, end = n * number // tasks, n * (number + 1) // tasks
            for at in range(first, end, _PAGES_AT_ONCE):
                yield pages.read(at, min(_PAGES_AT_ONCE, end - at))
    finally:
        pages.close()
