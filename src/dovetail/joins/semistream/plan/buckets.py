"""Assigns stream rows to buckets: each bucket reads only its own slice of the master data."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa

from dovetail.engine.rows.hashes import KeyCodes
from dovetail.joins.semistream.master.pages import Pages, stream_key
from dovetail.joins.semistream.plan.attempt import Attempt
from dovetail.joins.semistream.plan.task import EnrichTask
from dovetail.spark.frames import RESERVED, Batches
from dovetail.spark.hosts.exchange import Homes

BUCKET = f"{RESERVED}bucket"


def bucketed_rows(task: EnrichTask, buckets: int, batches: Batches) -> Batches:
    """Rows with, in front, the bucket of their home page."""
    with closing(PageBuckets(task, buckets)) as found:
        for batch in batches:
            bucket = found.of(task.stream_rows(batch))
            yield pa.RecordBatch.from_arrays([pa.array(bucket), *batch.columns], names=[BUCKET, *batch.schema.names])


class PageBuckets:
    """The bucket of each stream row: a bucket has a run of pages, all of equal length; keys without a page are hashed.

    Rows with a null in their key match nothing and never wait. They go to the bucket of this task's number: the same
    one when Spark runs the task again with its rows in another order. Rows may go to other buckets from one version of
    the master data to the next, as any bucket can answer them.
    """

    rule = ""

    def __init__(self, task: EnrichTask, count: int) -> None:
        self.task, self.count, self._attempt = task, count, Attempt(task)
        self._pages: Pages | None = None

    def of(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The bucket of each row."""
        task, attempt, buckets = self.task, self._attempt, self.count
        if self._pages is None:
            self._pages = attempt.open(attempt.version())
        pages = self._pages
        key = stream_key(pages, rows, task.wiring.on)
        home = pages.home(key)
        found = home * buckets // max(1, len(pages.starts) - 1)
        if (home < 0).any():
            types = [pages.schema.field(name).type for name in pages.key]
            codes, valid = KeyCodes(types, null_safe=task.request.null_safe).encode(key)
            found = np.where(home >= 0, found, np.where(valid, codes % buckets, attempt.partition % buckets))
        return found.astype(np.int32)

    def homes(self, side: int, rows: pa.RecordBatch) -> Homes:
        """The rows by bucket."""
        bucket = self.of(rows)
        order = np.argsort(bucket, kind="stable")
        return order, bucket[order].astype(np.int64), 0

    def close(self) -> None:
        """Close the master data."""
        if self._pages is not None:
            self._pages.close()
