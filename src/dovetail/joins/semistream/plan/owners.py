"""Assigns stream rows to owners: each owner reads only its own slice of the master data."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa

from dovetail.engine.rows.hashes import KeyCodes
from dovetail.joins.semistream.master.pages import Pages, stream_key
from dovetail.joins.semistream.plan.attempt import Attempt
from dovetail.joins.semistream.plan.task import EnrichTask
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.exchange import Homes


def owned_rows(task: EnrichTask, owners: int, batches: Batches) -> Batches:
    """Rows with, in front, the number of the owner of their home page."""
    with closing(Owners(task, owners)) as found:
        for batch in batches:
            owner = found.of(task.stream_rows(batch))
            yield pa.RecordBatch.from_arrays([pa.array(owner), *batch.columns], names=["owner", *batch.schema.names])


class Owners:
    """The owner of each stream row: pages are assigned to owners in equal runs, keys without a page by their hash.

    Rows with a null in their key match nothing and never wait. They go to the owner of this task's number: the same
    one when Spark runs the task again with its rows in another order. Rows may go to other owners from one version of
    the master data to the next, as any owner can answer them.
    """

    rule = ""

    def __init__(self, task: EnrichTask, count: int) -> None:
        self.task, self.count, self._attempt = task, count, Attempt(task)
        self._pages: Pages | None = None

    def of(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The owner of each row."""
        task, attempt, owners = self.task, self._attempt, self.count
        if self._pages is None:
            self._pages = attempt.open(attempt.version())
        pages = self._pages
        key = stream_key(pages, rows, task.wiring.on)
        home = pages.home(key)
        found = home * owners // max(1, len(pages.starts) - 1)
        if (home < 0).any():
            types = [pages.schema.field(name).type for name in pages.key]
            codes, valid = KeyCodes(types, null_safe=task.request.null_safe).encode(key)
            found = np.where(home >= 0, found, np.where(valid, codes % owners, attempt.partition % owners))
        return found.astype(np.int32)

    def homes(self, side: int, rows: pa.RecordBatch) -> Homes:
        """The rows by owner."""
        owner = self.of(rows)
        order = np.argsort(owner, kind="stable")
        return order, owner[order].astype(np.int64), 0

    def close(self) -> None:
        """Close the master data."""
        if self._pages is not None:
            self._pages.close()
