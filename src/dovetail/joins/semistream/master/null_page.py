"""Rows with a null in the key as one more page, for joins in which null equals null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.rows.columns import valid_rows
from dovetail.engine.storage.device import Device
from dovetail.errors import UnsupportedError
from dovetail.joins.semistream.master.pages import Counted, KeyedPages, Order, Pages, Resting


@runtime_checkable
class NullRows(Pages, Protocol):
    """Pages of a store that can also give the rows which are in none of them: those with a null in the key."""

    @property
    def null_rows(self) -> int:
        """How many there are, or were when they were counted."""
        ...

    @property
    def null_bytes(self) -> int:
        """Bytes that reading them moves."""
        ...

    def read_nulls(self) -> pa.RecordBatch:
        """All of them."""
        ...


class WithNulls:
    """Pages with one more at the end, which holds all rows of keys that have a null.

    It is read as a whole, and so must fit in memory.
    """

    def __init__(self, inner: NullRows) -> None:
        self._inner = inner
        self.schema, self.key, self.version = inner.schema, inner.key, inner.version
        self.order: Order = inner.order
        self.counted: Counted = inner.counted
        self.held_bytes = inner.held_bytes
        self.indexed, self.device = inner.indexed, inner.device
        self._n = len(inner.starts) - 1
        self.starts: I64 = np.append(inner.starts, int(inner.starts[-1]) + inner.null_rows).astype(np.int64)

    device: Device

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each row's key; that of keys with a null is the last one."""
        return np.where(has_null(key), self._n, self._inner.home(key))

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves."""
        inside = min(count, self._n - first)
        moved = self._inner.stored_bytes(first, inside) if inside else 0
        return moved + (self._inner.null_bytes if first + count > self._n else 0)

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs moves."""
        last = self._has_last(first, count)
        inside = self._inner.stored_many(np.minimum(first, self._n), count - last)
        moved: I64 = inside + last * self._inner.null_bytes
        return moved

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on."""
        if first + count <= self._n:
            return self._inner.read(first, count)
        found = self._inner.read_nulls()
        return found if count == 1 else pa.concat_batches([self._inner.read(first, count - 1), found])

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins."""
        last = self._has_last(first, count)
        rows, offsets = self._inner.read_many(int64s(np.minimum(first, self._n)), int64s(count - last))
        if not last.any():
            return rows, offsets
        found = self._inner.read_nulls()
        offsets = offsets + np.append(0, np.cumsum(last)) * found.num_rows
        return pa.concat_batches([rows, found]), offsets

    def _has_last(self, first: I64, count: I64) -> Bool:
        """For each run whether the last page is in it; runs ascend, so that only empty ones can follow."""
        return (count > 0) & (first + count > self._n)

    @property
    def finds_keys(self) -> bool:
        """Whether single keys can be looked up."""
        return isinstance(self._inner, KeyedPages) and self._inner.finds_keys

    @property
    def reads_homes(self) -> bool:
        """Whether home pages are read to find keys."""
        return isinstance(self._inner, KeyedPages) and self._inner.reads_homes

    def read_keys(self, key: Sequence[pa.Array], room: int) -> pa.RecordBatch | None:
        """All rows with one of these keys; if one has a null, all rows that have one too."""
        if not isinstance(self._inner, KeyedPages):
            return None
        nulls = has_null(key)
        if not nulls.any():
            return self._inner.read_keys(key, room)
        found = [self._inner.read_nulls()]
        if not nulls.all():
            some = self._inner.read_keys([column.filter(pa.array(~nulls)) for column in key], room)
            if some is None:
                return None
            found.append(some)
        return pa.concat_batches(found)

    def rest(self) -> None:
        """Release locks and snapshots at a server until the next read."""
        if isinstance(self._inner, Resting):
            self._inner.rest()

    def wake(self) -> bool:
        """Take the snapshot again, for the reads to come; whether the version is still there."""
        return not isinstance(self._inner, Resting) or self._inner.wake()

    def close(self) -> None:
        """Close files and connections; twice is fine."""
        self._inner.close()


def has_null(key: Sequence[pa.Array]) -> Bool:
    """Row by row whether a part of the key is null."""
    found: Bool = ~np.logical_and.reduce([valid_rows(column) for column in key])
    return found


def with_nulls(pages: Pages, store: object) -> Pages:
    """The pages with the rows of keys that have a null; an `UnsupportedError` if the store cannot give them."""
    if not isinstance(pages, NullRows):
        raise UnsupportedError(
            f"{store} cannot give rows with a null in the key; build a page file with keep_nulls.", argument="null_safe"
        )
    if not pages.null_rows and not isinstance(pages, Resting):  # a table may get some while it is open
        return pages
    return WithNulls(pages)
