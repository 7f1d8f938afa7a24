"""Master data in memory for tests: any schema and key, pages of any size, with or without an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.storage.device import Device, DeviceModel
from dovetail.joins.semistream.master.pages import read_each, stored_each

DISK = DeviceModel("test disk", seek_s=0.004, bytes_per_s=1e7)


def plain(value: Any) -> Any:
    """A key as Spark compares it: NaN is one value, and so is zero."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def plain_key(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The key as something that can be looked up, or None if any part is null."""
    return None if any(v is None for v in values) else tuple(plain(v) for v in values)


class MemoryPages:
    """Rows in pages of about `page_rows`, all rows of a key in one page, in the order in which keys first appear.

    `total` gives every key a home, as a sorted index does, keys that are not there too; otherwise they have none.
    """

    counted = "pages"
    held_bytes = 0

    def __init__(
        self,
        rows: pa.Table,
        key: tuple[str, ...],
        page_rows: int,
        *,
        total: bool = False,
        indexed: bool = True,
        order: str = "none",
        version: str = "1",
    ) -> None:
        self.schema, self.key, self.order, self.indexed, self.version = rows.schema, key, order, indexed, version
        self.device = Device(DISK, VirtualClock())
        self.total, self.closed = total, False
        keys = list(zip(*(rows[k].to_pylist() for k in key), strict=True)) if rows.num_rows else []
        groups: dict[Any, list[int]] = {}
        for at, k in enumerate(keys):
            if (found := plain_key(k)) is not None:
                groups.setdefault(found, []).append(at)
        pages: list[list[int]] = [[]]
        self.homes: dict[Any, int] = {}
        for found, members in groups.items():
            if len(pages[-1]) >= page_rows:
                pages.append([])
            self.homes[found] = len(pages) - 1
            pages[-1] += members
        if not pages[-1]:
            pages.pop()
        self.page_lists = pages
        self.starts = np.cumsum([0, *map(len, pages)]).astype(np.int64)
        taken = rows.take(pa.array([at for page in pages for at in page], pa.int64())).combine_chunks()
        self.rows = taken.to_batches()[0] if taken.num_rows else pa.RecordBatch.from_pylist([], rows.schema)
        self.reads: list[tuple[int, int]] = []
        lost = [at for at, k in enumerate(keys) if plain_key(k) is None]
        self._nulls = rows.take(pa.array(lost, pa.int64())).combine_chunks()
        self.null_rows, self.null_bytes = len(lost), self._nulls.nbytes

    def home_of(self, key: Any) -> int:
        """The page of one key that is not null."""
        if key in self.homes:
            return self.homes[key]
        return sum(map(ord, str(key))) % len(self.page_lists) if self.total and self.page_lists else -1

    def home(self, key: Sequence[pa.Array]) -> Any:
        keys = map(plain_key, zip(*(k.to_pylist() for k in key), strict=True))
        return np.array([-1 if k is None else self.home_of(k) for k in keys], np.int64)

    def stored_bytes(self, first: int, count: int) -> int:
        rows = int(self.starts[first + count] - self.starts[first])
        return int(self.rows.nbytes * rows / max(1, self.rows.num_rows))

    def read(self, first: int, count: int) -> pa.RecordBatch:
        start, stop = int(self.starts[first]), int(self.starts[first + count])
        self.reads.append((first, count))
        size = self.stored_bytes(first, count)
        batch = pa.concat_batches([self.rows.slice(start, stop - start)])
        return self.device.call(lambda: batch, size, place=(self, start))

    def read_nulls(self) -> pa.RecordBatch:
        batches = self._nulls.to_batches()
        found = batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)
        return self.device.call(lambda: found, self.null_bytes)

    def stored_many(self, first: I64, count: I64) -> I64:
        return stored_each(self, first, count)

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        return read_each(self, first, count)

    def close(self) -> None:
        self.closed = True
